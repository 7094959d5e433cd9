import { maxImagesPerRequest } from "../../contract/embed-api.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { hostPorts } from "../../contract/ports.ts";
import { mapConcurrently } from "../../inference/threads/map-concurrently.ts";
import { openGrpcTransport } from "../triton/grpc-transport.ts";
import { openHttpTransport } from "../triton/http-transport.ts";
import { ClientError } from "./client-error.ts";
import { type ClientModel, knownSpec, requiredSpec } from "./client-model.ts";
import { type ExpectedFingerprints, openEmbedClient } from "./embed-client.ts";
import { type EmbedBatch, Fallback } from "./embed-with-fallback.ts";
import { createLocalModel, type LocalModel } from "./local-model.ts";
import type { RemoteEmbedder } from "./remote-embedder.ts";
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
   * `host:port` for the backend `triton_grpc`, or `https://host:port` with a certificate that Node trusts.
   *
   * @default - the host of `serviceUrl` and its port + 1
   */
  readonly tritonGrpcUrl?: string;
  /**
   * Name of a model of the catalogue, or a spec. With the backend `embed` in mode `remote`, also the name of any model of the service.
   *
   * @default - OpenCLIP ViT-B/32; with the backend `embed` and no local model, the service's default
   */
  readonly model?: ClientModel | undefined;
  /**
   * Name of the image tower in Triton's repository. Its metadata determines the payload format: the files themselves for `…_jpeg`,
   * uint8 pixels for `…_u8`, normalised float32 otherwise.
   *
   * @default - the model kind with normalised images, such as `openclip_vit_b32`
   */
  readonly tritonModel?: string | undefined;
  /**
   * Name of the text tower in Triton's repository.
   *
   * @default - the model kind without TensorRT, such as `openclip_vit_b32_text`
   */
  readonly tritonTextModel?: string | undefined;
  /**
   * ONNX file of the local image tower, loaded on first use; with mode `local`, when the client is opened.
   *
   * @default - no local images: mode `local` fails without `textModelPath`, and mode `auto` has no fallback
   */
  readonly modelPath?: string | undefined;
  /**
   * ONNX file of the local text tower, loaded on first use; with mode `local`, when the client is opened.
   *
   * @default - no local texts
   */
  readonly textModelPath?: string | undefined;
  /**
   * File with the tokenizer's vocabulary, for texts that this process tokenizes: those of the local model and of the Triton backends.
   * Not read if a package has the vocabulary, as for CLIP.
   *
   * @default - the tokenizer's file beside `textModelPath`
   */
  readonly vocabularyPath?: string | undefined;
  /**
   * Deadline in milliseconds of one request, which carries up to 32 images.
   *
   * @default 30000
   */
  readonly timeoutMs?: number;
  /**
   * Required fingerprints, as of the embed API's client. Only with the backend `embed` and without a local model.
   *
   * @default - any
   */
  readonly expect?: ExpectedFingerprints | undefined;
  /**
   * Called the first time that the local model replaces the service, with the reason.
   *
   * @default - a warning on the console
   */
  readonly onFallback?: (reason: string) => void;
}

/** Computes embeddings of images and texts, in a service or in this process. */
export interface InferenceClient {
  /**
   * @param images - Any number of JPEG, PNG or WebP files; more than 32 are split into several requests.
   * @returns One vector of the model's width with unit L2 norm per image, in the same order.
   * @throws {ClientError} and no other error; `image` is the index of the image that caused it
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  /**
   * @param texts - Any number; more than 32 are split into several requests.
   * @returns As {@link embed}; texts and images of one model can be compared.
   * @throws {ClientError} and no other error; `text` is the index of the text that caused it
   */
  embedText(texts: readonly string[]): Promise<readonly Float32Array[]>;
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
  const { mode = "auto", onFallback = warn } = options;
  checkExpect(options);
  if (mode === "remote") return createClient(openRemote(options));
  const local = localModelOf(options);
  if (mode === "local") {
    const { modelPath, textModelPath } = options;
    try {
      if (modelPath !== undefined || textModelPath === undefined) await local.images.load();
      if (textModelPath !== undefined) await local.texts.load();
    } catch (error) {
      // a loaded tower would keep the process alive
      await local.close();
      throw error;
    }
    const [embed, embedText] = [local.images.embed, local.texts.embed];
    return createClient({ embed, embedText, close: local.close });
  }
  const hasLocal = options.modelPath !== undefined || options.textModelPath !== undefined;
  // embeddings of the service and of the local model must be of the same model
  const model = options.model ?? (hasLocal ? defaultModel : undefined);
  const remote = openRemote({ ...options, model });
  const fallback = new Fallback(onFallback);
  return createClient({
    embed: fallback.embedder(remote.embed, local.images),
    embedText: fallback.embedder(remote.embedText, local.texts),
    async close() {
      await Promise.all([remote.close(), local.close()]);
    },
  });
}

