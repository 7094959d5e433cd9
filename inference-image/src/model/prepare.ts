import { spawn } from "node:child_process";
import { homedir } from "node:os";
import { dirname, extname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { openclipVitB32 } from "../contract/model-signature.ts";
import type { ServerEnv } from "../contract/server-env.ts";
import {
  type FormFacts,
  type FormFolder,
  type FormName,
  formFolderName,
  isIntact,
  readForm,
} from "./form-folder.ts";
import { modelInfo } from "./model-info.ts";
import { type OnnxFile, readOnnx, tensorTypes } from "./onnx-reader.ts";
import type { FormAnswer, FormRequest } from "./prepare-process.ts";
import { sourceChecksum } from "./source-checksum.ts";

export interface PrepareOptions {
  /** The standard file: input `image` FP32 [N, 3, 224, 224], output `embedding` FP32 [N, 512]. */
  readonly modelPath: string;
  /** @default "fp32" */
  readonly precision?: ServerEnv["MODEL_PRECISION"];
  /** @default {@link defaultModelCache} */
  readonly cacheDir?: string;
  /** @default "cpu" */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  /** Take none that is not intact: where there is no other, make it anew. */
  readonly replace?: boolean;
  /** Called before a form is made: that takes some seconds. */
  readonly onMaking?: () => void;
}

/** The model in the form that the server runs fastest: its input is that of `openclip_vit_b32_u8`. */
export interface PreparedModel {
  readonly modelPath: string;
  /** The model where it could not be kept in a folder; `modelPath` is the original then. */
  readonly modelBytes?: Uint8Array<ArrayBuffer>;
  readonly precision: FormFacts["precision"];
  readonly parts: FormFacts["parts"];
  /** How near its embeddings are to those of the original. */
  readonly agreement: FormFacts["agreement"];
  /** Why it is in memory only. */
  readonly notKept?: string;
  /** Whether its files are what was written; reads all of them. */
  isIntact(): Promise<boolean>;
}

/** Name of the folder beside a model file that can hold its forms, made where the image or the repository is built. */
export const preparedFolder = "prepared";

/** `$XDG_CACHE_HOME/clipstack/models`, or `~/.cache/clipstack/models`. */
function defaultModelCache(): string {
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
  return join(cache, "clipstack", "models");
}

/**
 * The form of a model that the server opens: one that lies beside the model file (`prepared/`), one of the cache, or a new
 * one, made by a process of its own and put into the cache. Where the cache cannot be written, the form is in memory.
 * Safe to call from several processes at once.
 *
 * @throws {Error} one line, when the file cannot be read, is another model, or has no form that agrees with it.
 */
export async function prepareServerModel(options: PrepareOptions): Promise<PreparedModel> {
  const { modelPath, precision = "fp32", executionProvider = "cpu", replace = false } = options;
  if (precision === "int8" && executionProvider !== "cpu") {
    throw new Error(`MODEL_PRECISION int8 is for EXECUTION_PROVIDER cpu, got ${executionProvider}`);
  }
  const source = await sourceChecksum(modelPath, await modelInfo(modelPath));
  const name: FormName = { source, precision, operators: operatorsFor(executionProvider) };
  const cache = resolve(options.cacheDir ?? defaultModelCache());
  const beside = join(dirname(modelPath), preparedFolder);

  for (const folder of [beside, cache]) {
    const found = await readForm(join(folder, formFolderName(name)), source);
    if (found === undefined) continue;
    const form = fromFolder(found);
    if (!replace || (await form.isIntact())) return form;
  }
  checkSignature(readOnnx(modelPath));
  options.onMaking?.();
  const made = await runProcess({ ...name, modelPath, cache, replace });
  if (made.answer.kind === "made") {
    const found = await readForm(join(cache, formFolderName(name)), source);
    if (found === undefined) throw new Error(`${cache}: the model that was put there is gone`);
    return fromFolder(found);
  }
  if (made.answer.kind === "failed" && made.answer.unwritable) {
    return inMemory(await runProcess({ ...name, modelPath }), modelPath, made.answer.message);
  }
  throw new Error(messageOf(made.answer));
}

/** Make the form in a folder, for an image or a repository that is read-only later. */
export async function prepareInto(
  folder: string,
  options: Pick<PrepareOptions, "modelPath" | "precision" | "executionProvider">,
): Promise<FormFolder> {
  const { modelPath, precision = "fp32", executionProvider = "cpu" } = options;
  const source = await sourceChecksum(modelPath, await modelInfo(modelPath));
  const name: FormName = { source, precision, operators: operatorsFor(executionProvider) };
  const path = join(resolve(folder), formFolderName(name));
  const before = await readForm(path, source);
  if (before !== undefined && (await isIntact(path, before.facts))) return before;
  checkSignature(readOnnx(modelPath));
  const replace = before !== undefined;
  const { answer } = await runProcess({ ...name, modelPath, cache: resolve(folder), replace });
  const found = answer.kind === "made" ? await readForm(path, source) : undefined;
  if (found === undefined) throw new Error(messageOf(answer));
  return found;
}

/** ONNX Runtime's own operators are there on a CPU only. */
function operatorsFor(provider: ServerEnv["EXECUTION_PROVIDER"]): FormName["operators"] {
  return provider === "cpu" ? "onnxruntime" : "portable";
}

function fromFolder({ modelPath, facts }: FormFolder): PreparedModel {
  const { precision, parts, agreement } = facts;
  return {
    modelPath,
    precision,
    parts,
    agreement,
    isIntact: () => isIntact(dirname(modelPath), facts),
  };
}

function inMemory({ answer, bytes }: Made, modelPath: string, notKept: string): PreparedModel {
  if (answer.kind !== "bytes" || bytes === undefined) throw new Error(messageOf(answer));
  return { modelPath, modelBytes: bytes, ...answer.facts, notKept, isIntact: async () => true };
}

function messageOf(answer: FormAnswer): string {
  return answer.kind === "failed" ? answer.message : "the model was not made";
}

/** @throws {Error} when the file is not a standard image tower: nothing is made of another model */
function checkSignature(file: OnnxFile): void {
  const [expectedInput] = openclipVitB32.inputs;
  const [expectedOutput] = openclipVitB32.outputs;
  const shown = (name: string, dims: readonly (number | string)[]) =>
    `${name} [${dims.join(", ")}]`;
  const isFloat = [...file.inputs, ...file.outputs].every(
    ({ dataType }) => dataType === tensorTypes.float,
  );
  const got = [...file.inputs, ...file.outputs].map(({ name, dims }) => shown(name, dims.slice(1)));
  const expected = [expectedInput, expectedOutput].map(({ name, dims }) => shown(name, dims));
  // an output's shape may be left open
  const fits =
    got[0] === expected[0] && file.inputs.length === 1 && file.outputs[0]?.name === "embedding";
  if (!isFloat || !fits) {
    throw new Error(
      `${file.path}: must be FP32 ${expected.join(" -> ")}, got ${got.join(" -> ") || "nothing"}`,
    );
  }
}

interface Made {
  readonly answer: FormAnswer;
  readonly bytes?: Uint8Array<ArrayBuffer>;
}

/** `.ts`, or `.js` where this was compiled: the program beside it was too. */
const extension = extname(import.meta.url);
const program = fileURLToPath(new URL(`./prepare-process${extension}`, import.meta.url));

/** Run the process that makes a form, and read what it prints. */
async function runProcess(request: FormRequest): Promise<Made> {
  const child = spawn(process.execPath, [...loader(), program, JSON.stringify(request)], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let errors = "";
  child.stderr.on("data", (chunk: Buffer) => {
    errors = `${errors}${chunk.toString("utf8")}`.slice(-2_000);
  });
  const ended = new Promise<string>((done) => {
    child.once("error", ({ message }) => done(message));
    child.once("close", (code, signal) => done(`it ended with ${signal ?? `code ${code}`}`));
  });
  let head = Buffer.alloc(0);
  let answer: FormAnswer | undefined;
  let bytes: Uint8Array<ArrayBuffer> | undefined;
  let filled = 0;
  for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
    let rest = chunk;
    if (answer === undefined) {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf("\n");
      if (end < 0) continue;
      answer = JSON.parse(head.subarray(0, end).toString("utf8")) as FormAnswer;
      if (answer.kind === "bytes") bytes = new Uint8Array(answer.bytes);
      rest = head.subarray(end + 1);
    }
    bytes?.set(rest, filled);
    filled += rest.length;
  }
  const end = await ended;
  if (answer === undefined || (bytes !== undefined && filled !== bytes.length)) {
    const last = errors.trim().split("\n").at(-1);
    throw new Error(`the process that makes the model failed: ${last || end}`);
  }
  return { answer, bytes };
}

/** What makes Node read TypeScript, where it is installed; newer versions of Node do so by themselves. */
function loader(): readonly string[] {
  if (extension !== ".ts") return [];
  try {
    return ["--import", import.meta.resolve("tsx")];
  } catch {
    return [];
  }
}
