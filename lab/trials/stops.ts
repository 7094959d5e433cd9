import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { isStopRejection } from "../../client/triton/stop-rejection.ts";
import { embedRoutes } from "../../contract/embed-routes.ts";
import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount } from "../../contract/tensor.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { embedBy } from "../../target/requests/embed-requests.ts";
import { type HttpClient, openHttpClient } from "../../target/requests/http-client.ts";
import { inferRows } from "../../target/requests/infer.ts";
import { type ServerProcess, startEmbed, startTriton } from "./server-process.ts";
import { trialImages } from "./trial-images.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const roles = ["embed", "triton-http", "triton-grpc", "embed-long"] as const;
/** `embed-long`: each request names an image whose download takes {@link longMs}. */
type Role = (typeof roles)[number];

export interface StopsOptions {
  readonly stops: number;
  /** Servers that are stopped at the same time. */
  readonly parallel: number;
  /** Arguments of Node that start the server. */
  readonly program?: readonly string[] | undefined;
  readonly onProgress?: (line: string) => void;
}

export interface StopsResult {
  answered: number;
  /** Rejected because the server stops, or refused connections. */
  rejected: number;
  /** Role and error of each lost request. */
  readonly lost: string[];
  /** Stops that did not end with code 0. */
  readonly failed: string[];
}

const clients = 8;
/** Time after the signal in which clients send requests, in milliseconds. */
const overlapMs = 100;
const timeoutMs = 120_000;
/** Duration of a long request, within the default of SHUTDOWN_GRACE_SECONDS, in milliseconds. */
const longMs = 14_000;

interface Client {
  /** @throws {Error} */
  send(): Promise<void>;
  close(): Promise<void>;
}

/** Stops servers of each role in turn while clients send requests. */
export async function stops(options: StopsOptions): Promise<StopsResult> {
  const { stops, parallel, program, onProgress = () => {} } = options;
  const result: StopsResult = { answered: 0, rejected: 0, lost: [], failed: [] };
  let started = 0;
  let ended = 0;
  const stopSome = async () => {
    while (started < stops) {
      const role = roles[started++ % roles.length]!;
      await stopOne(role, program, result);
      ended += 1;
      onProgress(`${ended} of ${stops}: ${result.lost.length} lost`);
    }
  };
  await Promise.all(Array.from({ length: parallel }, stopSome));
  return result;
}

async function stopOne(
  role: Role,
  program: StopsOptions["program"],
  result: StopsResult,
): Promise<void> {
  const slowImages = role === "embed-long" ? await serveSlowImages() : undefined;
  const server = await startRole(role, program, slowImages?.origin);
  const client = await openClient(role, server, slowImages?.origin);
  // late requests of a starved client may reach a connection that the server has closed
  let until = Number.POSITIVE_INFINITY;
  /** Returns whether the request was answered. */
  const sendOne = async (): Promise<boolean> => {
    try {
      await client.send();
      result.answered += 1;
      return true;
    } catch (error) {
      const { code = "", message } = error as { readonly code?: string; readonly message: string };
      if (isStopRejection(`${code} ${message}`)) result.rejected += 1;
      else result.lost.push(`${role}: ${code} ${message}`);
      return false;
    }
  };
  const first = Array.from({ length: clients }, sendOne);
  const load = first.map(async (begun) => {
    let answered = await begun;
    while (answered && performance.now() < until) answered = await sendOne();
  });
  await (slowImages?.requested ?? Promise.all(first));
  until = performance.now() + overlapMs;
  const ended = server.stop();
  await Promise.all(load);
  await client.close();
  slowImages?.close();
  if ((await ended) !== "with code 0") result.failed.push(`${role}: ended ${await ended}`);
}

async function startRole(
  role: Role,
  program: StopsOptions["program"],
  imageOrigin: string | undefined,
): Promise<ServerProcess> {
  if (role === "triton-http" || role === "triton-grpc") return await startTriton(program);
  const env =
    imageOrigin === undefined
      ? {}
      : { IMAGE_URL_HOSTS: imageOrigin, IMAGE_URL_TIMEOUT_MS: String(timeoutMs) };
  return await startEmbed({ env }, program);
}

/** Serves images, each after {@link longMs}. */
async function serveSlowImages() {
  const [image] = trialImages();
  let requests = 0;
  let onRequested = () => {};
  /** Resolves when every client's first request has reached this server. */
  const requested = new Promise<void>((resolve) => {
    onRequested = resolve;
  });
  const server = createServer((_request, response) => {
    requests += 1;
    if (requests === clients) onRequested();
    setTimeout(() => response.end(image!.bytes), longMs);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, requested, close: () => server.close() };
}

async function openClient(
  role: Role,
  { ports }: ServerProcess,
  imageOrigin: string | undefined,
): Promise<Client> {
  const [http, grpc] = ports;
  if (role === "triton-http" || role === "triton-grpc") {
    const transport =
      role === "triton-http"
        ? openHttpTransport({ url: `http://127.0.0.1:${http}`, connections: clients })
        : openGrpcTransport({ target: `127.0.0.1:${grpc}` });
    const pixels = new Float32Array(2 * imageElements);
    return {
      send: async () =>
        void (await inferRows(
          transport,
          tritonModelName(defaultModel, "fp32"),
          defaultModel,
          pixels,
          2,
          timeoutMs,
        )),
      close: () => transport.close(),
    };
  }
  const [image] = trialImages();
  const client = openHttpClient(clients);
  const url = `http://127.0.0.1:${http}`;
  return {
    send: async () => {
      if (imageOrigin === undefined) {
        await embedBy(client, url, "raw", [image!], defaultModel);
      } else {
        await sendUrl(client, url, `${imageOrigin}/image`);
      }
    },
    close: () => client.close(),
  };
}

/** @throws {Error} unless the image is embedded */
async function sendUrl(client: HttpClient, url: string, image: string): Promise<void> {
  const { status, body } = await client.send(`${url}${embedRoutes.openAiEmbeddings.path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: [{ image }] }),
    timeoutMs,
  });
  if (status !== 200) throw new Error(`HTTP ${status}: ${String(body)}`);
}
