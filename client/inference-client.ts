import { fileURLToPath } from "node:url";
import { maxImagesPerRequest } from "../contract/embed-api.ts";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { hostPorts } from "../contract/ports.ts";
import { type LocalEmbedder, openLocalEmbedder } from "../inference/session/local-embedder.ts";
import { ClientError } from "./client-error.ts";
import { decodeImages } from "./decode-images.ts";
import { openEmbedClient } from "./embed-client.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";
import { openGrpcTransport } from "./triton/grpc-transport.ts";
import { openHttpTransport } from "./triton/http-transport.ts";
import { openTritonEmbedder } from "./triton-embedder.ts";

export const clientBackends = ["embed", "triton", "triton_grpc"] as const;
/** What is at the other end: the embed API, or a Triton over HTTP or gRPC. */
export type ClientBackend = (typeof clientBackends)[number];

export const clientModes = ["local", "remote", "auto"] as const;
/** Where images are embedded. `auto`: remote, and when that cannot be reached the local model. */
export type ClientMode = (typeof clientModes)[number];

export interface InferenceClientOptions {
  readonly backend: ClientBackend;
  readonly mode: ClientMode;
  /**
   * `http://host:port` of the service.
   *
   * @default - the default port of the backend's service on this machine
   */
  readonly serviceUrl?: string;
  /**
   * What the embed server knows its callers by. A Triton asks for none.
   *
   * @default - none is sent
   */
  readonly apiKey?: string;
  /**
   * `host:port`, for the backend `triton_grpc`.
   *
   * @default - the host of `serviceUrl`, and its port + 1
   */
  readonly tritonGrpcUrl?: string;
  /**
   * Name of the model in a Triton's repository. Its metadata say what is sent: with `openclip_vit_b32_jpeg` the files as
   * they are, with `openclip_vit_b32_u8` pixels, with `openclip_vit_b32` normalised float32, 60 times the size.
   *
   * @default "openclip_vit_b32"
   */
  readonly model?: string;
  /**
   * ONNX file of the local model. It is loaded when it is first needed; with the mode `local`, at once.
   *
   * @default - the one in the model repository of this checkout
   */
  readonly modelPath?: string;
  /**
   * Deadline of one request, of up to 32 images.
   *
   * @default 30 000
   */
  readonly timeoutMs?: number;
  /**
   * Told once, the first time that the local model takes over.
   *
   * @default - a warning on the console
   */
  readonly onFallback?: (reason: string) => void;
}

/** Turns images into embeddings, wherever the model runs. */
export interface InferenceClient {
  /**
   * @param images - JPEG, PNG or WebP files, any number; more than 32 go as several requests.
   * @returns 512 float32 with unit L2 norm for each, in the order of the images.
   * @throws {ClientError} and nothing else; `image` is the index of the image at fault
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  /** Requests in flight are answered first. */
  close(): Promise<void>;
}

const defaultTimeoutMs = 30_000;

/** Requests in flight at once: while one is computed, the images of the next are read and sent. */
const requestsInFlight = 2;

/** After it fell back, how long the local model is used before the service is tried again. */
const retryRemoteMs = 30_000;

const defaultServiceUrls: Readonly<Record<ClientBackend, string>> = {
  embed: `http://127.0.0.1:${hostPorts.embed}`,
  triton: `http://127.0.0.1:${hostPorts.tritonOnnx.http}`,
  triton_grpc: `http://127.0.0.1:${hostPorts.tritonOnnx.http}`,
};

const defaultModelPath = fileURLToPath(
  new URL(`../model_repository/${openclipVitB32.name}/1/model.onnx`, import.meta.url),
);

/**
 * Open a client. Nothing is sent yet.
 *
 * @throws {ClientError} `settings` when a URL is not one; `model` when the mode is `local` and the model cannot be loaded
 */
export async function openInferenceClient(
  options: InferenceClientOptions,
): Promise<InferenceClient> {
  const { mode, modelPath = defaultModelPath } = options;
  const local = localModel(modelPath);
  if (mode === "local") {
    await local.load();
    return clientOf(local.embed, local.close);
  }
  const remote = openRemote(options);
  if (mode === "remote") return clientOf(remote.embed, remote.close);
  return clientOf(withFallback(remote, local, options.onFallback ?? warn), async () => {
    await Promise.all([remote.close(), local.close()]);
  });
}

/** Embeds 1 to 32 images. Image indices in errors count from the first of them. */
type EmbedBatch = (images: readonly Uint8Array[]) => Promise<readonly Float32Array[]>;

