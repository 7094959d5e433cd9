import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { embedBy } from "../../bench/run/embed-requests.ts";
import { type HttpClient, openHttpClient } from "../../bench/run/http-client.ts";
import { rowsOf } from "../../bench/run/infer.ts";
import type { SampleImage } from "../../bench/run/reference.ts";
import { relativeDifference } from "../../bench/stats/statistics.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { models, openclipVitB32Jpeg } from "../../contract/model-signature.ts";
import { type FuzzInput, type FuzzTarget, fuzzInputs } from "./fuzz-input.ts";
import { openFuzzSender } from "./fuzz-send.ts";
import { type ServerProcess, startEmbed, startTriton } from "./server-process.ts";
import { trialImages } from "./trial-images.ts";

export interface FuzzOptions {
  readonly inputs: number;
  /** The same seed gives the same inputs. */
  readonly seed: number;
  /** Inputs that are on their way at a time. */
  readonly concurrency: number;
  /** Told how far it is. */
  readonly onProgress?: (line: string) => void;
}

export interface FuzzResult {
  readonly sent: number;
  readonly seconds: number;
  /** Each with the file of its input. Empty: nothing is wrong. */
  readonly failures: readonly string[];
  /** How often each answer was given: `embed 200`, `triton-grpc NOT_FOUND`. */
  readonly answers: Readonly<Record<string, number>>;
  /** Resident memory of each server in 10⁶ bytes: after a fifth of the inputs, and at the end. */
  readonly memory: readonly {
    readonly name: string;
    readonly early: number;
    readonly late: number;
  }[];
}

/** Number of inputs between two checks of the servers. */
const roundSize = 500;
/** Maximum size of sample images; larger ones add time but no coverage. */
const maxImageBytes = 20_000;
/** Failures that are told; then it ends. */
const maxFailures = 20;
const timeoutMs = 30_000;
/** Maximum memory growth after the first fifth of the inputs, when caches are full. */
const memoryGrowth = { factor: 1.3, megabytes: 100 } as const;

/** Sends inputs to all endpoints of both server roles and checks that the servers keep working. */
export async function fuzz(options: FuzzOptions): Promise<FuzzResult> {
  const images = trialImages(maxImageBytes);
  const startedAt = performance.now();
  return withServers(images, async (servers) => {
    const failures: string[] = [];
    const inputs = fuzzInputs(images);
    let early: readonly number[] | undefined;
    let sent = 0;
    for (let round = 0; sent < options.inputs && failures.length < maxFailures; round++) {
      const count = Math.min(roundSize, options.inputs - sent);
      const some = fc.sample(inputs, { numRuns: count, seed: options.seed + round });
      failures.push(...(await sendAll(servers, some, options.concurrency)));
      sent += count;
      failures.push(...(await servers.check()));
      if (early === undefined && sent >= options.inputs / 5) early = servers.memory();
      options.onProgress?.(
        `${sent} of ${options.inputs} inputs, ${failures.length} failures, ${servers.memory().map(Math.round).join(" + ")} MB`,
      );
      if (servers.all.some(({ ended }) => ended !== undefined)) break;
    }
    const late = servers.memory();
    const memory = servers.all.map(({ name }, index) => ({
      name,
      early: early?.[index] ?? 0,
      late: late[index] ?? 0,
    }));
    for (const { name, early, late } of memory) {
      if (late > early * memoryGrowth.factor + memoryGrowth.megabytes) {
        failures.push(
          `the ${name} server grew from ${Math.round(early)} to ${Math.round(late)} MB`,
        );
      }
    }
    failures.push(...(await servers.stop()));
    const seconds = (performance.now() - startedAt) / 1000;
    return { sent, seconds, failures, memory, answers: servers.answers };
  });
}

/** Sends saved inputs sequentially. */
export async function replay(file: string): Promise<readonly string[]> {
  const inputs = (JSON.parse(await readFile(file, "utf8"), revive) as FuzzInput[]).flat();
  return withServers(trialImages(maxImageBytes), async (servers) => {
    const failures = await sendAll(servers, inputs, 1);
    return [...failures, ...(await servers.check()), ...(await servers.stop())];
  });
}

interface Servers {
  readonly answers: Readonly<Record<string, number>>;
  readonly all: readonly ServerProcess[];
  send(input: FuzzInput): Promise<string | undefined>;
  /** Returns whether the servers are alive and return the same embeddings as before. */
  check(): Promise<readonly string[]>;
  /** In 10⁶ bytes. */
  memory(): readonly number[];
  /** Errors during the stop. */
  stop(): Promise<readonly string[]>;
}

