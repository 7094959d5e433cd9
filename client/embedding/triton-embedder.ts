import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { maxImagePixels } from "../../contract/preprocess-parameters.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { embeddingsOf, InvalidEmbeddingError } from "../../inference/session/embeddings.ts";
import { payloadFormatOf } from "../../inference/session/payload-format.ts";
import { tokenRows, tokenTensor } from "../../inference/session/token-tensor.ts";
import { InferenceError } from "../../inference/threads/inference-error.ts";
import { type Transport, TritonError } from "../triton/transport.ts";
import { ClientError, type ClientErrorCode } from "./client-error.ts";
import { type ClientModel, requiredSpec, requireTower } from "./client-model.ts";
import { decodeImages } from "./decode-images.ts";
import { vocabularyOf } from "./local-model.ts";
import { requirePackages, textPackages } from "./optional-packages.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";

export interface TritonEmbedderOptions {
  readonly transport: Transport;
  /**
   * Name of a model of the catalogue, or a spec.
   *
   * @default - OpenCLIP ViT-B/32
   */
  readonly model?: ClientModel | undefined;
  /**
   * Name of the image tower in the model repository. Its metadata determines the payload format.
   *
   * @default - the model kind with normalised images
   */
  readonly tritonModel?: string | undefined;
  /**
   * Name of the text tower in the model repository.
   *
   * @default - `<model>_text`
   */
  readonly tritonTextModel?: string | undefined;
  /** ONNX file of the local text tower, beside which the vocabulary lies by default. */
  readonly textModelPath?: string | undefined;
  /**
   * File with the tokenizer's vocabulary, for models whose vocabulary is not in a package.
   *
   * @default - beside `textModelPath`
   */
  readonly vocabularyPath?: string | undefined;
  /** Deadline in milliseconds of one call, time in Triton's queue included. */
  readonly timeoutMs: number;
}

/**
 * Opens an embedder that uses Triton. It sends the payload format that the model accepts: the image files themselves, pixels decoded
 * in this process, or token ids. Closing it closes the transport.
 *
 * @throws {ClientError} `settings` if the model is neither in the catalogue nor a spec
 */
export function openTritonEmbedder(options: TritonEmbedderOptions): RemoteEmbedder {
  const { transport, timeoutMs } = options;
  const spec = requiredSpec(options.model ?? defaultModel);
  const imageModel = options.tritonModel ?? tritonModelName(spec, "fp32");
  const textModel = options.tritonTextModel ?? tritonModelName(spec, "text");
  const rejected = (problem: string) => new ClientError("rejected", problem);
  /** Fetched on first use, and again after a rejection, because another version of the model may have been loaded. */
  const format = remembered(async () => {
    const metadata = await transport.modelMetadata(imageModel, { timeoutMs });
    return payloadFormatOf(spec, imageModel, metadata, rejected);
  });
  const tokenizer = remembered(async () => {
    requirePackages("embedding texts with Triton", textPackages(spec));
    const { openTokenizer } = await import("../../inference/text/tokenizer.ts");
    const { input } = textTowerOf(spec);
    const vocabulary = vocabularyOf(spec, options);
    if (input.tokenizer.kind !== "clip-bpe" && vocabulary === undefined) {
      const file = `'${input.tokenizer.file}' of ${spec.name}`;
      const problem = `vocabularyPath must be the path of ${file}, because texts for Triton are tokenized in this process`;
      throw new ClientError("settings", problem);
    }
    return await openTokenizer(input, vocabulary).catch((cause: Error) => {
      throw new ClientError("settings", cause.message, { cause });
    });
  });

  /** @param prepare - Returns the input. */
  async function infer(
    modality: Modality,
    model: string,
    prepare: () => Promise<Tensor>,
  ): Promise<readonly Float32Array[]> {
    requireTower(spec, modality);
    const { output } = modality === "image" ? imageTowerOf(spec) : textTowerOf(spec);
    const startedAt = performance.now();
    try {
      const input = await prepare();
      const outputs = await transport.infer(model, [input], {
        timeoutMs: Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedAt))),
        outputs: [output],
      });
      return embeddingsOf(
        outputs.find(({ name }) => name === output),
        { count: input.shape[0]!, width: spec.embedding.width, modality },
      );
    } catch (error) {
      if (error instanceof TritonError && error.code === "rejected") format.forget();
      throw clientErrorOf(error, transport.target);
    }
  }

  return {
    target: transport.target,
    embed: (images) =>
      infer("image", imageModel, async () => {
        const { input: kind, tensor } = await format.value();
        if (kind === "jpeg") await requireDaliFiles(images);
        return tensor(kind === "pixels" ? await decodeImages(images, spec) : images);
      }),
    embedText: (texts) =>
      infer("text", textModel, async () => {
        const encoded = (await tokenizer.value()).encode(texts);
        return tokenTensor(textTowerOf(spec), tokenRows(encoded));
      }),
    close: () => transport.close(),
  };
}

/** @throws {ClientError} `image` for a file that DALI cannot decode like the reference, which would fail its whole batch in Triton */
async function requireDaliFiles(images: readonly Uint8Array[]): Promise<void> {
  const { isForDali } = await import("../../inference/preprocess/dali-files.ts");
  const image = images.findIndex((file) => !isForDali(file, maxImagePixels));
  if (image < 0) return;
  const rule = `a complete JPEG with 8 bits per sample, grey or RGB, at most ${maxImagePixels} pixels`;
  throw new ClientError("image", `image ${image} must be ${rule}, because DALI decodes it`, {
    image,
  });
}

/** Value that is computed on first use, and again after a failure or `forget()`. */
function remembered<T>(compute: () => Promise<T>) {
  let value: Promise<T> | undefined;
  return {
    async value(): Promise<T> {
      value ??= compute();
      try {
        return await value;
      } catch (error) {
        value = undefined;
        throw error;
      }
    },
    forget(): void {
      value = undefined;
    },
  };
}

/** Error of `openclip_vit_b32_preprocess` in an ensemble for an image that cannot be decoded. */
const imageProblem = /\bin ensemble '[^']*', image (?<index>\d+) (?<problem>.*)$/s;

const codes: Readonly<Record<TritonError["code"], ClientErrorCode>> = {
  timeout: "timeout",
  unavailable: "unavailable",
  rejected: "rejected",
  protocol: "protocol",
  cancelled: "closed",
};

function clientErrorOf(cause: unknown, target: string): unknown {
  if (cause instanceof TritonError) {
    const { index, problem } = imageProblem.exec(cause.message)?.groups ?? {};
    if (cause.code === "rejected" && index !== undefined) {
      const image = Number(index);
      return new ClientError("image", `image ${image} ${problem}`, { cause, image });
    }
    return new ClientError(codes[cause.code], cause.problem, { cause });
  }
  if (cause instanceof InferenceError) {
    const item = cause instanceof InvalidEmbeddingError ? { [cause.modality]: cause.index } : {};
    return new ClientError("protocol", `${target}: ${cause.problem}`, { cause, ...item });
  }
  return cause;
}
