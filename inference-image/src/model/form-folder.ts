import { constants } from "node:fs";
import {
  access,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { z } from "zod";
import { formParts, rewriterVersion } from "./model-form.ts";
import { type OnnxModel, splitModel } from "./onnx-writer.ts";
import { abandonedAfterMs, makeFolder, ownSuffix, unlessCode } from "./publish-file.ts";

/** A folder that holds one form of a model: the ONNX file, the file of its weights, and what they are. */

const modelName = "model.onnx";
const weightsName = "weights.bin";
const factsName = "form.json";
const intactName = "intact.json";

const file = z.object({ name: z.string(), bytes: z.int(), crc32: z.int() });

const formFacts = z.object({
  /** Bumped when a field changes meaning. */
  schema: z.literal(1),
  /** Checksum of the model that it was made of: `sourceChecksum()`. */
  source: z.string(),
  precision: z.enum(["fp32", "int8"]),
  parts: z.array(z.enum(formParts)),
  /** How near its embeddings are to those of the file that it was made of, on synthetic images. */
  agreement: z.object({
    images: z.int(),
    minCosine: z.number(),
    meanCosine: z.number(),
    maxDifference: z.number(),
  }),
  files: z.array(file),
});
export type FormFacts = z.infer<typeof formFacts>;

export interface FormFolder {
  readonly modelPath: string;
  readonly facts: FormFacts;
}

export interface FormName {
  /** Checksum of the model that it is made of: `sourceChecksum()`. */
  readonly source: string;
  readonly precision: FormFacts["precision"];
  readonly operators: "onnxruntime" | "portable";
}

/** Name of the folder of a form: another source, form or rewriter is another folder. */
export function formFolderName({ source, precision, operators }: FormName): string {
  const suffix = operators === "portable" ? "-portable" : "";
  return `${source.slice(0, 16)}-${precision}${suffix}-r${rewriterVersion}`;
}

/** The form in a folder; `undefined` when it is not there, or its files are not as long as it says. */
export async function readForm(folder: string, source: string): Promise<FormFolder | undefined> {
  try {
    const facts = formFacts.parse(JSON.parse(await readFile(join(folder, factsName), "utf8")));
    if (facts.source !== source) return undefined;
    for (const { name, bytes } of facts.files) {
      if ((await stat(join(folder, name))).size !== bytes) return undefined;
    }
    return { modelPath: join(folder, modelName), facts };
  } catch {
    return undefined;
  }
}

/**
 * Whether the bytes of a form are those that were written. A file that has not been touched since it was found intact is not
 * read again: 351 MB take 0.2 s of two cores' time, while a model is opened that takes 0.4 s of one.
 */
export async function isIntact(folder: string, facts: FormFacts): Promise<boolean> {
  const intact = await intactFiles(folder);
  const stamps: Record<string, string> = {};
  for (const { name, crc32: expected } of facts.files) {
    const path = join(folder, name);
    const stamp = await stampOf(path);
    if (stamp === undefined || intact[name] !== stamp) {
      const checksum = await checksumOf(path).catch(() => undefined);
      if (checksum !== expected) return false;
    }
    if (stamp !== undefined) stamps[name] = stamp;
  }
  const known = facts.files.every(({ name }) => intact[name] === stamps[name]);
  // a folder that cannot be written is read at every start
  if (!known) await writeFile(join(folder, intactName), JSON.stringify(stamps)).catch(() => {});
  return true;
}

/** The files of a folder that were found intact, and the {@link stampOf} of each then; none where that is not known. */
async function intactFiles(folder: string): Promise<Readonly<Record<string, string>>> {
  try {
    return stampsByName.parse(JSON.parse(await readFile(join(folder, intactName), "utf8")));
  } catch {
    return {};
  }
}

const stampsByName = z.record(z.string(), z.string());

/** The clock of a file system may stand still for this long, in milliseconds, and writes within it look like one. */
const fileClockMs = 100;

/**
 * Which file it is, and when it was last changed, which nobody can set: another one after every write. `undefined` where
 * there is none, or it was changed just now.
 */
async function stampOf(path: string): Promise<string | undefined> {
  const found = await stat(path, { bigint: true }).catch(() => undefined);
  if (found === undefined || Date.now() - Number(found.ctimeMs) < fileClockMs) return undefined;
  return [found.dev, found.ino, found.size, found.ctimeNs].join(" ");
}

/** A form that is being written, under a name of its own. */
export interface FormDraft {
  readonly modelPath: string;
  write(model: OnnxModel): Promise<void>;
  /** Give the folder its name. What is there already is kept, unless `replace`. */
  publish(facts: Omit<FormFacts, "schema" | "files">, replace: boolean): Promise<FormFolder>;
  /** Remove what was not published. */
  discard(): Promise<void>;
}

/** @throws {Error} with a `code`, where the cache cannot be written */
export async function draftForm(cache: string, name: string): Promise<FormDraft> {
  await makeFolder(cache);
  await access(cache, constants.W_OK);
  await removeAbandonedDrafts(cache);
  const own = join(cache, `${name}.${ownSuffix()}`);
  const [part, replaced] = [`${own}.part`, `${own}.old.part`];
  await mkdir(part);
  let files: FormFacts["files"] = [];
  const put = async (fileName: string, pieces: Iterable<Uint8Array>) =>
    ({ name: fileName, ...(await writeFileOf(join(part, fileName), pieces)) }) as const;

  return {
    modelPath: join(part, modelName),
    async write(model) {
      const { model: graph, weights } = splitModel(model, weightsName);
      files = [await put(weightsName, weights()), await put(modelName, [graph])];
    },
    async publish(facts, replace) {
      const all: FormFacts = { schema: 1, ...facts, files };
      await writeFile(join(part, factsName), `${JSON.stringify(all, null, 2)}\n`);
      const folder = join(cache, name);
      if (replace || (await readForm(folder, facts.source)) === undefined) {
        await rename(folder, replaced).catch(unlessCode("ENOENT"));
        await rm(replaced, { recursive: true, force: true });
      }
      // another process may have put the same form there meanwhile
      await rename(part, folder).catch(unlessCode("ENOTEMPTY", "EEXIST"));
      return { modelPath: join(folder, modelName), facts: all };
    },
    discard: () => rm(part, { recursive: true, force: true }),
  };
}

/** How much is written and read at once. */
const blockBytes = 1024 * 1024;

async function writeFileOf(
  path: string,
  pieces: Iterable<Uint8Array>,
): Promise<{ readonly bytes: number; readonly crc32: number }> {
  // not overwritten: a runtime may have mapped what was tried before
  await rm(path, { force: true });
  const handle = await open(path, "wx");
  let [bytes, checksum] = [0, 0];
  try {
    for (const piece of pieces) {
      checksum = crc32(piece, checksum);
      for (let from = 0; from < piece.length; ) {
        from += (await handle.write(piece.subarray(from))).bytesWritten;
      }
      bytes += piece.length;
    }
    // what is found intact is believed to be on the disk
    await handle.sync();
  } finally {
    await handle.close();
  }
  return { bytes, crc32: checksum };
}

async function checksumOf(path: string): Promise<number> {
  const handle = await open(path, "r");
  try {
    const block = Buffer.alloc(blockBytes);
    let checksum = 0;
    for (;;) {
      const { bytesRead } = await handle.read(block);
      if (bytesRead === 0) return checksum;
      checksum = crc32(block.subarray(0, bytesRead), checksum);
    }
  } finally {
    await handle.close();
  }
}

/** Remove what a process that was killed left behind: 351 MB each. */
async function removeAbandonedDrafts(cache: string): Promise<void> {
  for (const name of await readdir(cache)) {
    if (!/^[0-9a-f]{16}-[a-z0-9-]+\.\d+\.\d+(\.old)?\.part$/.test(name)) continue;
    const part = join(cache, name);
    const writtenAt = (await stat(part).catch(() => undefined))?.mtimeMs ?? Date.now();
    if (Date.now() - writtenAt > abandonedAfterMs) await rm(part, { recursive: true, force: true });
  }
}
