import { openclipVitB32 } from "../contract/model-signature.ts";
import { serverEnv } from "../contract/server-env.ts";
import { imageTensor } from "../engine/image-tensor.ts";
import { embeddingsOf } from "../engine/local-embedder.ts";
import { ImageError, preprocess } from "../engine/preprocess.ts";
import { EngineError } from "../engine/types.ts";
import { type Transport, TritonError } from "../triton/transport.ts";
import { ClientError, type ClientErrorCode } from "./client-error.ts";
import type { Remote } from "./remote.ts";

export interface TritonRemoteOptions {
  readonly transport: Transport;
  /** Name in the model repository. */
  readonly model: string;
  /** For one request, time in Triton's queue included. */
  readonly timeoutMs: number;
}

/** A Triton: images are decoded and prepared here, tensors go out. Closes the transport with it. */
export function openTritonRemote({ transport, model, timeoutMs }: TritonRemoteOptions): Remote {
  const [{ name: output }] = openclipVitB32.outputs;
  const { MAX_IMAGE_PIXELS: maxPixels } = serverEnv.parse({});

  return {
    target: transport.target,
    async embed(images) {
      try {
        const pixels = await Promise.all(
          images.map((image, i) =>
            preprocess(image, { maxPixels }).catch((cause: unknown) => {
              if (!(cause instanceof ImageError)) throw cause;
              throw new ClientError("image", `image ${i} ${cause.message}`, { cause, image: i });
            }),
          ),
        );
        const outputs = await transport.infer(model, [imageTensor(pixels)], {
          timeoutMs,
          outputs: [output],
        });
        return embeddingsOf(
          outputs.find(({ name }) => name === output),
          images.length,
        );
      } catch (error) {
        throw clientErrorOf(error, transport.target);
      }
    },
    close: () => transport.close(),
  };
}

const codes: Readonly<Record<TritonError["code"], ClientErrorCode>> = {
  timeout: "timeout",
  unavailable: "unavailable",
  rejected: "rejected",
  protocol: "protocol",
  cancelled: "closed",
};

function clientErrorOf(cause: unknown, target: string): unknown {
  if (cause instanceof TritonError) {
    return new ClientError(codes[cause.code], withoutCode(cause), { cause });
  }
  if (cause instanceof EngineError) {
    return new ClientError("protocol", `${target}: ${withoutCode(cause)}`, { cause });
  }
  return cause;
}

/** The text after `[code] `. */
function withoutCode(error: TritonError | EngineError): string {
  return error.message.replace(`[${error.code}] `, "");
}