function clientOf(embedBatch: EmbedBatch, close: () => Promise<void>): InferenceClient {
  const running = new Set<Promise<unknown>>();
  let closing: Promise<void> | undefined;

  async function embedFrom(images: readonly Uint8Array[], first: number) {
    try {
      return await embedBatch(images.slice(first, first + maxImagesPerRequest));
    } catch (error) {
      throw countedFrom(first, error);
    }
  }

  return {
    async embed(images) {
      if (closing !== undefined) throw new ClientError("closed", "the client is closed");
      const firsts = Array.from(
        { length: Math.ceil(images.length / maxImagesPerRequest) },
        (_, batch) => batch * maxImagesPerRequest,
      );
      const work = inOrder(firsts, requestsInFlight, (first) => embedFrom(images, first));
      running.add(work);
      try {
        return (await work).flat();
      } finally {
        running.delete(work);
      }
    },
    close() {
      closing ??= Promise.allSettled(running).then(close);
      return closing;
    },
  };
}

/** Results in the order of the items, with at most `limit` under way; the first failure ends it. */
async function inOrder<Item, Result>(
  items: readonly Item[],
  limit: number,
  run: (item: Item) => Promise<Result>,
): Promise<readonly Result[]> {
  const results: Result[] = [];
  let next = 0;
  let failed = false;
  const worker = async () => {
    while (next < items.length && !failed) {
      const index = next++;
      try {
        results[index] = await run(items[index]!);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = Array.from({ length: Math.min(limit, items.length) }, worker);
  await Promise.allSettled(workers);
  await Promise.all(workers);
  return results;
}

/** The same error, with the image's index in the caller's list. */
function countedFrom(first: number, error: unknown): unknown {
  if (!(error instanceof ClientError) || error.image === undefined || first === 0) return error;
  const image = first + error.image;
  const problem = error.problem.replace(/^image \d+ /, `image ${image} `);
  return new ClientError(error.code, problem, { cause: error.cause, image });
}

function openRemote(options: InferenceClientOptions): RemoteEmbedder {
  const { backend, model = openclipVitB32.name, timeoutMs = defaultTimeoutMs } = options;
  const url = parseServiceUrl(options.serviceUrl ?? defaultServiceUrls[backend]);
  switch (backend) {
    case "embed":
      return openEmbedClient({ url: url.origin, apiKey: options.apiKey, timeoutMs });
    case "triton":
      return openTritonEmbedder({
        transport: openHttpTransport({ url: url.origin }),
        model,
        timeoutMs,
      });
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

/** Triton's ports follow each other: HTTP, gRPC, metrics. */
function grpcUrlOf({ protocol, hostname, port }: URL): string {
  const http = port === "" ? (protocol === "https:" ? 443 : 80) : Number(port);
  return `${hostname}:${http + 1}`;
}

interface LocalModel {
  /** @throws {ClientError} `model` */
  load(): Promise<LocalEmbedder>;
  readonly embed: EmbedBatch;
  close(): Promise<void>;
}

function localModel(modelPath: string): LocalModel {
  let opening: Promise<LocalEmbedder> | undefined;

  function load() {
    opening ??= openLocalEmbedder({ modelPath }).catch((cause: unknown) => {
      // the file may be there at the next try
      opening = undefined;
      throw new ClientError("model", (cause as Error).message.replace(/^\[\w+\] /, ""), { cause });
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
        if (cause instanceof ClientError) throw cause;
        throw new ClientError("model", (cause as Error).message.replace(/^\[\w+\] /, ""), {
          cause,
        });
      }
    },
    async close() {
      await (await opening?.catch(() => undefined))?.close();
    },
  };
}

/** Errors that say nothing about the request: somebody else may well answer it. */
const fallbackCodes: ReadonlySet<ClientError["code"]> = new Set(["unavailable", "timeout"]);

function withFallback(
  remote: RemoteEmbedder,
  local: LocalModel,
  onFallback: (reason: string) => void,
): EmbedBatch {
  let told = false;
  let tryRemoteAt = 0;

  return async (images) => {
    let reason: ClientError | undefined;
    if (performance.now() >= tryRemoteAt) {
      try {
        return await remote.embed(images);
      } catch (error) {
        if (!(error instanceof ClientError) || !fallbackCodes.has(error.code)) throw error;
        reason = error;
        tryRemoteAt = performance.now() + retryRemoteMs;
      }
    }
    try {
      await local.load();
    } catch (error) {
      const { code, problem } = error as ClientError;
      const because = reason === undefined ? "" : `${reason.problem}; `;
      tryRemoteAt = 0;
      throw new ClientError(
        reason?.code ?? code,
        `${because}the local model cannot take over: ${problem}`,
        {
          cause: error,
        },
      );
    }
    if (!told && reason !== undefined) {
      told = true;
      onFallback(reason.problem);
    }
    return local.embed(images);
  };
}

function warn(reason: string): void {
  console.warn(`${reason}: using the local model`);
}
