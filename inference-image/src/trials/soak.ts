import { setTimeout as sleep } from "node:timers/promises";
import { Agent, type Dispatcher, request } from "undici";
import { embedPaths, maxImagesPerRequest } from "../contract/embed-api.ts";
import type { ServerEnvName } from "../contract/server-env.ts";
import { type Probe, startProbe } from "./health-probe.ts";
import { startEmbed } from "./server-process.ts";
import { type TrialImage, trialImages } from "./trial-images.ts";

export interface SoakOptions {
  readonly requests: number;
  /** Requests after which the memory is measured that the end is compared with. */
  readonly warmUp: number;
  /** Requests in flight. */
  readonly concurrency: number;
  /** Settings of the server, as in its container. */
  readonly env?: Partial<Record<ServerEnvName, string>>;
  readonly onProgress?: (line: string) => void;
}

export interface SoakResult {
  readonly requests: number;
  readonly images: number;
  readonly seconds: number;
  /** Answers that were not 200, by what they were. */
  readonly failures: Readonly<Record<string, number>>;
  /** Resident bytes, with no request in flight. */
  readonly memory: { readonly early: number; readonly late: number };
  /** Of `/healthz` while requests are in flight, in milliseconds. */
  readonly health: Probe;
  /** How the server ended: `with code 0`. */
  readonly stopped: string;
}

/** After each part of the requests the memory is told. */
const parts = 10;
/** Let collectors and allocators come to rest, in milliseconds. */
const restMs = 1_500;

/** Send requests of mixed sizes and forms to one embed server, and see that its memory stays as it is. */
export async function soak(options: SoakOptions): Promise<SoakResult> {
  const { requests, warmUp, concurrency, env = {}, onProgress = () => {} } = options;
  const images = await trialImages();
  const server = await startEmbed(env);
  const [port = 0] = server.ports;
  const url = `http://127.0.0.1:${port}`;
  const dispatcher = new Agent({ connections: concurrency, pipelining: 1 });
  const failures: Record<string, number> = {};
  let embedded = 0;
  let next = 0;

  const sendUntil = async (end: number) => {
    const client = async () => {
      while (next < end) {
        const { path, headers, body, count } = mixedRequest(images, next++);
        const outcome = await send(`${url}${path}`, { method: "POST", headers, body, dispatcher });
        if (outcome === "200") embedded += count;
        else failures[outcome] = (failures[outcome] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: concurrency }, client));
  };
  const tell = (memory: number) =>
    onProgress(`${next} requests: ${Math.round(memory / 1024 / 1024)} MiB`);
  const restingMemory = async () => {
    await sleep(restMs);
    const memory = await server.memory();
    tell(memory);
    return memory;
  };

  try {
    const startedAt = performance.now();
    await sendUntil(warmUp);
    const early = await restingMemory();
    const probe = await startProbe(`${url}${embedPaths.healthz}`);
    for (let part = 1; part < parts; part++) {
      await sendUntil(warmUp + Math.round(((requests - warmUp) * part) / parts));
      tell(await server.memory());
    }
    await sendUntil(requests);
    const health = await probe.stop();
    const late = await restingMemory();
    const seconds = (performance.now() - startedAt) / 1000;
    await dispatcher.close();
    const stopped = await server.stop();
    return {
      requests,
      images: embedded,
      seconds,
      failures,
      memory: { early, late },
      health,
      stopped,
    };
  } finally {
    if (server.ended === undefined) await server.stop();
  }
}

async function send(
  url: string,
  options: Omit<Dispatcher.RequestOptions, "path" | "origin"> & {
    readonly dispatcher: Dispatcher;
  },
): Promise<string> {
  try {
    const { statusCode, body } = await request(url, options);
    await body.dump();
    return String(statusCode);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? "failed";
  }
}

/** Images in a request, in turn: most have one. */
const counts = [1, 1, 2, 1, 1, 1, 1, 4, 1, 1] as const;
/** Some have as many as may be. */
const fullEvery = 97;
const rawEvery = 3;

interface SoakRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | string;
  /** Its images. */
  readonly count: number;
}

/** The request with a number: which it is follows from the number alone. */
function mixedRequest(images: readonly TrialImage[], index: number): SoakRequest {
  const count = index % fullEvery === 0 ? maxImagesPerRequest : counts[index % counts.length]!;
  // the larger an image, the rarer; of many images, small ones
  const chosen = Array.from({ length: count }, (_, at) => {
    const share = ((index * 7919 + at * 104_729) % 1000) / 1000;
    const range = count > 4 ? Math.ceil(images.length / 3) : images.length;
    return images[Math.floor(share ** 2 * range)]!;
  });
  const [first] = chosen as [TrialImage];
  const accept = index % 2 === 0 ? "application/json" : "application/octet-stream";
  const to = (path: string, type: string, body: Buffer | string) => ({
    path,
    headers: { accept, "content-type": type },
    body,
    count,
  });
  if (count === 1 && index % rawEvery === 0) {
    return to(embedPaths.embed, first.contentType, first.bytes);
  }
  if (index % rawEvery === 1) {
    return to(embedPaths.embed, "multipart/form-data; boundary=soak", formOf(chosen, "soak"));
  }
  const encoded = chosen.map(({ bytes }) => bytes.toString("base64"));
  return to(embedPaths.embedBase64, "application/json", JSON.stringify({ images: encoded }));
}

function formOf(images: readonly TrialImage[], boundary: string): Buffer {
  const parts = images.flatMap(({ name, bytes }) => {
    const head = `content-disposition: form-data; name="images"; filename="${name}"`;
    return [Buffer.from(`--${boundary}\r\n${head}\r\n\r\n`), bytes, Buffer.from("\r\n")];
  });
  return Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
}