/** @throws {ClientError} `settings` if fingerprints are required from a model whose fingerprint is not known here */
function checkExpect({ expect, backend = "embed", mode, ...local }: InferenceClientOptions): void {
  const hasLocal =
    mode === "local" || local.modelPath !== undefined || local.textModelPath !== undefined;
  if (expect === undefined || (backend === "embed" && !hasLocal)) return;
  const got = hasLocal ? "a local model" : `the backend '${backend}'`;
  throw new ClientError(
    "settings",
    `expect requires the backend 'embed' without a local model, got ${got}`,
  );
}

function localModelOf(options: InferenceClientOptions): LocalModel {
  const { model = defaultModel, modelPath, textModelPath, vocabularyPath } = options;
  const spec = knownSpec(model);
  if (spec !== undefined) {
    return createLocalModel({ spec, modelPath, textModelPath, vocabularyPath });
  }
  // a model that only the service has cannot run here
  if (modelPath !== undefined || textModelPath !== undefined || options.mode === "local") {
    requiredSpec(model);
  }
  return createLocalModel({ spec: defaultModel });
}

/** @param batches - Embed 1 to 32 items each. */
function createClient(batches: Omit<RemoteEmbedder, "target">): InferenceClient {
  const outstanding = new Set<Promise<unknown>>();
  let closing: Promise<void> | undefined;

  async function embedAll<Item>(
    items: readonly Item[],
    embedBatch: EmbedBatch<Item>,
  ): Promise<readonly Float32Array[]> {
    if (closing !== undefined) throw new ClientError("closed", "the client is closed");
    const firsts = Array.from(
      { length: Math.ceil(items.length / maxImagesPerRequest) },
      (_, batch) => batch * maxImagesPerRequest,
    );
    const vectors = mapConcurrently(firsts, concurrentRequests, (first) =>
      embedBatch(items.slice(first, first + maxImagesPerRequest)).catch((error: unknown) => {
        throw withOffset(error, first);
      }),
    );
    outstanding.add(vectors);
    try {
      return (await vectors).flat();
    } finally {
      outstanding.delete(vectors);
    }
  }

  return {
    embed: (images) => embedAll(images, batches.embed),
    embedText: async (texts) => embedAll(requireContent(texts), batches.embedText),
    close() {
      closing ??= Promise.allSettled(outstanding).then(() => batches.close());
      return closing;
    },
  };
}

/** @throws {ClientError} `rejected` on an empty text, as the embed API rejects it */
function requireContent(texts: readonly string[]): readonly string[] {
  const text = texts.indexOf("");
  if (text === -1) return texts;
  throw new ClientError("rejected", `text ${text} must not be an empty string`, { text });
}

/** Converts the index of an error from its batch to the caller's list. */
function withOffset(error: unknown, first: number): unknown {
  if (!(error instanceof ClientError) || first === 0) return error;
  const { code, cause } = error;
  const [image, text] = [error.image, error.text].map((index) =>
    index === undefined ? undefined : first + index,
  );
  const problem = error.problem.replace(/^(image|text) \d+ /, `$1 ${image ?? text} `);
  return new ClientError(code, problem, { cause, image, text });
}

function openRemote(options: InferenceClientOptions): RemoteEmbedder {
  const { backend = "embed", model, tritonModel, tritonTextModel } = options;
  const { timeoutMs = defaultTimeoutMs, apiKey } = options;
  const { textModelPath, vocabularyPath } = options;
  const triton = { model, tritonModel, tritonTextModel, textModelPath, vocabularyPath, timeoutMs };
  const url = parseServiceUrl(options.serviceUrl ?? defaultServiceUrls[backend]);
  switch (backend) {
    case "embed":
      return openEmbedClient({ url: url.origin, model, apiKey, timeoutMs, expect: options.expect });
    case "triton": {
      return openTritonEmbedder({ ...triton, transport: openHttpTransport({ url: url.origin }) });
    }
    case "triton_grpc": {
      const target = parseGrpcUrl(options.tritonGrpcUrl ?? grpcUrlOf(url));
      return openTritonEmbedder({ ...triton, transport: openGrpcTransport({ target }) });
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
  const port = Number(/^(?:https:\/\/)?[^\s/]+:(\d{1,5})$/.exec(text)?.[1]);
  if (port >= 1 && port <= 65_535) return text;
  throw new ClientError("settings", `tritonGrpcUrl must be host:port, got '${text}'`);
}

/** Triton's ports are consecutive: HTTP, gRPC, metrics. */
function grpcUrlOf({ protocol, hostname, port }: URL): string {
  const http = port === "" ? (protocol === "https:" ? 443 : 80) : Number(port);
  return `${protocol === "https:" ? "https://" : ""}${hostname}:${http + 1}`;
}

function warn(reason: string): void {
  console.warn(`${reason}: using the local model`);
}
