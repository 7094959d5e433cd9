import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { isAbsolute, join, relative, resolve } from "node:path";
import { execa } from "execa";
import { z } from "zod";
import { needsHelm, readEnvironment } from "../artefact/artefact.ts";
import { helmMissing, isHelmInstalled } from "../artefact/helm-template.ts";
import { UserError } from "../contract/user-error.ts";
import { project } from "./project.ts";

/** What was synthesized, as the commands read it: never the settings, so that an edited file is what counts. */

/** One synthesized environment. */
export interface ArtefactFile {
  /** Of the environment. */
  readonly name: string;
  readonly file: string;
  /** The path as a person would type it here. */
  readonly shown: string;
  /** It is not what the last synth wrote. */
  readonly editedByHand: boolean;
}

/** Folder of what is synthesized: the given one, or CDKTF_OUTDIR, or `cdktf.out` of this checkout. */
export function outputFolder(given?: string): string {
  return resolve(project, given ?? process.env.CDKTF_OUTDIR ?? "cdktf.out");
}

/** `cdktf.out/clipstack.json`: what the last synth wrote. */
const synthManifest = z.object({
  schema: z.literal(1),
  stacks: z.record(z.string(), z.object({ file: z.string(), sha256: z.string() })),
});

function readManifest(outdir: string): z.infer<typeof synthManifest> | undefined {
  const file = join(outdir, "clipstack.json");
  if (!existsSync(file)) return undefined;
  try {
    return synthManifest.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    return undefined;
  }
}

/** Names of the asked environments, or of all, whose file is not what the last synth wrote. */
function editedByHand(asked: readonly string[], outdir: string): readonly string[] {
  const stacks = readManifest(outdir)?.stacks ?? {};
  return Object.entries(stacks)
    .filter(([name]) => asked.length === 0 || asked.includes(name))
    .filter(([, { file, sha256 }]) => {
      const path = join(outdir, file);
      return (
        existsSync(path) && createHash("sha256").update(readFileSync(path)).digest("hex") !== sha256
      );
    })
    .map(([name]) => name);
}

export interface SynthesizeEvents {
  /** What a person should know and nothing else says. */
  readonly onNotice: (line: string) => void;
  /** Called before it starts, when it does. */
  readonly onSynthesize: () => void;
  /**
   * Whether an error in any environment is fatal.
   *
   * @default false - only errors of the named environments are
   */
  readonly strict?: boolean;
}

/**
 * Synthesizes into `outdir`, unless the file of a named environment was edited by hand since the last time.
 *
 * @param names - Environments that the command needs; empty: all.
 * @throws {UserError} with the errors of the settings if a needed environment has errors. Errors of other environments are
 *   a notice.
 */
export async function synthesizeUnlessEdited(
  asked: readonly string[],
  outdir: string,
  { onNotice, onSynthesize, strict = false }: SynthesizeEvents,
): Promise<void> {
  const edited = editedByHand(asked, outdir);
  if (edited.length > 0) {
    onNotice(
      `${edited.join(", ")}: cdk.tf.json was edited after it was synthesized; nothing is synthesized, what lies there is taken (npm run synth writes it anew)`,
    );
    return;
  }
  onSynthesize();
  const errors = await runSynth(outdir);
  if (errors === undefined) return;
  const written = readManifest(outdir)?.stacks ?? {};
  if (strict || asked.length === 0 || asked.some((name) => written[name] === undefined)) {
    throw new UserError(errors);
  }
  onNotice(errors);
}

interface SynthOptions {
  /** @default - this checkout */
  readonly checkout?: string;
  /**
   * Folder of the environments; `own`: that of the checkout.
   *
   * @default - CLIPSTACK_ENVIRONMENTS_DIR, otherwise that of the checkout
   */
  readonly environments?: string;
  readonly signal?: AbortSignal;
}

/**
 * Synthesizes all valid environments of a checkout in a separate process.
 *
 * @returns Errors of the others, one per line; undefined if all are valid.
 */
export async function runSynth(
  outdir: string,
  { checkout = project, environments, signal }: SynthOptions = {},
): Promise<string | undefined> {
  const { exitCode, stderr } = await execa(
    process.execPath,
    ["--import", import.meta.resolve("tsx"), "stacks/main.ts"],
    {
      cwd: checkout,
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
    },
  );
  return exitCode === 0 ? undefined : stderr.trim() || "synthesis failed";
}

/**
 * The synthesized files of the asked environments, or of all.
 *
 * @throws {UserError} for a name that is none, or when nothing is synthesized.
 */
export function environmentFiles(
  asked: readonly string[],
  outdir: string,
): readonly ArtefactFile[] {
  const shown = (path: string) => {
    const inside = relative("", path);
    return inside.startsWith("..") || isAbsolute(inside) ? path : inside;
  };
  const manifest = readManifest(outdir);
  if (manifest === undefined) {
    throw new UserError(`${shown(outdir)} holds no synthesized environment: npm run synth`);
  }
  const known = Object.keys(manifest.stacks);
  const edited = editedByHand(asked, outdir);
  return (asked.length === 0 ? known : [...new Set(asked)]).map((name) => {
    const stack = manifest.stacks[name];
    if (stack === undefined) {
      throw new UserError(`environment must be one of ${known.join(", ")}, got '${name}'`);
    }
    const file = join(outdir, stack.file);
    return { name, file, shown: shown(file), editedByHand: edited.includes(name) };
  });
}

/** The synthesized file of one environment; as {@link environmentFiles}. */
export function environmentFile(name: string, outdir: string = outputFolder()): ArtefactFile {
  return environmentFiles([name], outdir)[0]!;
}

/** Synthesizes one environment if asked to, with notices on stderr. As {@link synthesizeUnlessEdited}. */
export async function synthesizedFile(name: string, synth: boolean): Promise<ArtefactFile> {
  if (synth) {
    await synthesizeUnlessEdited([name], outputFolder(), {
      onNotice: (line) => console.error(`clipstack: ${line}`),
      onSynthesize: () => {},
    });
  }
  return environmentFile(name);
}

/**
 * Of some environments those that can be read here: one that is made of the chart takes helm.
 *
 * @throws {UserError} when one that was asked for by name, or every one, cannot be.
 */
export function readableFiles(
  asked: readonly string[],
  files: readonly ArtefactFile[],
  onNotice: (line: string) => void,
): readonly ArtefactFile[] {
  const ofChart = files.filter(({ file, shown }) => needsHelm(readEnvironment(file, shown)));
  if (ofChart.length === 0 || isHelmInstalled()) return files;
  const readable = files.filter((file) => !ofChart.includes(file));
  const lines = ofChart.map(({ name }) => `${name}: ${helmMissing}`);
  if (asked.length > 0 || readable.length === 0) throw new UserError(lines.join("\n"));
  for (const line of lines) onNotice(`left out: ${line}`);
  return readable;
}
