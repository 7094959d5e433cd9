import type { Tensor } from "../../contract/tensor.ts";
import { abortedAfter } from "./deadline.ts";
import type { CallOptions } from "./transport.ts";
import { UnaryChannel } from "./unary-channel.ts";
import { decodeGrpcResponse, methodOf } from "./wire-grpc.ts";

/** Sends encoded `ModelInferRequest` messages. */
export interface PreparedInfer {
  /**
   * @param message - Encoded message, without its frame.
   * @throws {Error}
   */
  send(message: Uint8Array, options: CallOptions): Promise<readonly Tensor[]>;
  close(): void;
}

/** @param target - `host:port` or `https://host:port`; connected with the first call. */
export function openPreparedInfer(target: string): PreparedInfer {
  const channel = new UnaryChannel({ target, metadata: {} });
  const { path, responseDeserialize } = methodOf("ModelInfer");
  return {
    async send(message, { timeoutMs, signal }) {
      const deadline = abortedAfter(timeoutMs);
      const response = await channel.call(path, [message], {
        timeoutMs,
        signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
      });
      return decodeGrpcResponse(responseDeserialize(response));
    },
    close: () => channel.close(),
  };
}
