import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isNode, parseDocument } from "yaml";
import { UserError } from "../../contract/user-error.ts";
import { environmentFile } from "../../stacks/environment-files.ts";
import {
  runSynth,
  type SynthesizedFile,
  environmentFile as synthesizedEnvironment,
} from "../artefact.ts";
import { environmentsFolder } from "../project.ts";

/** A setting and another value of it: `["tritonOnnx", "gpus"]`. */
export interface SettingChange {
  readonly path: readonly string[];
  readonly value: unknown;
}

/** Environments as they would be with other settings. Nothing of this checkout changes. */
export interface EnvironmentVariants {
  /** What an environment's settings say, defaults not filled in. */
  settingOf(environment: string, path: readonly string[]): unknown;
  /**
   * Synthesize an environment with some settings changed.
   *
   * @throws {UserError} what is wrong with the settings
   */
  synthesize(environment: string, changes: readonly SettingChange[]): Promise<SynthesizedFile>;
  /** Take everything away that was synthesized. */
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
      const [changed, outdir] = [`${variant}-environments`, `${variant}-out`];
      const document = read(environment);
      for (const { path, value } of changes) document.setIn(path, value);
      mkdirSync(changed);
      writeFileSync(environmentFile(changed, environment), document.toString());
      const errors = await runSynth(outdir, { environments: changed });
      if (errors !== undefined) throw new UserError(errors);
      const file = synthesizedEnvironment(environment, outdir);
      const shown = changes.map(({ path, value }) => `${path.join(".")}: ${JSON.stringify(value)}`);
      return {
        ...file,
        displayPath: `${environment} with ${shown.join(", ")}`,
        editedByHand: false,
      };
    },
    remove: () => rmSync(scratch, { recursive: true, force: true }),
  };
}
