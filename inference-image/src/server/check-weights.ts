import { readdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type ModelInfo, readSidecar, sha256Of, sidecarPath } from "../model/model-info.ts";
import { preparedFolder, prepareInto } from "../model/prepare.ts";
import { ownSuffix, sizeOf } from "../model/publish-file.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface CheckWeightsOptions {
  /** Folder with `model.onnx`: version 1 of a model. */
  readonly folder: string;
  /** What `model.onnx` must be, lower-case hexadecimal. */
  readonly sha256: string;
  /**
   * What the embed server will compute on: another form of the model. `none`: no embed server reads the folder, or it may not
   * be written; the file is checked and nothing is written.
   */
  readonly executionProvider: (typeof executionProviders)[number];
}

const executionProviders = ["cpu", "cuda", "none"] as const;

/** Of `check-weights …`. @throws {UsageError} */
export function readCheckWeightsArguments(args: readonly string[]): CheckWeightsOptions {
  return checkedBy(
    "check-weights",
    readArguments("check-weights", args, {
      required: ["folder", "sha256"],
      optional: ["execution-provider"],
    }),
  );
}

/** What the roles that check weights are told. @throws {UsageError} */
export function checkedBy(
  role: string,
  given: {
    readonly folder: string;
    readonly sha256: string;
    readonly "execution-provider"?: string;
  },
): CheckWeightsOptions {
  const { folder, sha256, "execution-provider": provider = "cpu" } = given;
  if (!/^[0-9a-f]{64}$/.test(sha256)) {
    throw new UsageError(
      `${role}: --sha256 must be 64 digits, lower-case hexadecimal, got '${sha256}'`,
    );
  }
  const executionProvider = executionProviders.find((it) => it === provider);
  if (executionProvider === undefined) {
    throw new UsageError(
      `${role}: --execution-provider must be cpu, cuda or none, got '${provider}'`,
    );
  }
  return { folder, sha256, executionProvider };
}

/** Name of the file with the weights. */
export const weightsFileName = "model.onnx";

/**
 * Make a folder of weights ready for servers that may not write to it: `model.onnx` is the file that was meant, its
 * sidecar says so (a server then computes no checksum), and the form that the embed server runs lies beside it. What an
 * earlier file left is removed.
 *
 * @returns What the folder has, in one line.
 * @throws {Error} one line, naming the file, the rule and what it is.
 */
export async function checkWeights(options: CheckWeightsOptions): Promise<string> {
  const { folder, sha256, executionProvider } = options;
  const file = join(folder, weightsFileName);
  const bytes = await sizeOf(file);
  if (bytes === undefined) throw new Error(`${file}: there is no such file`);
  const got = await sha256Of(file);
  if (got !== sha256) throw new Error(`${file}: sha256 must be ${sha256}, got ${got}`);
  const before = await readSidecar(file);
  const isOurs = before?.sha256 === sha256 && before.bytes === bytes;
  const weights = isOurs ? before.weights : "unknown";
  const what = `${file} is sha256 ${sha256.slice(0, 12)}, ${Math.round(bytes / 1e6)} MB, weights ${weights}`;
  if (executionProvider === "none") return what;
  const sidecar: ModelInfo = isOurs
    ? before
    : { schema: 1, sha256, bytes, source: "unknown", weights: "unknown" };
  await writeSidecar(file, sidecar);

  const prepared = join(folder, preparedFolder);
  const startedAt = performance.now();
  const { source, text } = await prepare(prepared, { modelPath: file, executionProvider });
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  const removed = await removeOthers(prepared, source);
  return [
    what,
    `${text}, ${seconds} s`,
    ...(removed === 0 ? [] : [`${removed} of earlier weights removed`]),
  ].join("; ");
}

type PrepareIntoOptions = Parameters<typeof prepareInto>[1];

/** A file that has no form is served as it is: the embed server says so, and so does this. */
async function prepare(
  prepared: string,
  options: PrepareIntoOptions,
): Promise<{ readonly source?: string; readonly text: string }> {
  try {
    const { facts } = await prepareInto(prepared, options);
    const cosine = facts.agreement.minCosine.toFixed(6);
    return {
      source: facts.source,
      text: `the form that the embed server runs lies beside it, cosine ${cosine}`,
    };
  } catch (error) {
    if (!(error instanceof Error && /: no form of precision /.test(error.message))) throw error;
    return { text: `it is served as it is: ${error.message}` };
  }
}

/** Remove the forms of files that were here before: each is as large as the weights. */
async function removeOthers(prepared: string, source: string | undefined): Promise<number> {
  const names = await readdir(prepared).catch(() => []);
  const others = names.filter(
    (name) => /^[0-9a-f]{16}-/.test(name) && name.slice(0, 16) !== source?.slice(0, 16),
  );
  for (const name of others) await rm(join(prepared, name), { recursive: true, force: true });
  return others.length;
}

/** Under another name first: one that is there already may be another user's. */
async function writeSidecar(file: string, sidecar: ModelInfo): Promise<void> {
  const folder = dirname(file);
  const part = `${sidecarPath(file)}.${ownSuffix()}.part`;
  try {
    await writeFile(part, `${JSON.stringify(sidecar, null, 2)}\n`);
    await rename(part, sidecarPath(file));
  } catch (error) {
    await rm(part, { force: true });
    const { code, message } = error as NodeJS.ErrnoException;
    const who = process.getuid?.() ?? "this user";
    throw new Error(
      code === "EACCES" || code === "EPERM"
        ? `${folder}: must be writable for user ${who}`
        : `${folder}: cannot be written: ${message}`,
      { cause: error },
    );
  }
}
