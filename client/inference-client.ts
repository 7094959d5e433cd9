import { maxImagesPerRequest } from "../contract/embed-api.ts";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { hostPorts } from "../contract/ports.ts";
import { ClientError } from "./client-error.ts";
import { openEmbedClient } from "./embed-client.ts";
import { embedWithFallback } from "./embed-with-fallback.ts";
import { createLocalModel } from "./local-model.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";
import { openGrpcTransport } from "./triton/grpc-transport.ts";
import { openHttpTransport } from "./triton/http-transport.ts";
import { openTritonEmbedder } from "./triton-embedder.ts";

export const clientBackends = ["embed", "triton", "triton_grpc"] as const;
/** Service and protocol: the embed API, or Triton over HTTP or gRPC. */
export type ClientBackend = (typeof clientBackends)[number];

export const clientModes = ["local", "remote", "auto"] as const;
/** `local` runs the model in this process; `remote` calls the service; `auto` falls back to the local model while the service is unavailable. */
export type ClientMode = (typeof clientModes)[number];

export interface InferenceClientOptions {
  /** @default "embed" */
  readonly backend?: ClientBackend;
  /** @default "auto" */
  readonly mode?: ClientMode;
  /**
   * `http://host:port` or `https://host:port` of the service.
   *
   * @default - the backend's default port on this machine
   */
  readonly serviceUrl?: string;
  /**
   * Bearer token for the embed server.
   *
   * @default - no authentication
   */
  readonly apiKey?: string;
  /**
   * `host:port` for the backend `triton_grpc`.
   *
   * @default - the host of `serviceUrl` and its port + 1
   */
  readonly tritonGrpcUrl?: string;
  /**
   * Name of the model in Triton's repository. Its metadata determines the payload format: the files themselves for
   * `openclip_vit_b32_jpeg`, uint8 pixels for `openclip_vit_b32_u8`, normalised float32 for `openclip_vit_b32`.
   *
   * @default "openclip_vit_b32"
   */
  readonly model?: string;
  /**
   * ONNX file of the local model, loaded on first use; with mode `local`, when the client is opened.
   *
   * @default - no local model: mode `local` fails, and mode `auto` has no fallback
   */
  readonly modelPath?: string;
  /**
   * Deadline in milliseconds of one request, which carries up to 32 images.
   *
   * @default 30000
   */
  readonly timeoutMs?: number;
  /**
   * Called the first time that the local model replaces the service, with the reason.
   *
   * @default - a warning on the console
   */
  readonly onFallback?: (reason: string) => void;
}

/** Computes embeddings of images, in a service or in this process. */
export interface InferenceClient {
  /**
   * @param images - Any number of JPEG, PNG or WebP files; more than 32 are split into several requests.
   * @returns One vector of 512 float32 with unit L2 norm per image, in the same order.
   * @throws {ClientError} and no other error; `image` is the index of the image that caused it
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  /** Closes the client after its outstanding requests have completed. */
  close(): Promise<void>;
}

const defaultTimeoutMs = 30_000;
/** Concurrent requests of one call: the images of the second are decoded and sent while the first is computed. */
const concurrentRequests = 2;

const defaultServiceUrls: Readonly<Record<ClientBackend, string>> = {
  embed: `http://127.0.0.1:${hostPorts.embed}`,
  triton: `http://127.0.0.1:${hostPorts.tritonOnnx.http}`,
  triton_grpc: `http://127.0.0.1:${hostPorts.tritonOnnx.http}`,
};

/**
 * Opens a client without sending a request.
 *
 * @throws {ClientError} `settings` if an option is invalid; `model` if the mode is `local` and the model cannot be loaded
 */
export async function openInferenceClient(
  options: InferenceClientOptions = {},
): Promise<InferenceClient> {
  const { mode = "auto", modelPath, onFallback = warn } = options;
  const local = createLocalModel(modelPath);
  if (mode === "local") {
    await local.load();
    return createClient(local.embed, local.close);
  }
  const remote = openRemote(options);
  if (mode === "remote") return createClient(remote.embed, remote.close);
  return createClient(embedWithFallback(remote, local, onFallback), async () => {
    await Promise.all([remote.close(), local.close()]);
  });
}

