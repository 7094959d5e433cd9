import { statfs } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Dispatcher } from "undici";
import { type DownloadOptions, downloadChecked } from "./download.ts";
import { discardPart } from "./download-part.ts";
import { type ModelInfo, modelInfo } from "./model-info.ts";
import type { LockedModel } from "./model-lock.ts";
import { readOnnx } from "./onnx-reader.ts";
import {
  draftModelFile,
  FolderError,
  folderErrorOf,
  makeFolder,
  publishFile,
  sizeOf,
} from "./publish-file.ts";
import { withFileLock } from "./pull-lock.ts";
import { isStandard, type StandardModel, writeStandardModel } from "./standard-model.ts";

/** Pinned file; without checksum and size, the first download is trusted. */
export type PinnedModel = Omit<LockedModel, "sha256" | "bytes" | "licence"> &
  Partial<Pick<LockedModel, "sha256" | "bytes">>;

export interface PullOptions
  extends Pick<DownloadOptions, "url" | "token" | "onProgress" | "onRetry" | "wait"> {
  readonly model: PinnedModel;
  /** Output path. Its folder is created; an existing file is replaced atomically. */
  readonly file: string;
  /** `standard`: converted to the signature of `openclip_vit_b32`. `published`: the downloaded bytes. */
  readonly variant: "standard" | "published";
  readonly dispatcher: Dispatcher;
  /** Called before the complete download is converted to the standard file, which takes seconds. */
  readonly onConverting?: () => void;
}

export interface PulledModel {
  readonly info: ModelInfo;
  /** SHA-256 of the downloaded file. */
  readonly sha256: string;
  readonly bytes: number;
  /** Bytes of an earlier, interrupted pull. */
  readonly resumed: number;
  /** Comparison of the standard file with the download, if they differ. */
  readonly agreement?: StandardModel["agreement"];
}

/** Maximum download size in bytes, ten times the expected file, so that a server cannot fill the disk. */
const maxBytes = 4e9;

/** Returns the path of the download next to the file; git ignores it. */
export function pullPartPath(file: string): string {
  return join(dirname(file), `${basename(file, ".onnx")}.pull.onnx.part`);
}

/** Returns whether a file is the result of a pull of this model. */
export async function isPulled(
  file: string,
  model: PinnedModel,
  variant: PullOptions["variant"],
): Promise<boolean> {
  const info = await modelInfo(file).catch(() => undefined);
  if (info === undefined || model.sha256 === undefined) return false;
  if (info.sha256 === model.sha256) {
    return variant === "published" || info.source === "pulled";
  }
  return variant === "standard" && info.source === "pulled" && info.derivedFrom === model.sha256;
}

/**
 * Downloads a published model, resuming an interrupted pull, verifies it, converts it to the signature of `openclip_vit_b32` and
 * replaces the file. The existing file is kept until then. Only one process can pull a file at a time.
 *
 * @throws {Error} with one line: the URL without its query or the file, the rule, and the value.
 */
export async function pullModel(options: PullOptions): Promise<PulledModel> {
  const { file } = options;
  const part = pullPartPath(file);
  try {
    await makeFolder(dirname(file));
    return await withFileLock(part.replace(".pull.", ".pull-lock."), file, async () => {
      await checkRoom(options, part);
      const { bytes, sha256: expected } = options.model;
      const { sha256, resumed } = await downloadChecked({
        ...options,
        part,
        maxBytes,
        bytes,
        sha256: expected,
        tokenVariable: "HF_TOKEN",
      });
      const pulled = await putInPlace(options, part, sha256);
      await discardPart(part);
      return { ...pulled, sha256, resumed };
    });
  } catch (error) {
    throw folderErrorOf(error, dirname(file), (await sizeOf(part)) ?? 0);
  }
}

/** Checks the disk space for the download and the converted file before the download. */
async function checkRoom({ model, file, variant }: PullOptions, part: string): Promise<void> {
  if (model.bytes === undefined) return;
  const folder = dirname(file);
  const { bavail, bsize } = await statfs(folder);
  const [free, partBytes] = [bavail * bsize, (await sizeOf(part)) ?? 0];
  const needed = model.bytes * (variant === "standard" ? 2 : 1) - partBytes;
  if (free < needed) {
    const [needs, has] = [needed, free].map((bytes) => Math.ceil(bytes / 1e6));
    throw new FolderError(`${folder}: must have ${needs} MB of free space, got ${has} MB`);
  }
}

async function putInPlace(
  { model, file, variant, onConverting }: PullOptions,
  part: string,
  sha256: string,
): Promise<Pick<PulledModel, "info" | "bytes" | "agreement">> {
  const bytes = (await sizeOf(part)) ?? 0;
  const published = readOnnx(part);
  const origin = `${model.repository}@${model.revision} ${model.path}`;
  const known = { schema: 1, source: "pulled", weights: model.weights, origin } as const;
  if (variant === "published" || isStandard(published)) {
    const opset = published.opsets.get("");
    const info: ModelInfo = { ...known, sha256, bytes, opset };
    await publishFile(part, file, info);
    return { info, bytes };
  }
  onConverting?.();
  const draft = await draftModelFile(file);
  try {
    const { changes, opset, agreement } = await writeStandardModel(part, draft);
    const info = await draft.publish((ownSha256, ownBytes) => ({
      ...known,
      sha256: ownSha256,
      bytes: ownBytes,
      opset,
      derivedFrom: sha256,
      parts: [...changes],
    }));
    return { info, bytes, agreement };
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    if (code !== undefined && /^E[A-Z]+$/.test(code)) throw error;
    throw new Error(
      `${part}: is complete but cannot be converted to the standard graph: ${message}`,
      {
        cause: error,
      },
    );
  } finally {
    await draft.discard();
  }
}
