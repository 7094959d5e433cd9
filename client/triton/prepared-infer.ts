import { Client, credentials } from "@grpc/grpc-js";
import type { Tensor } from "../../contract/tensor.ts";
import { channelOptionsOf } from "./grpc-transport.ts";
import type { CallOptions } from "./transport.ts";
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

/** @param target - `host:port`; connected with the first call. */
export function openPreparedInfer(target: string): PreparedInfer {
  const client = new Client(target, credentials.createInsecure(), channelOptionsOf());
  const { path, responseDeserialize } = methodOf("ModelInfer");
  return {
    send: (message, { timeoutMs, signal }) =>
      new Promise((resolve, reject) => {
        const call = client.makeUnaryRequest(
          path,
          (bytes: Buffer) => bytes,
          responseDeserialize,
          Buffer.from(message),
          { deadline: Date.now() + timeoutMs },
          (error, response) => {
            signal?.removeEventListener("abort", cancel);
            if (error !== null || response === undefined) {
              reject(new Error(error?.details ?? "no response"));
              return;
            }
            try {
              resolve(decodeGrpcResponse(response));
            } catch (cause) {
              reject(cause);
            }
          },
        );
        const cancel = () => call.cancel();
        signal?.addEventListener("abort", cancel, { once: true });
      }),
    close: () => client.close(),
  };
}
