import { once } from "node:events";
import { createServer, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { type InferenceMethods, methodOf } from "../../client/triton/wire-grpc.ts";
import {
  embeddingTensor,
  type ImagePayload,
  imageTensor,
  imageTowerOf,
} from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { TensorSpec } from "../../contract/tensor.ts";
import { type ModelKind, tritonModelName } from "../../contract/triton-models.ts";

/** Triton server that computes nothing: it responds to every inference with the same embeddings, to measure its clients. */
export interface NullTriton {
  /** `127.0.0.1:port` of its gRPC service. */
  readonly target: string;
  close(): Promise<void>;
}

/** Models of the image tower and their payload formats. */
export const nullTritonPayloads = {
  fp32: "fp32",
  u8: "uint8",
  jpeg: "jpeg",
} as const satisfies Partial<Record<ModelKind, ImagePayload>>;

/** HTTP/2 window in bytes, as large as that of a Triton server. With Node's default of 64 KiB, an FP32 image takes ten round trips. */
const windowBytes = 8 * 1024 * 1024;

type Method = "ModelReady" | "ModelMetadata" | "ModelConfig" | "ModelInfer";

/** Starts a Triton server that serves every payload format of an image tower on a free port of the loopback interface. */
export async function startNullTriton(spec: ModelSpec): Promise<NullTriton> {
  const sessions = new Set<ServerHttp2Session>();
  const models = new Models(spec);
  const server = createServer({ settings: { initialWindowSize: windowBytes } });
  server.on("session", (session) => {
    sessions.add(session);
    session.setLocalWindowSize(windowBytes);
    session.on("close", () => sessions.delete(session));
    session.on("error", () => {});
  });
  server.on("stream", (stream, headers) => {
    const method = String(headers[":path"]).split("/").at(-1);
    receive(stream, (message) => {
      if (method !== "ModelInfer") {
        respond(stream, models.response(method as Method, message));
        return;
      }
      const request = methodOf("ModelInfer").requestDeserialize(message);
      const items = Number(request.inputs[0]?.shape[0]);
      respond(stream, models.embeddings(request.model_name, items));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    target: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      for (const session of sessions) session.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Length of the prefix of a gRPC message: 1 byte for compression, 4 bytes for the length of the message. */
const prefixBytes = 5;

function receive(stream: ServerHttp2Stream, onMessage: (message: Buffer) => void): void {
  const chunks: Buffer[] = [];
  stream.on("error", () => {});
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("end", () => {
    const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    onMessage(body.subarray(prefixBytes));
  });
}

/** @param message - With its prefix; `undefined` for a method that is not implemented. */
function respond(stream: ServerHttp2Stream, message: Buffer | undefined): void {
  if (stream.destroyed) return;
  const status = message === undefined ? "12" : "0";
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": status }));
  stream.end(message);
}

/** Encoded responses of the models of one image tower. */
class Models {
  readonly #spec: ModelSpec;
  readonly #output: TensorSpec;
  readonly #embeddings = new Map<string, Buffer>();

  constructor(spec: ModelSpec) {
    this.#spec = spec;
    this.#output = embeddingTensor(spec, imageTowerOf(spec));
  }

  response(method: Method, message: Buffer): Buffer | undefined {
    const spec = this.#spec;
    switch (method) {
      case "ModelReady":
        return framed("ModelReady", { ready: true });
      case "ModelMetadata": {
        const { name } = methodOf("ModelMetadata").requestDeserialize(message);
        const found = Object.entries(nullTritonPayloads).find(
          ([modelKind]) => tritonModelName(spec, modelKind as ModelKind) === name,
        );
        if (found === undefined) return undefined;
        return framed("ModelMetadata", {
          name,
          versions: ["1"],
          platform: "null",
          inputs: [messageOf(imageTensor(imageTowerOf(spec), found[1]))],
          outputs: [messageOf(this.#output)],
        });
      }
      case "ModelConfig":
        return framed("ModelConfig", {
          config: {
            max_batch_size: spec.batching.maximum,
            instance_group: [{ count: 1, kind: "KIND_CPU" }],
          },
        });
      default:
        return undefined;
    }
  }

  /** Response with `items` equal embeddings of unit norm. */
  embeddings(model: string, items: number): Buffer {
    const key = `${model} ${items}`;
    let response = this.#embeddings.get(key);
    if (response === undefined) {
      const width = this.#output.dims[0]!;
      const values = new Float32Array(items * width).fill(1 / Math.sqrt(width));
      response = framed("ModelInfer", {
        model_name: model,
        model_version: "1",
        id: "",
        outputs: [{ name: this.#output.name, datatype: "FP32", shape: [items, width] }],
        raw_output_contents: [Buffer.from(values.buffer)],
      });
      this.#embeddings.set(key, response);
    }
    return response;
  }
}

function messageOf({ name, dataType, dims }: TensorSpec) {
  return { name, datatype: dataType, shape: [-1, ...dims] };
}

function framed<Name extends Method>(name: Name, response: InferenceMethods[Name]["response"]) {
  const message = methodOf(name).responseSerialize(response);
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}
