import { existsSync } from "node:fs";
import { join, posix } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import { evaluatePath } from "../../artefact/terraform-text.ts";
import type { Workload } from "../../artefact/workload.ts";
import { gpuLayout, modelConfig } from "../../contract/model-config.ts";
import { printModelConfig } from "../../contract/print-model-config.ts";
import { modelRepositoryMount } from "../../contract/server/server-env.ts";
import { allKindsOf } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import type { ChangedConfig } from "./launch-spec-types.ts";
import { loadedModels } from "./one-container.ts";

/** Mounted version folder of a served model, `/models/<model>/1`. */
export interface WeightsMount {
  /** Folder of the host. */
  readonly source: string;
  readonly target: string;
}

const versionFolder = new RegExp(`^${modelRepositoryMount}/[^/]+/1$`);

/** Returns the files that the environment downloads into volumes, as the value of WEIGHTS_URLS of the all-in-one image. */
export function weightsUrls({ containers }: Artefact): readonly string[] {
  return containers.flatMap(({ declared: { command, volumes } }) => {
    if (command[0] !== "fetch-weights") return [];
    const option = (name: string) => command[command.indexOf(name) + 1];
    const file = command.includes("--file") ? option("--file") : "model.onnx";
    const path = containers
      .flatMap(({ declared }) => declared.volumes)
      .filter((mount) => mount.volume_name === volumes[0]?.volume_name)
      .map((mount) => posix.relative(modelRepositoryMount, mount.container_path))
      .filter((folder) => /^[^./][^/]*\/1$/.test(folder))
      // the image links the folders for TensorRT to the others
      .map((folder) => folder.replace(/_trt\/1$/, "/1"))[0];
    if (path === undefined) return [];
    return [`${path}/${file}=${option("--url")}#sha256=${option("--sha256")}`];
  });
}

/** Mounts of the weights; none if the image contains them. */
export function weightsMounts(artefact: Artefact, moduleFolder: string): readonly WeightsMount[] {
  const mounts = new Map<string, string>();
  if (weightsUrls(artefact).length > 0) return [];
  for (const { volumes } of artefact.workloads) {
    for (const { containerPath, hostPath } of volumes) {
      if (!versionFolder.test(containerPath)) continue;
      const known = hostPath === undefined ? undefined : evaluatePath(hostPath, moduleFolder);
      if (known === undefined) {
        throw new UserError(
          `${artefact.environment.name}: the folder mounted at ${containerPath} must be known before Terraform runs: set weights to image`,
        );
      }
      mounts.set(containerPath, posix.normalize(known));
    }
  }
  return [...mounts].map(([target, source]) => ({ source, target }));
}

/** Returns the model configurations that the settings change. The other configurations of the image serve any number of GPUs. */
export function changedConfigs(
  tritons: readonly Workload[],
  artefact: Artefact,
): readonly ChangedConfig[] {
  return tritons.flatMap((workload) =>
    loadedModels(workload).flatMap((model) => changedConfig(model, artefact)),
  );
}

function changedConfig(
  model: string,
  { containers, environment: { gpu, models } }: Artefact,
): readonly ChangedConfig[] {
  const text = containers
    .filter(({ declared }) => declared.command.includes(model))
    .flatMap(({ declared }) => declared.upload)
    .find((upload) => upload.file.endsWith(".pbtxt"))?.content;
  if (text === undefined) return [];
  // the prefix of cached engines depends on the deployment
  const effective = (config: string) =>
    config
      .split("\n")
      .filter((line) => line.trim() !== "" && !/^\s*#|trt_engine_cache_prefix/.test(line))
      .join("\n");
  const standard = models
    .flatMap((spec) =>
      allKindsOf(spec).map((modelKind) => modelConfig(spec, modelKind, gpuLayout(gpu?.count ?? 0))),
    )
    .find(({ name }) => name === model);
  // the repository contains the default model only
  const isInImage = existsSync(join(packageFolder, "model_repository", model, "config.pbtxt"));
  if (isInImage && standard && effective(text) === effective(printModelConfig(standard))) return [];
  return [{ model, text: text.replace(/\$\{[^{}]*\}_?/g, "") }];
}
