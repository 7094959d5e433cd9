import { isAbsolute, join, posix } from "node:path";
import { requestedModel } from "../contract/environment.ts";
import type { Modality } from "../contract/model-spec.ts";
import { modelRepositoryMount } from "../contract/server/server-env.ts";
import type { Artefact } from "./artefact.ts";
import { evaluatePath } from "./terraform-text.ts";

/**
 * Returns the file of a tower that the services of an environment load, if it is on this machine: in a mounted folder, or
 * in the folder that a volume is filled from.
 *
 * @param model - Name of a model of the environment.
 * @param moduleFolder - Folder of `cdk.tf.json`.
 * @param exists - Returns whether a file of this machine exists.
 */
export function environmentModel(
  { workloads }: Pick<Artefact, "workloads">,
  model: string,
  modality: Modality,
  moduleFolder: string,
  exists: (path: string) => boolean,
): string | undefined {
  for (const { service, env, volumes } of workloads) {
    if (!service.models.includes(model)) continue;
    const name = requestedModel(service, model, modality);
    const repository = env.MODEL_REPOSITORY ?? modelRepositoryMount;
    const path = posix.join(repository, name, "1/model.onnx");
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
