import { isAbsolute, join, posix } from "node:path";
import { modelRepositoryMount } from "../contract/server-env.ts";
import type { Artefact } from "./artefact.ts";
import { evaluatePath } from "./terraform-text.ts";

/**
 * Returns the model file that the services of an environment load, if it is on this machine: in a mounted folder, or in
 * the folder that a volume is filled from.
 *
 * @param moduleFolder - Folder of `cdk.tf.json`.
 * @param exists - Returns whether a file of this machine exists.
 */
export function environmentModel(
  { workloads }: Pick<Artefact, "workloads">,
  moduleFolder: string,
  exists: (path: string) => boolean,
): string | undefined {
  for (const { service, env, volumes } of workloads) {
    const path = env.MODEL_PATH ?? posix.join(modelRepositoryMount, service.model, "1/model.onnx");
    const volume = volumes
      .filter(({ containerPath }) => !posix.relative(containerPath, path).startsWith(".."))
      .sort((a, b) => b.containerPath.length - a.containerPath.length)[0];
    if (volume?.hostPath === undefined) continue;
    const folder = evaluatePath(volume.hostPath, moduleFolder);
    if (folder === undefined || !isAbsolute(folder)) continue;
    const file = join(folder, posix.relative(volume.containerPath, path));
    if (exists(file)) return file;
  }
  return undefined;
}
