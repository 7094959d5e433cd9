import type { LocalEmbedder } from "../inference/session/local-embedder.ts";
import { ClientError } from "./client-error.ts";
import { decodeImages } from "./decode-images.ts";
import { requirePackages } from "./optional-packages.ts";

/** Model in this process, loaded on first use. */
export interface LocalModel {
  /** @throws {ClientError} `model` or `settings` */
  load(): Promise<LocalEmbedder>;
  /** @throws {ClientError} */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

/** @param modelPath - ONNX file. */
export function createLocalModel(modelPath: string | undefined): LocalModel {
  let opening: Promise<LocalEmbedder> | undefined;
  function load() {
    opening ??= open(modelPath).catch((cause: unknown) => {
      // allows another attempt: the file may exist by then
      opening = undefined;
      throw modelError(cause);
    });
    return opening;
  }
  return {
    load,
    async embed(images) {
      const embedder = await load();
      try {
        return await embedder.embedPixels(await decodeImages(images));
      } catch (cause) {
        throw modelError(cause);
      }
    },
    async close() {
      await (await opening?.catch(() => undefined))?.close();
    },
  };
}

async function open(modelPath: string | undefined): Promise<LocalEmbedder> {
  if (modelPath === undefined) throw new ClientError("settings", "modelPath is not set");
  requirePackages("embedding in this process", ["onnxruntime-node", "sharp"]);
  const { openLocalEmbedder } = await import("../inference/session/local-embedder.ts");
  return await openLocalEmbedder({ modelPath });
}

function modelError(cause: unknown): ClientError {
  if (cause instanceof ClientError) return cause;
  return new ClientError("model", (cause as Error).message.replace(/^\[\w+\] /, ""), { cause });
}
