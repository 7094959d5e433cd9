import { setTimeout as sleep } from "node:timers/promises";
import { embedPaths, maxImagesPerRequest } from "../../contract/embed-api.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import type { MeasuredLoad, MeasureOptions } from "../../target/load/measured-load.ts";
import { countCodes } from "../../target/load/samples.ts";
import { startLoad } from "../../target/load/start-load.ts";
import type { SampleImage } from "../../target/reference/reference.ts";
import { type EmbedEncoding, requestOf } from "../../target/requests/embed-requests.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { healthLoad, healthRequests } from "../server/server.ts";
import { startEmbed } from "./server-process.ts";
import { trialImages } from "./trial-images.ts";

export interface SoakOptions {
  readonly requests: number;
  /** Number of requests before the first memory measurement. */
  readonly warmUp: number;
  /** Requests in flight, at least 2. */
  readonly concurrency: number;
  /** ONNX file of the image tower of the default model. @default - the tiny model */
  readonly weights?: string | undefined;
  readonly onProgress?: (line: string) => void;
}

export interface SoakResult {
  readonly requests: number;
  readonly seconds: number;
  /** Responses other than 200, by code. */
  readonly failures: Readonly<Record<string, number>>;
  /** Resident memory with no request in flight, in 10⁶ bytes. */
  readonly memory: { readonly early: number; readonly late: number };
  /** Load of health checks while requests are in flight. */
  readonly health: MeasuredLoad;
  /** Exit of the server, such as `with code 0`. */
  readonly stopped: string;
}

/** Number of times the memory is reported after the warm-up. */
const memoryReports = 10;
/** Time for garbage collectors and allocators to settle. */
const restMs = 1_500;
const pollMs = 20;

/** Options of a load that runs until it is aborted. */
const untilAborted = {
  load: healthLoad,
  warmupSeconds: 1,
  windowSeconds: 2,
  windows: Number.MAX_SAFE_INTEGER,
  durationSeconds: 24 * 3_600,
  workers: 1,
} as const satisfies Partial<MeasureOptions>;

/** Sends requests of mixed sizes and encodings to one embed server and measures its memory. */
export async function soak(options: SoakOptions): Promise<SoakResult> {
  const { requests, warmUp, concurrency, weights, onProgress = () => {} } = options;
  const server = await startEmbed({ weights });
  const url = `http://127.0.0.1:${server.ports[0]}`;
  const mixed = await mixedRequests(url);
  const failures: Record<string, number> = {};
  let sent = 0;

  const sendUntil = async (end: number): Promise<void> => {
    const loads = mixed.map((prepared, i) =>
      startLoad(prepared, {
        kind: "closed loop",
        concurrency: Math.floor((concurrency + i) / mixed.length),
      }),
    );
    const answered = () => loads.reduce((sum, { samples }) => sum + samples.length, 0);
    while (sent + answered() < end && server.exitDescription === undefined) await sleep(pollMs);
    await Promise.all(loads.map((load) => load.stop()));
    sent += answered();
    for (const [code, count] of loads.flatMap(({ samples }) =>
      Object.entries(countCodes(samples)),
    )) {
      failures[code] = (failures[code] ?? 0) + count;
    }
  };
  const memoryNow = (): number => {
    const megabytes = server.memory();
    onProgress(`${sent} requests: ${Math.round(megabytes)} MB`);
    return megabytes;
  };

  try {
    const startedAt = performance.now();
    await sendUntil(warmUp);
    await sleep(restMs);
    const early = memoryNow();
    const ended = new AbortController();
    const [health] = await Promise.all([
      measureLoad(healthRequests(url), { ...untilAborted, signal: ended.signal }),
      (async () => {
        for (let part = 1; part <= memoryReports; part++) {
          await sendUntil(warmUp + Math.round(((requests - warmUp) * part) / memoryReports));
          memoryNow();
        }
        ended.abort();
      })(),
    ]);
    await sleep(restMs);
    return {
      requests: sent,
      seconds: (performance.now() - startedAt) / 1_000,
      failures,
      memory: { early, late: memoryNow() },
      health,
      stopped: await server.stop(),
    };
  } finally {
    await server.stop();
  }
}

/** Numbers of images in consecutive requests; every 97th request has the maximum. */
const counts = [1, 1, 2, 1, 1, 1, 1, 4, 1, 1] as const;
const fullEvery = 97;
/** Number of distinct requests, which are sent in a cycle. */
const distinct = 3 * fullEvery;

/** Requests to the two embedding routes. An index determines the encoding, number and size of the images. */
async function mixedRequests(url: string): Promise<readonly PreparedRequests[]> {
  const images = trialImages();
  const endpoints = [embedPaths.embed, embedPaths.embedBase64].map((path) => ({
    transport: "http" as const,
    url,
    path,
    headers: {},
    requests: [] as PreparedRequests["requests"][number][],
    imagesPerRequest: 1,
  }));
  for (let index = 0; index < distinct; index++) {
    const chosen = chooseImages(images, index);
    const encoding = encodingOf(index, chosen.length);
    const [address, { headers, body }] = requestOf(url, encoding, chosen) as Required<
      ReturnType<typeof requestOf>
    >;
    const encoded = new Response(body as FormData);
    endpoints
      .find(({ path }) => address === `${url}${path}`)
      ?.requests.push({
        headers: {
          "content-type": encoded.headers.get("content-type") ?? "",
          ...headers,
          accept: index % 2 === 0 ? "application/json" : "application/octet-stream",
        },
        body: new Uint8Array(await encoded.arrayBuffer()),
      });
  }
  return endpoints;
}

function encodingOf(index: number, images: number): EmbedEncoding {
  if (index % 3 === 0 && images === 1) return "raw";
  return index % 3 === 1 ? "multipart" : "base64";
}

/** The larger an image, the rarer it is; requests with many images have small ones. */
function chooseImages(images: readonly SampleImage[], index: number): readonly SampleImage[] {
  const count = index % fullEvery === 0 ? maxImagesPerRequest : counts[index % counts.length]!;
  const range = count > 4 ? Math.ceil(images.length / 3) : images.length;
  return Array.from({ length: count }, (_, at) => {
    const share = ((index * 7919 + at * 104_729) % 1000) / 1000;
    return images[Math.floor(share ** 2 * range)]!;
  });
}
