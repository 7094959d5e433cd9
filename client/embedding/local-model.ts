import { dirname, join } from "node:path";
import { textTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { LocalEmbedder, LocalTextEmbedder } from "../../inference/session/local-embedder.ts";
import { ClientError } from "./client-error.ts";
import { requireTower } from "./client-model.ts";
import { decodeImages } from "./decode-images.ts";
import { requirePackages, textPackages } from "./optional-packages.ts";

export interface LocalModelOptions {
  readonly spec: ModelSpec;
  /** ONNX file of the image tower. */
  readonly modelPath?: string | undefined;
  /** ONNX file of the text tower. */
  readonly textModelPath?: string | undefined;
  /**
   * File with the tokenizer's vocabulary, unless a package has it.
   *
   * @default - beside `textModelPath`
   */
  readonly vocabularyPath?: string | undefined;
}

/** Model in this process, loaded on first use. */
export interface LocalModel {
  readonly images: LocalTower<Uint8Array>;
  readonly texts: LocalTower<string>;
  close(): Promise<void>;
}

export interface LocalTower<Item> {
  /** @throws {ClientError} `model` or `settings` */
  load(): Promise<void>;
  /** @throws {ClientError} */
  embed(items: readonly Item[]): Promise<readonly Float32Array[]>;
}

export function createLocalModel(options: LocalModelOptions): LocalModel {
  const images = localTower(
    () => openImages(options),
    async (embedder, files: readonly Uint8Array[]) =>
      await embedder.embedPixels(await decodeImages(files, options.spec)),
  );
  const texts = localTower(
    () => openTexts(options),
    (embedder, items: readonly string[]) => embedder.embed(items),
  );
  return {
    images,
    texts,
    async close() {
      await Promise.all([images.close(), texts.close()]);
    },
  };
}

interface Closable {
  close(): Promise<void>;
}

function localTower<Embedder extends Closable, Item>(
  open: () => Promise<Embedder>,
  embed: (embedder: Embedder, items: readonly Item[]) => Promise<readonly Float32Array[]>,
): LocalTower<Item> & Closable {
  let opening: Promise<Embedder> | undefined;
  function load() {
    opening ??= open().catch((cause: unknown) => {
      // allows another attempt: the file may exist by then
      opening = undefined;
      throw modelError(cause);
    });
    return opening;
  }
  return {
    async load() {
      await load();
    },
    async embed(items) {
      const embedder = await load();
      try {
        return await embed(embedder, items);
      } catch (cause) {
        throw modelError(cause);
      }
    },
    async close() {
      await (await opening?.catch(() => undefined))?.close();
    },
  };
}

async function openImages({ spec, modelPath }: LocalModelOptions): Promise<LocalEmbedder> {
  requireTower(spec, "image");
  if (modelPath === undefined) throw new ClientError("settings", "modelPath is not set");
  requirePackages("embedding in this process", ["onnxruntime-node", "sharp"]);
  const { openLocalEmbedder } = await import("../../inference/session/local-embedder.ts");
  return await openLocalEmbedder({ spec, modelPath });
}

async function openTexts(options: LocalModelOptions): Promise<LocalTextEmbedder> {
  const { spec, textModelPath } = options;
  requireTower(spec, "text");
  if (textModelPath === undefined) throw new ClientError("settings", "textModelPath is not set");
  requirePackages("embedding texts in this process", ["onnxruntime-node", ...textPackages(spec)]);
  const { openLocalTextEmbedder } = await import("../../inference/session/local-embedder.ts");
  const vocabulary = vocabularyOf(spec, options);
  return await openLocalTextEmbedder({ spec, modelPath: textModelPath, vocabulary });
}

/** Returns the vocabulary of a text tower: the given file, or the file beside the ONNX file; undefined if neither path is known. */
export function vocabularyOf(
  spec: ModelSpec,
  { textModelPath, vocabularyPath }: Pick<LocalModelOptions, "textModelPath" | "vocabularyPath">,
): string | undefined {
  if (vocabularyPath !== undefined || textModelPath === undefined) return vocabularyPath;
  return join(dirname(textModelPath), textTowerOf(spec).input.tokenizer.file);
}

function modelError(cause: unknown): ClientError {
  if (cause instanceof ClientError) return cause;
  return new ClientError("model", (cause as Error).message.replace(/^\[\w+\] /, ""), { cause });
}