async function withServers<T>(
  images: readonly SampleImage[],
  work: (servers: Servers) => Promise<T>,
): Promise<T> {
  const embed = await startEmbed({
    INTRA_OP_THREADS: "1",
    MAX_BODY_BYTES: String(4 * 1024 * 1024),
    MAX_IMAGE_PIXELS: "4000000",
  });
  const all = [embed];
  try {
    const triton = await startTriton();
    all.push(triton);
    const [port = 0] = embed.ports;
    const [oip = 0, grpc = 0, metrics = 0] = triton.ports;
    const url = (of: number) => `http://127.0.0.1:${of}`;
    const http = openHttpClient();
    const answers: Record<string, number> = {};
    const ports: Readonly<Record<FuzzTarget, number>> = {
      embed: port,
      "triton-http": oip,
      "triton-grpc": grpc,
      "triton-metrics": metrics,
    };
    const sender = openFuzzSender(ports, (what) => {
      answers[what] = (answers[what] ?? 0) + 1;
    });

    const reference = images.find(({ contentType }) => contentType === "image/jpeg")!;
    const expected = await embedReference(http, url(port), reference);
    const expectedTriton = await inferReference(http, url(oip), reference);
    try {
      return await work({
        all,
        answers,
        send: sender.send,
        async check() {
          const ended = all.flatMap((it) =>
            it.ended === undefined ? [] : [`the ${it.name} server ended ${it.ended}`],
          );
          if (ended.length > 0) return ended;
          const checks = [
            same("embed", embedReference(http, url(port), reference), expected),
            same("triton", inferReference(http, url(oip), reference), expectedTriton),
            answersOk(http, `${url(port)}${embedPaths.healthz}`),
            answersOk(http, `${url(metrics)}${embedPaths.metrics}`),
          ];
          return (await Promise.all(checks)).filter((problem) => problem !== undefined);
        },
        memory: () => all.map((server) => server.memory()),
        async stop() {
          const codes = await Promise.all(all.map((server) => server.stop()));
          return codes.flatMap((how, index) =>
            how === "with code 0" ? [] : [`the ${all[index]?.name} server stopped ${how}`],
          );
        },
      });
    } finally {
      sender.close();
      await http.close();
    }
  } finally {
    await Promise.all(all.map((server) => (server.ended === undefined ? server.stop() : "")));
  }
}

async function sendAll(
  servers: Servers,
  inputs: readonly FuzzInput[],
  concurrency: number,
): Promise<readonly string[]> {
  const failures: string[] = [];
  const underWay = new Set<FuzzInput>();
  let next = 0;
  const worker = async () => {
    while (next < inputs.length) {
      const input = inputs[next++]!;
      underWay.add(input);
      const problem = await servers.send(input);
      const dead = servers.all.find(({ ended }) => ended !== undefined);
      if (dead !== undefined) {
        // one of those that were on their way killed it
        if (failures.length === 0) {
          failures.push(
            `the ${dead.name} server ended ${dead.ended}\n  ${await saved([...underWay])}`,
          );
        }
        return;
      }
      underWay.delete(input);
      if (problem !== undefined) failures.push(`${problem}\n  ${await saved([input])}`);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return failures;
}

let folder: Promise<string> | undefined;
let files = 0;

/** The command that sends saved inputs again. */
async function saved(inputs: readonly FuzzInput[]): Promise<string> {
  folder ??= mkdtemp(join(tmpdir(), "clipstack-fuzz-"));
  await mkdir(await folder, { recursive: true });
  const file = join(await folder, `${++files}.json`);
  await writeFile(file, JSON.stringify(inputs));
  return `replay: npm run fuzz -- --replay ${file}`;
}

/** Bytes as `Buffer.toJSON` writes them. */
function revive(_key: string, value: unknown): unknown {
  const { type, data } = (value ?? {}) as { readonly type?: unknown; readonly data?: unknown };
  return type === "Buffer" && Array.isArray(data) ? Buffer.from(data) : value;
}

async function embedReference(
  http: HttpClient,
  url: string,
  image: SampleImage,
): Promise<Float32Array> {
  const [vector] = await embedBy(http, url, "raw", [image]);
  return vector!;
}

async function inferReference(
  http: HttpClient,
  url: string,
  { bytes }: SampleImage,
): Promise<Float32Array> {
  // an input may have unloaded a model, or given it another configuration
  for (const { name } of models) {
    const path = `${url}/v2/repository/models/${name}/load`;
    const { status, body } = await http.send(path, { method: "POST" });
    if (status !== 200) throw new Error(`load: status ${status}: ${body}`);
  }
  const { name, inputs } = openclipVitB32Jpeg;
  const transport = openHttpTransport({ url });
  try {
    const input = {
      name: inputs[0].name,
      dataType: "BYTES",
      shape: [1, 1],
      data: [bytes],
    } as const;
    const [vector] = rowsOf(await transport.infer(name, [input], { timeoutMs }), 1);
    return vector!;
  } finally {
    await transport.close();
  }
}

/** Largest relative difference between two embeddings of the reference image. */
const tolerance = 1e-5;

async function same(
  name: string,
  got: Promise<Float32Array>,
  expected: Float32Array,
): Promise<string | undefined> {
  try {
    const difference = relativeDifference(await got, expected);
    if (difference < tolerance) return undefined;
    return `${name}: the embedding of the reference image has changed by ${difference}`;
  } catch (error) {
    return `${name}: the reference image has no embedding any more: ${(error as Error).message}`;
  }
}

async function answersOk(http: HttpClient, url: string): Promise<string | undefined> {
  try {
    const { status } = await http.send(url, { timeoutMs });
    return status === 200 ? undefined : `${url}: status ${status}`;
  } catch (error) {
    return `${url}: ${(error as Error).message}`;
  }
}
