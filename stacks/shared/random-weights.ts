import { basename, dirname, isAbsolute, join } from "node:path";
import type { HostRequirements, RequiredFile } from "../../constructs/docker/host-requirements.ts";
import {
  type ModelInfo,
  modelInfo,
  modelSidecar,
  sidecarPath,
} from "../../model-tools/files/model-info.ts";

/** Models of an environment whose weights are random, by the manifests of their files. */

/**
 * Returns the names of the models with random weights among `files`.
 *
 * @param project - Base folder of relative paths.
 * @param readOnHost - Reads a file of the Docker host; empty if it is missing. Default: files of the host are not read.
 */
export async function randomModels(
  files: readonly RequiredFile[],
  project: string,
  readOnHost: (path: string) => Promise<string> = async () => "",
): Promise<readonly string[]> {
  const names = await Promise.all(
    files
      .filter(({ path }) => path.endsWith(".onnx"))
      .map(async ({ path, on }) => {
        const file = isAbsolute(path) ? path : join(project, path);
        const info =
          on === "here"
            ? await modelInfo(file).catch(() => undefined)
            : parsed(await readOnHost(sidecarPath(file)));
        return info?.weights === "random" ? [info.model ?? basename(dirname(dirname(file)))] : [];
      }),
  );
  return [...new Set(names.flat())];
}

function parsed(text: string): ModelInfo | undefined {
  try {
    return modelSidecar.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

/** Note about the models with random weights of each environment, one line each. */
export async function randomWeightNotes(
  environments: readonly HostRequirements[],
  project: string,
): Promise<readonly string[]> {
  const notes = await Promise.all(
    environments.map(async ({ environment, files }) => {
      const names = await randomModels(files, project);
      return names.length === 0
        ? []
        : [
            `${environment}: the weights of ${names.join(", ")} are random; embeddings are meaningless`,
          ];
    }),
  );
  return notes.flat();
}
