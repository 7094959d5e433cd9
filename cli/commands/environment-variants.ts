import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isNode, parseDocument } from "yaml";
import { UserError } from "../../contract/user-error.ts";
import { type ArtefactFile, environmentFile, runSynth } from "../artefact.ts";
import { project } from "../project.ts";

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
  synthesize(environment: string, changes: readonly SettingChange[]): Promise<ArtefactFile>;
  /** Take everything away that was synthesized. */
  remove(): void;
}

const suffix = ".settings.yaml";

/** @param settings - Folder of the settings: that of the environment, or of this checkout. */
export function openVariants(
  settings: string = process.env.CLIPSTACK_SETTINGS_DIR ?? join(project, "stacks"),
): EnvironmentVariants {
  const scratch = mkdtempSync(join(tmpdir(), "clipstack-variants-"));
  const read = (environment: string) =>
    parseDocument(readFileSync(join(settings, `${environment}${suffix}`), "utf8"));
  let count = 0;
  return {
    settingOf(environment, path) {
      const value: unknown = read(environment).getIn(path);
      return isNode(value) ? value.toJS(read(environment)) : value;
    },
    async synthesize(environment, changes) {
      const folder = join(scratch, String(++count));
      const [changed, outdir] = [`${folder}-settings`, `${folder}-out`];
      const document = read(environment);
      for (const { path, value } of changes) document.setIn(path, value);
      mkdirSync(changed);
      for (const name of readdirSync(settings).filter((it) => it.endsWith(suffix))) {
        copyFileSync(join(settings, name), join(changed, name));
      }
      writeFileSync(join(changed, `${environment}${suffix}`), document.toString());
      const mistakes = await runSynth(outdir, { settings: changed });
      if (mistakes !== undefined) throw new UserError(mistakes);
      const file = environmentFile(environment, outdir);
      const shown = changes.map(({ path, value }) => `${path.join(".")}: ${JSON.stringify(value)}`);
      return { ...file, shown: `${environment} with ${shown.join(", ")}`, editedByHand: false };
    },
    remove: () => rmSync(scratch, { recursive: true, force: true }),
  };
}
