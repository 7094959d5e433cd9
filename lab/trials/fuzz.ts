import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc, { type Arbitrary } from "fast-check";
import type { SampleImage } from "../../target/reference/reference.ts";
import {
  anyHttp,
  base64Bodies,
  compressed,
  multipartForms,
  rawImages,
  sockets,
  withChanges,
} from "./fuzz-http-inputs.ts";
import type { FuzzInput } from "./fuzz-input.ts";
import { mutatedImages, weighted } from "./fuzz-mutations.ts";
import { type Servers, withServers } from "./fuzz-servers.ts";
import { control, grpcCalls, inferBinary, inferJson } from "./fuzz-triton-inputs.ts";
import { trialImages } from "./trial-images.ts";

export interface FuzzOptions {
  readonly inputs: number;
  /** The same seed gives the same inputs. */
  readonly seed: number;
  /** Inputs in flight. */
  readonly concurrency: number;
  readonly onProgress?: (line: string) => void;
}

export interface FuzzResult {
  readonly sent: number;
  readonly seconds: number;
  /** Descriptions of failures with the command that replays their inputs. */
  readonly failures: readonly string[];
  /** Number of responses by target and status, such as `embed 200` and `triton-grpc NOT_FOUND`. */
  readonly responses: Readonly<Record<string, number>>;
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
const maxFailures = 20;
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
      const batch = fc.sample(inputs, { numRuns: count, seed: options.seed + round });
      failures.push(...(await sendAll(servers, batch, options.concurrency)));
      sent += count;
      failures.push(...(await servers.check()));
      if (early === undefined && sent >= options.inputs / 5) early = servers.memory();
      options.onProgress?.(
        `${sent} of ${options.inputs} inputs, ${failures.length} failures, ${servers.memory().map(Math.round).join(" + ")} MB`,
      );
      if (servers.all.some(({ exitDescription }) => exitDescription !== undefined)) break;
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
    return { sent, seconds, failures, memory, responses: servers.responses };
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

/** Inputs of all endpoints: valid requests, most of them with changes. Large images are rare, because they reduce the number of inputs. */
function fuzzInputs(images: readonly SampleImage[]): Arbitrary<FuzzInput> {
  const image = mutatedImages(images);
  return weighted<FuzzInput>(
    [16, withChanges(rawImages(image))],
    [14, withChanges(multipartForms(image))],
    [16, withChanges(base64Bodies(image))],
    [14, withChanges(compressed(inferJson()))],
    [12, withChanges(inferBinary(image))],
    [4, control()],
    [8, anyHttp()],
    [10, grpcCalls(image)],
    [8, sockets(image)],
  );
}

async function sendAll(
  servers: Servers,
  inputs: readonly FuzzInput[],
  concurrency: number,
): Promise<readonly string[]> {
  const failures: string[] = [];
  const inFlight = new Set<FuzzInput>();
  let next = 0;
  const worker = async () => {
    while (next < inputs.length) {
      const input = inputs[next++]!;
      inFlight.add(input);
      const problem = await servers.send(input);
      const dead = servers.all.find(({ exitDescription }) => exitDescription !== undefined);
      if (dead !== undefined) {
        // one of the inputs in flight ended the server
        if (failures.length === 0) {
          failures.push(
            `the ${dead.name} server ended ${dead.exitDescription}\n  ${await save([...inFlight])}`,
          );
        }
        return;
      }
      inFlight.delete(input);
      if (problem !== undefined) failures.push(`${problem}\n  ${await save([input])}`);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return failures;
}

let folder: Promise<string> | undefined;
let files = 0;

/** Saves inputs to a file and returns the command that replays them. */
async function save(inputs: readonly FuzzInput[]): Promise<string> {
  folder ??= mkdtemp(join(tmpdir(), "clipstack-fuzz-"));
  const file = join(await folder, `${++files}.json`);
  await writeFile(file, JSON.stringify(inputs));
  return `replay: npm run lab -- fuzz --replay ${file}`;
}

/** Parses bytes that `Buffer.toJSON` wrote. */
function revive(_key: string, value: unknown): unknown {
  const { type, data } = (value ?? {}) as { readonly type?: unknown; readonly data?: unknown };
  return type === "Buffer" && Array.isArray(data) ? Buffer.from(data) : value;
}