/** @param embedBatch - Embeds 1 to 32 images. */
function createClient(
  embedBatch: RemoteEmbedder["embed"],
  close: () => Promise<void>,
): InferenceClient {
  const outstanding = new Set<Promise<unknown>>();
  let closing: Promise<void> | undefined;

  async function embedFrom(images: readonly Uint8Array[], first: number) {
    try {
      return await embedBatch(images.slice(first, first + maxImagesPerRequest));
    } catch (error) {
      throw withImageOffset(error, first);
    }
  }

  return {
    async embed(images) {
      if (closing !== undefined) throw new ClientError("closed", "the client is closed");
      const firsts = Array.from(
        { length: Math.ceil(images.length / maxImagesPerRequest) },
        (_, batch) => batch * maxImagesPerRequest,
      );
      const batches = mapConcurrently(firsts, concurrentRequests, (first) =>
        embedFrom(images, first),
      );
      outstanding.add(batches);
      try {
        return (await batches).flat();
      } finally {
        outstanding.delete(batches);
      }
    },
    close() {
      closing ??= Promise.allSettled(outstanding).then(close);
      return closing;
    },
  };
}

/** Maps items with at most `limit` concurrent runs. After a failure it starts no more, and rejects once the others have ended. */
async function mapConcurrently<Item, Result>(
  items: readonly Item[],
  limit: number,
  run: (item: Item) => Promise<Result>,
): Promise<readonly Result[]> {
  const results: Result[] = [];
  let next = 0;
  let hasFailed = false;
  const worker = async () => {
    while (next < items.length && !hasFailed) {
      const index = next++;
      try {
        results[index] = await run(items[index]!);
      } catch (error) {
        hasFailed = true;
        throw error;
      }
    }
  };
  const workers = Array.from({ length: Math.min(limit, items.length) }, worker);
  await Promise.allSettled(workers);
  await Promise.all(workers);
  return results;
}

/** Converts the image index of an error from its batch to the caller's list. */
function withImageOffset(error: unknown, first: number): unknown {
  if (!(error instanceof ClientError) || error.image === undefined || first === 0) return error;
  const image = first + error.image;
  const problem = error.problem.replace(/^image \d+ /, `image ${image} `);
  return new ClientError(error.code, problem, { cause: error.cause, image });
}

function openRemote(options: InferenceClientOptions): RemoteEmbedder {
  const {
    backend = "embed",
    model = openclipVitB32.name,
    timeoutMs = defaultTimeoutMs,
    apiKey,
  } = options;
  const url = parseServiceUrl(options.serviceUrl ?? defaultServiceUrls[backend]);
  switch (backend) {
    case "embed":
      return openEmbedClient({ url: url.origin, apiKey, timeoutMs });
    case "triton": {
      const transport = openHttpTransport({ url: url.origin });
      return openTritonEmbedder({ transport, model, timeoutMs });
    }
    case "triton_grpc": {
      const target = parseGrpcUrl(options.tritonGrpcUrl ?? grpcUrlOf(url));
      return openTritonEmbedder({ transport: openGrpcTransport({ target }), model, timeoutMs });
    }
  }
}

function parseServiceUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.pathname + url.search !== "/") {
    throw new ClientError(
      "settings",
      `serviceUrl must be http://host:port, without a path, got '${text}'`,
    );
  }
  return url;
}

function parseGrpcUrl(text: string): string {
  const port = Number(/^[^\s/]+:(\d{1,5})$/.exec(text)?.[1]);
  if (port >= 1 && port <= 65_535) return text;
  throw new ClientError("settings", `tritonGrpcUrl must be host:port, got '${text}'`);
}

/** Triton's ports are consecutive: HTTP, gRPC, metrics. */
function grpcUrlOf({ protocol, hostname, port }: URL): string {
  const http = port === "" ? (protocol === "https:" ? 443 : 80) : Number(port);
  return `${hostname}:${http + 1}`;
}

function warn(reason: string): void {
  console.warn(`${reason}: using the local model`);
}
