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
  /** For one request, time in Triton's queue included. */
  readonly timeoutMs: number;
}

/**
 * A Triton. What goes out is what the model takes: image files as they are, or images that are decoded and prepared here.
 * Closes the transport with it.
 */
export function openTritonEmbedder({
  transport,
  model,
  timeoutMs,
}: TritonEmbedderOptions): RemoteEmbedder {
  const [{ name: output }] = openclipVitB32.outputs;
  /** Asked for once; and again when the model was refused, for it may have been loaded anew. */
  let form: Promise<PayloadFormat> | undefined;

  async function learn(): Promise<PayloadFormat> {
    form ??= transport
      .modelMetadata(model, { timeoutMs })
      .then((metadata) =>
        payloadFormatOf(model, metadata, (problem) => new ClientError("rejected", problem)),
      );
    try {
      return await form;
    } catch (error) {
      form = undefined;
      throw error;
    }
  }

  return {
    target: transport.target,
    async embed(images) {
      const startedAt = performance.now();
      try {
        const { input: takes, tensor } = await learn();
        const input = tensor(takes === "encoded" ? images : await decodeImages(images));
        const outputs = await transport.infer(model, [input], {
          timeoutMs: Math.max(1, Math.ceil(timeoutMs - (performance.now() - startedAt))),
          outputs: [output],
        });
        return embeddingsOf(
          outputs.find(({ name }) => name === output),
          images.length,
        );
      } catch (error) {
        if (error instanceof TritonError && error.code === "rejected") form = undefined;
        throw clientErrorOf(error, transport.target);
      }
    },
    close: () => transport.close(),
  };
}

/** What an ensemble says of an image that it cannot read, as `openclip_preprocess` words it. */
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
