import { existsSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import { evaluatePath } from "../../artefact/terraform-text.ts";
import type { Workload } from "../../artefact/workload.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import { project } from "../project.ts";
import type { ChangedConfig } from "./launch-spec-types.ts";
import { loadedModels, variantOf } from "./one-container.ts";

/** Mounted version folder of a served model, `/models/<model>/1`. */
export interface WeightsMount {
  /** Folder of the host. */
  readonly source: string;
  readonly target: string;
}

const versionFolder = new RegExp(`^${modelRepositoryMount}/[^/]+/1$`);

/**
 * Mounts of the weights; none if the image contains them.
 *
 * @throws {UserError} if only Terraform knows a folder.
 */
export function weightsMounts(artefact: Artefact, moduleFolder: string): readonly WeightsMount[] {
  const mounts = new Map<string, string>();
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

/** Model configurations that the settings change; the image contains those of the repository. */
export function changedConfigs(
  tritons: readonly Workload[],
  { containers }: Artefact,
): readonly ChangedConfig[] {
  return tritons.flatMap((workload) => {
    const variant = variantOf(workload) ?? "";
    return loadedModels(workload).flatMap((model) => changedConfig(model, variant, containers));
  });
}

function changedConfig(
  model: string,
  variant: string,
  containers: Artefact["containers"],
): readonly ChangedConfig[] {
  const text = containers
    .filter(({ declared }) => declared.command.includes(model))
    .flatMap(({ declared }) => declared.upload)
    .find((upload) => upload.file.endsWith(".pbtxt"))?.content;
  if (text === undefined) return [];
  const file = join(project, "model_repository", model, "configs", `${variant}.pbtxt`);
  // the repository contains the default model only
  const repositoryText = existsSync(file) ? readFileSync(file, "utf8") : "";
  // the prefix of cached engines depends on the deployment
  const effective = (config: string) =>
    config
      .split("\n")
      .filter((line) => line.trim() !== "" && !/^\s*#|trt_engine_cache_prefix/.test(line))
      .join("\n");
  if (effective(text) === effective(repositoryText)) return [];
  return [{ model, variant, text: text.replace(/\$\{[^{}]*\}_?/g, "") }];
}
