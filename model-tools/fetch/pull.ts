import { rm, statfs } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Dispatcher } from "undici";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { HubWeights } from "../../contract/models/trained-weights.ts";
import { type ModelInfo, modelInfo } from "../files/model-info.ts";
import {
  draftModelFile,
  FolderError,
  folderErrorOf,
  makeFolder,
  publishFile,
  sizeOf,
} from "../files/publish-file.ts";
import { modalityOf, structureOf } from "../graph/model-structure.ts";
import { readOnnx } from "../onnx/reader.ts";
import { onnxChunks } from "../onnx/writer.ts";
import { type DownloadOptions, downloadChecked } from "./download.ts";
import { openClipTower } from "./open-clip-weights.ts";
import { withFileLock } from "./pull-lock.ts";
import { Safetensors } from "./safetensors.ts";

/** ONNX file of a tower. */
export interface TowerFile {
  readonly modality: Modality;
  /** Path of the file. The folder is created; an existing file is replaced atomically. */
  readonly file: string;
}

export interface PullOptions
  extends Pick<DownloadOptions, "url" | "token" | "onProgress" | "onRetry" | "wait"> {
  readonly spec: ModelSpec;
  /** Safetensors of OpenCLIP with all towers, or the ONNX file of one tower. */
  readonly weights: HubWeights;
  /** Requested towers, at least one. The download lies beside the file of the first. */
  readonly towers: readonly TowerFile[];
  readonly dispatcher: Dispatcher;
  /** Called before the complete download is converted, which takes seconds. */
  readonly onConverting?: () => void;
}

export interface PulledModel {
  readonly towers: readonly (TowerFile & { readonly info: ModelInfo })[];
  /** SHA-256 of the downloaded file. */
  readonly sha256: string;
  readonly bytes: number;
  /** Bytes of an earlier, interrupted pull. */
  readonly resumed: number;
}

/** Maximum download size in bytes, twice the largest file of the catalogue, so that a server cannot fill the disk. */
const maxBytes = 4e9;

/** Returns the path of the download next to the file of a tower; git ignores it. */
export function pullPartPath(file: string): string {
  return join(dirname(file), `${basename(file, ".onnx")}.pull.onnx.part`);
}

/** Returns whether a file is the result of a pull of these weights. */
export async function isPulled(file: string, { sha256 }: HubWeights): Promise<boolean> {
  const info = await modelInfo(file).catch(() => undefined);
  return info?.source === "pulled" && (info.derivedFrom ?? info.sha256) === sha256;
}

/**
 * Downloads published weights, resuming an interrupted pull, verifies them, and writes the towers. Existing files are kept until then.
 * Only one process can pull a file at a time.
 *
 * @throws {Error} with one line: the URL without its query or the file, the rule, and the value.
 */
export async function pullModel(options: PullOptions): Promise<PulledModel> {
  const { weights, towers } = options;
  const { file } = towers[0]!;
  const part = pullPartPath(file);
  try {
    for (const tower of towers) await makeFolder(dirname(tower.file));
    return await withFileLock(part.replace(".pull.", ".pull-lock."), file, async () => {
      await checkRoom(options, part);
      const { sha256, resumed } = await downloadChecked({
        ...options,
        part,
        maxBytes,
        bytes: weights.bytes,
        sha256: weights.sha256,
        tokenVariable: "HF_TOKEN",
      });
      const bytes = (await sizeOf(part)) ?? 0;
      const written = await writeTowers(options, part, bytes);
      await rm(part, { force: true });
      return { towers: written, sha256, bytes, resumed };
    });
  } catch (error) {
    throw folderErrorOf(error, dirname(file), (await sizeOf(part)) ?? 0);
  }
}

/** Checks the disk space for the download and the converted files, which are not larger, before the download. */
async function checkRoom({ weights, towers }: PullOptions, part: string): Promise<void> {
  if (weights.bytes === undefined) return;
  const folder = dirname(towers[0]!.file);
  const { bavail, bsize } = await statfs(folder);
  const [free, partBytes] = [bavail * bsize, (await sizeOf(part)) ?? 0];
  const needed = weights.bytes * (weights.file.endsWith(".onnx") ? 1 : 2) - partBytes;
  if (free < needed) {
    const [needs, has] = [needed, free].map((bytes) => Math.ceil(bytes / 1e6));
    throw new FolderError(`${folder}: must have ${needs} MB of free space, got ${has} MB`);
  }
}

function writeTowers(
  options: PullOptions,
  part: string,
  bytes: number,
): Promise<PulledModel["towers"]> {
  return options.weights.file.endsWith(".onnx")
    ? keepOnnx(options, part, bytes)
    : convertSafetensors(options, part);
}

/** Facts of the manifest that all towers share. */
function manifestOf({ spec, weights }: PullOptions) {
  const origin = `${weights.repository}@${weights.revision} ${weights.file}`;
  return { schema: 1, source: "pulled", weights: weights.name, model: spec.name, origin } as const;
}

/** Moves a published ONNX file into place, if it fits the spec. */
async function keepOnnx(
  options: PullOptions,
  part: string,
  bytes: number,
): Promise<PulledModel["towers"]> {
  const { spec, weights, towers } = options;
  const onnx = readOnnx(part);
  const modality = modalityOf(onnx);
  const tower = towers.find((other) => other.modality === modality);
  const wanted = towers.map((other) => other.modality).join(" and ");
  if (tower === undefined || towers.length > 1) {
    throw new Error(
      `${weights.file} has only the ${modality} tower, requested: ${wanted}; rerun with --modality ${modality}`,
    );
  }
  const { misfits } = structureOf(spec, modality, onnx);
  if (misfits.length > 0)
    throw new Error(`${part}: does not fit ${spec.name}: ${misfits.join("; ")}`);
  const opset = onnx.opsets.get("");
  const info: ModelInfo = { ...manifestOf(options), sha256: weights.sha256, bytes, opset };
  await publishFile(part, tower.file, info);
  return [{ ...tower, info }];
}

/** Writes the towers of OpenCLIP's weights as ONNX files: all of them, or none. */
async function convertSafetensors(
  options: PullOptions,
  part: string,
): Promise<PulledModel["towers"]> {
  const { spec, weights, towers, onConverting } = options;
  onConverting?.();
  const drafts = await Promise.all(towers.map(({ file }) => draftModelFile(file)));
  try {
    const file = new Safetensors(part);
    const opsets: number[] = [];
    for (const [index, { modality }] of towers.entries()) {
      const graph = openClipTower(spec, modality, file);
      await drafts[index]!.write(onnxChunks(graph));
      opsets.push(graph.opset);
    }
    const written: PulledModel["towers"][number][] = [];
    for (const [index, tower] of towers.entries()) {
      const info = await drafts[index]!.publish((sha256, bytes) => ({
        ...manifestOf(options),
        ...{ sha256, bytes, opset: opsets[index], derivedFrom: weights.sha256 },
        parts: [`${tower.modality} tower`],
      }));
      written.push({ ...tower, info });
    }
    return written;
  } catch (error) {
    throw conversionError(part, error);
  } finally {
    await Promise.all(drafts.map((draft) => draft.discard()));
  }
}

/** Error of a conversion; errors of the file system are returned unchanged. */
function conversionError(part: string, error: unknown): unknown {
  const { message, code } = error as NodeJS.ErrnoException;
  if (code !== undefined && /^E[A-Z]+$/.test(code)) return error;
  return new Error(`${part}: is complete but cannot be converted: ${message}`, { cause: error });
}
