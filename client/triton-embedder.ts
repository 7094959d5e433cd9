import { openclipVitB32 } from "../contract/model-signature.ts";
import { embeddingsOf, InvalidEmbeddingError } from "../inference/session/embeddings.ts";
import { type PayloadFormat, payloadFormatOf } from "../inference/session/payload-format.ts";
import { InferenceError } from "../inference/session/types.ts";
import { ClientError, type ClientErrorCode } from "./client-error.ts";
import { decodeImages } from "./decode-images.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";
import { type Transport, TritonError } from "./triton/transport.ts";

export interface TritonEmbedderOptions {
  readonly transport: Transport;
  /** Name in the model repository. */
  readonly model: string;
  /** Deadline in milliseconds of one call, time in Triton's queue included. */
  readonly timeoutMs: number;
}

/**
 * Opens an embedder that uses Triton. It sends the payload format that the model accepts: the image files themselves, or pixels
 * decoded in this process. Closing it closes the transport.
 */
export function openTritonEmbedder({
  transport,
  model,
  timeoutMs,
}: TritonEmbedderOptions): RemoteEmbedder {
  const [{ name: output }] = openclipVitB32.outputs;
  /** Fetched on first use, and again after a rejection, because another version of the model may have been loaded. */
  let format: Promise<PayloadFormat> | undefined;

  async function resolveFormat(): Promise<PayloadFormat> {
    format ??= transport
      .modelMetadata(model, { timeoutMs })
      .then((metadata) =>
        payloadFormatOf(model, metadata, (problem) => new ClientError("rejected", problem)),
      );
    try {
      return await format;
    } catch (error) {
      format = undefined;
      throw error;
    }
  }

  return {
    target: transport.target,
    async embed(images) {
      const startedAt = performance.now();
      try {
        const { input: kind, tensor } = await resolveFormat();
        const input = tensor(kind === "encoded" ? images : await decodeImages(images));
        const outputs = await transport.infer(model, [input], {
          timeoutMs: Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedAt))),
          outputs: [output],
        });
        return embeddingsOf(
          outputs.find(({ name }) => name === output),
          images.length,
        );
      } catch (error) {
        if (error instanceof TritonError && error.code === "rejected") format = undefined;
        throw clientErrorOf(error, transport.target);
      }
    },
    close: () => transport.close(),
  };
}

/** Error of `openclip_preprocess` in an ensemble for an image that cannot be decoded. */
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
    const image = cause instanceof InvalidEmbeddingError ? cause.image : undefined;
    return new ClientError("protocol", `${target}: ${cause.problem}`, { cause, image });
  }
  return cause;
}
