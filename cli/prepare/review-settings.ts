import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { UserError } from "../../contract/user-error.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import { ownRules } from "../../review/ci/own-rules.ts";
import type { Waiver } from "../../review/rules/findings.ts";
import type { ReviewRule } from "../../review/rules/rule.ts";
import { rules, selectedRules } from "../../review/rules/rules.ts";
import { loadEnvironments } from "../../stacks/settings/environment-files.ts";
import { reviewFile } from "../../stacks/settings/review-settings.ts";
import { parseYaml, readText, validateSettings } from "../../stacks/settings/settings-file.ts";
import { environmentsFolder } from "../shared/project.ts";

const defaultFile = ".clipstack-review.yaml";

interface ReviewFiles {
  /**
   * Settings of the repository.
   *
   * @default - `.clipstack-review.yaml` in the current folder, if it exists
   */
  readonly settings?: string;
  /**
   * Folder with environment files.
   *
   * @default - that of the project; none in a folder that is no project
   */
  readonly environments?: string;
}

/** Settings that apply to a review. */
export interface ReviewSettings {
  readonly rules: readonly ReviewRule[];
  readonly ofStack: (name: string) => {
    readonly waivers: readonly Waiver[];
    readonly p99GoalMilliseconds?: number | undefined;
  };
}

/** Reads the settings of the repository with its own rules, and those of the environments. */
export async function readReviewSettings(files: ReviewFiles): Promise<ReviewSettings> {
  const file = files.settings ?? defaultFile;
  const isGiven = files.settings !== undefined || existsSync(file);
  const input = isGiven ? (parseYaml(file, readText(file)) ?? {}) : {};
  const settings = validateSettings(reviewFile, file, input);
  const modules = settings.modules.map((path) => resolve(dirname(file), path));
  const own = (await Promise.all(modules.map(ownRules))).flat();
  const ids = own.map(({ id }) => id);
  const repeated = ids.find((id, index) => ids.indexOf(id) !== index);
  if (repeated !== undefined) throw new UserError(`${file}: modules define ${repeated} twice`);
  const named = [...Object.keys(settings.rules), ...settings.waivers.map(({ rule }) => rule)];
  const unknown = named.find((id) => id.startsWith("own-") && !ids.includes(id));
  if (unknown !== undefined) throw new UserError(`${file}: no module defines ${unknown}`);

  const environments = environmentsIn(files.environments);
  return {
    rules: selectedRules([...rules, ...own], settings),
    ofStack: (name) => {
      const environment = environments.get(name);
      const others = settings.waivers.filter(({ stack }) =>
        stack === undefined ? environment === undefined : stack === name,
      );
      return {
        waivers: [...(environment?.waivers ?? []), ...others],
        p99GoalMilliseconds: (environment ?? settings).p99GoalMilliseconds,
      };
    },
  };
}

function environmentsIn(folder: string | undefined) {
  const isProject = existsSync(join(projectFolder, "cdktf.json"));
  if (folder === undefined && !(isProject && existsSync(environmentsFolder()))) return new Map();
  const { environments, rejected } = loadEnvironments(resolve(folder ?? environmentsFolder()));
  if (rejected.length > 0) {
    throw new UserError(rejected.flatMap(({ lines }) => lines).join("\n"));
  }
  return new Map(environments.map(({ name, settings }) => [name, settings.review]));
}
