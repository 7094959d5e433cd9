import { readFileSync } from "node:fs";
import { join, posix } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import { evaluatePath } from "../../artefact/terraform-text.ts";
import type { Workload } from "../../artefact/workload.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import { project } from "../project.ts";
import type { ChangedConfig } from "./launch-spec-types.ts";
import { variantOf } from "./one-container.ts";

/** Version folder of every served model; the folder with the weights is mounted at each of them. */
export function weightsTargets(workloads: readonly Workload[]): readonly string[] {
  const models = workloads.map(({ service: { backend, model } }) =>
    backend === "triton" ? undefined : model,
  );
  return [...new Set(models)].flatMap((model) =>
    model === undefined ? [] : [`${modelRepositoryMount}/${model}/1`],
  );
}

/**
 * Folder of the host with the weights; undefined if the image contains them.
 *
 * @throws {UserError} if only Terraform knows the folder.
 */
export function weightsFolder(artefact: Artefact, moduleFolder: string): string | undefined {
  const targets = weightsTargets(artefact.workloads);
  const mount = artefact.workloads
    .flatMap(({ volumes }) => volumes)
    .find(({ containerPath }) => targets.includes(containerPath));
  if (mount === undefined) return undefined;
  const file = artefact.containers
    .flatMap(({ declared }) => declared.upload)
    .find(({ source }) => source?.endsWith(".onnx"))?.source;
  const folder = mount.hostPath ?? (file === undefined ? undefined : posix.dirname(file));
  const known = folder === undefined ? undefined : evaluatePath(folder, moduleFolder);
  if (known === undefined) {
    throw new UserError(
      `${artefact.environment.name}: the folder mounted at ${mount.containerPath} must be known before Terraform runs: set weights to image`,
    );
  }
  return posix.normalize(known);
}

/** Model configurations that the settings change; the image contains those of the repository. */
export function changedConfigs(
  tritons: readonly Workload[],
  { containers }: Artefact,
): readonly ChangedConfig[] {
  return tritons.flatMap((workload) => {
    const { model } = workload.service;
    const variant = variantOf(workload) ?? "";
    const text = containers
      .filter(({ declared }) => declared.command.includes(model))
      .flatMap(({ declared }) => declared.upload)
      .find((upload) => upload.file.endsWith(".pbtxt"))?.content;
    if (text === undefined) return [];
    const file = join(project, "model_repository", model, "configs", `${variant}.pbtxt`);
    const repositoryText = readFileSync(file, "utf8");
    // the prefix of cached engines depends on the deployment
    const effective = (config: string) =>
      config
        .split("\n")
        .filter((line) => line.trim() !== "" && !/^\s*#|trt_engine_cache_prefix/.test(line))
        .join("\n");
    if (effective(text) === effective(repositoryText)) return [];
    return [{ model, variant, text: text.replace(/\$\{[^{}]*\}_?/g, "") }];
  });
}
