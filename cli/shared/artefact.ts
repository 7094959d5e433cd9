import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { execa } from "execa";
import { z } from "zod";
import { needsHelm, readEnvironment } from "../../artefact/artefact.ts";
import { helmMissing, isHelmInstalled } from "../../artefact/helm-template.ts";
import { UserError } from "../../contract/user-error.ts";
import { nodeProgram, projectFolder } from "../../model-tools/files/folders.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";

/** Synthesized environments. Commands read these files and never the settings, so that edits by hand take effect. */

/** Synthesized file of one environment. */
export interface SynthesizedFile {
  /** Name of the environment. */
  readonly name: string;
  readonly file: string;
  /** Path relative to the working directory, for messages. */
  readonly displayPath: string;
  /** Whether the file differs from the output of the last synthesis. */
  readonly editedByHand: boolean;
}

/** Output folder of synthesis: CDKTF_OUTDIR, otherwise `cdktf.out` of the project. */
export function outputFolder(): string {
  return resolve(projectFolder, process.env.CDKTF_OUTDIR ?? "cdktf.out");
}

/** `cdktf.out/clipstack.json`: files that the last synthesis wrote. */
const synthManifest = z.object({
  schema: z.literal(1),
  stacks: z.record(z.string(), z.object({ file: z.string(), sha256: z.string() })),
});

function readManifest(): z.infer<typeof synthManifest> | undefined {
  const file = join(outputFolder(), "clipstack.json");
  if (!existsSync(file)) return undefined;
  try {
    return synthManifest.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    return undefined;
  }
}

/** Returns the environments of `names`, or of all, whose synthesized files were edited after the last synthesis. */
function editedByHand(names: readonly string[]): readonly string[] {
  const stacks = readManifest()?.stacks ?? {};
  return Object.entries(stacks)
    .filter(([name]) => names.length === 0 || names.includes(name))
    .filter(([, { file, sha256 }]) => {
      const path = join(outputFolder(), file);
      return (
        existsSync(path) && createHash("sha256").update(readFileSync(path)).digest("hex") !== sha256
      );
    })
    .map(([name]) => name);
}

export interface SynthesizeEvents {
  /** Receives notices that are printed nowhere else. */
  readonly onNotice: (line: string) => void;
  /** Called before synthesis starts; not called if it is skipped. */
  readonly onSynthesize: () => void;
  /**
   * Whether an error in any environment is fatal.
   *
   * @default false - only errors of the named environments are
   */
  readonly strict?: boolean;
}

/**
 * Synthesizes, unless the file of a named environment was edited by hand since the last time.
 *
 * @param names - Environments that the command needs; empty: all.
 */
export async function synthesizeUnlessEdited(
  names: readonly string[],
  { onNotice, onSynthesize, strict = false }: SynthesizeEvents,
): Promise<void> {
  const edited = editedByHand(names);
  if (edited.length > 0) {
    onNotice(
      `${edited.join(", ")}: cdk.tf.json was edited by hand; using the existing files (npx clipstack synth overwrites them)`,
    );
    return;
  }
  onSynthesize();
  const errors = await runSynth(outputFolder());
  if (errors === undefined) return;
  const written = readManifest()?.stacks ?? {};
  if (strict || names.length === 0 || names.some((name) => written[name] === undefined)) {
    throw new UserError(errors);
  }
  onNotice(errors);
}

interface SynthOptions {
  /** @default - this package, run in the project */
  readonly checkout?: string;
  /**
   * Folder of the environments; `own`: that of the checkout or project.
   *
   * @default - CLIPSTACK_ENVIRONMENTS_DIR, otherwise `own`
   */
  readonly environments?: string;
  readonly signal?: AbortSignal;
}

/**
 * Synthesizes all valid environments in a separate process.
 *
 * @returns Errors of the others, one per line; undefined if all are valid.
 */
export async function runSynth(
  outdir: string,
  { checkout, environments, signal }: SynthOptions = {},
): Promise<string | undefined> {
  const { exitCode, stderr } = await execa(process.execPath, nodeProgram("stacks/main", checkout), {
    cwd: checkout ?? projectFolder,
    env: {
      CDKTF_OUTDIR: outdir,
      ...(environments !== undefined && {
        CLIPSTACK_ENVIRONMENTS_DIR: environments === "own" ? undefined : environments,
        CLIPSTACK_SETTINGS_DIR: undefined,
      }),
    },
    stdin: "ignore",
    reject: false,
    cancelSignal: signal,
  });
  return exitCode === 0 ? undefined : stderr.trim() || "synthesis failed";
}

/**
 * Synthesized files of environments.
 *
 * @param names - Environments; empty: all.
 */
export function environmentFiles(names: readonly string[]): readonly SynthesizedFile[] {
  const outdir = outputFolder();
  const manifest = readManifest();
  if (manifest === undefined) {
    throw new UserError(
      `${displayPath(outdir)} contains no synthesized environment: npx clipstack synth`,
    );
  }
  const known = Object.keys(manifest.stacks);
  const edited = editedByHand(names);
  return (names.length === 0 ? known : [...new Set(names)]).map((name) => {
    const stack = manifest.stacks[name];
    if (stack === undefined) {
      throw new UserError(`environment must be one of ${known.join(", ")}, got '${name}'`);
    }
    const file = join(outdir, stack.file);
    return { name, file, displayPath: displayPath(file), editedByHand: edited.includes(name) };
  });
}

/** Synthesized file of one environment; see {@link environmentFiles}. */
export function environmentFile(name: string): SynthesizedFile {
  return environmentFiles([name])[0]!;
}

/** Synthesizes one environment unless `synth` is false, with notices on stderr; see {@link synthesizeUnlessEdited}. */
export async function synthesizedFile(name: string, synth: boolean): Promise<SynthesizedFile> {
  if (synth) {
    await synthesizeUnlessEdited([name], {
      onNotice: (line) => console.error(`clipstack: ${line}`),
      onSynthesize: () => {},
    });
  }
  return environmentFile(name);
}

/**
 * Environments that can be read on this machine: those deployed with the chart require helm.
 *
 * @param names - Environments named on the command line; empty: all.
 */
export function filesWithHelm(
  names: readonly string[],
  files: readonly SynthesizedFile[],
  onNotice: (line: string) => void,
): readonly SynthesizedFile[] {
  const ofChart = files.filter(({ file, displayPath }) =>
    needsHelm(readEnvironment(file, displayPath)),
  );
  if (ofChart.length === 0 || isHelmInstalled()) return files;
  const readable = files.filter((file) => !ofChart.includes(file));
  const lines = ofChart.map(({ name }) => `${name}: ${helmMissing}`);
  if (names.length > 0 || readable.length === 0) throw new UserError(lines.join("\n"));
  for (const line of lines) onNotice(`skipped: ${line}`);
  return readable;
}
