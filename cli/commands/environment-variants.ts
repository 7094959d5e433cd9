import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isNode, parseDocument } from "yaml";
import { UserError } from "../../contract/user-error.ts";
import { environmentFile } from "../../stacks/settings/environment-files.ts";
import {
  runSynth,
  type SynthesizedFile,
  environmentFile as synthesizedEnvironment,
} from "../shared/artefact.ts";
import { environmentsFolder } from "../shared/project.ts";

/** New value of a setting, such as `["tritonOnnx", "gpus"]`. */
export interface SettingChange {
  readonly path: readonly string[];
  readonly value: unknown;
}

/** Synthesizes environments with changed settings in a temporary folder. */
export interface EnvironmentVariants {
  /** Value of a setting in the environment's file, without defaults. */
  settingOf(environment: string, path: readonly string[]): unknown;
  /**
   * Synthesizes an environment with changed settings.
   *
   * @throws {UserError} if the settings are invalid
   */
  synthesize(environment: string, changes: readonly SettingChange[]): Promise<SynthesizedFile>;
  /** Removes the synthesized files. */
  remove(): void;
}

/** @param folder - Folder of the environments. */
export function openVariants(folder: string = environmentsFolder()): EnvironmentVariants {
  const scratch = mkdtempSync(join(tmpdir(), "clipstack-variants-"));
  const read = (environment: string) =>
    parseDocument(readFileSync(environmentFile(folder, environment), "utf8"));
  let count = 0;
  return {
    settingOf(environment, path) {
      if (!existsSync(environmentFile(folder, environment))) return undefined;
      const value: unknown = read(environment).getIn(path);
      return isNode(value) ? value.toJS(read(environment)) : value;
    },
    async synthesize(environment, changes) {
      const variant = join(scratch, String(++count));
      const [environments, outdir] = [`${variant}-environments`, `${variant}-out`];
      const document = read(environment);
      for (const { path, value } of changes) document.setIn(path, value);
      mkdirSync(environments);
      writeFileSync(environmentFile(environments, environment), document.toString());
      const errors = await runSynth(outdir, { environments });
      if (errors !== undefined) throw new UserError(errors);
      const file = synthesizedEnvironment(environment, outdir);
      const settings = changes.map(
        ({ path, value }) => `${path.join(".")}: ${JSON.stringify(value)}`,
      );
      return {
        ...file,
        displayPath: `${environment} with ${settings.join(", ")}`,
        editedByHand: false,
      };
    },
    remove: () => rmSync(scratch, { recursive: true, force: true }),
  };
}
