import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { parseProcessStat } from "../server/cpu-use.ts";
import { BenchError } from "../src/bench-error.ts";
import { startChild } from "../src/child-process.ts";
import { median } from "../src/statistics.ts";
import { type PeerLoad, runHey } from "./peers.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { runOurs, tsxCommand } from "./run-load.ts";

/** How fast the generator itself is: against a server that does nothing, beside hey. */

export interface CompareOptions {
  /** Path of hey. */
  readonly hey: string;
  readonly rounds: number;
  /** Of each measurement. */
  readonly seconds: number;
  /** For the rate; the latency is that of one client. */
  readonly concurrency: number;
  readonly requestBytes: number;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
}

export interface GeneratorRound {
  readonly generator: "ours" | "hey";
  /** Of as many clients as were asked for. */
  readonly requestsPerSecond: number;
  /**
   * The same for each second of processor time that the sending process used: what others do on the machine hardly
   * changes it. NaN where there is no `/proc`.
   */
  readonly perProcessorSecond: number;
  /** Of one client, to the server and back: what the generator adds to a latency is less. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface Comparison {
  readonly rounds: readonly GeneratorRound[];
  /** Whether each generator had one core to itself. */
  readonly pinned: boolean;
}

const generators = ["ours", "hey"] as const;
const requestCore = "0";
const serverCore = "1";

/** Measure both in alternating rounds, each in a fresh process on one core, the server on another. */
export async function compareGenerators(options: CompareOptions): Promise<Comparison> {
  const pinned = process.platform === "linux" && availableParallelism() >= 2 && (await canPin());
  const cores = pinned ? requestCore : undefined;
  const rounds: GeneratorRound[] = [];
  await withNullServer("http", pinned ? serverCore : undefined, options.signal, async (url) => {
    const requests = nullRequests(url, options.requestBytes);
    for (let round = 0; round < options.rounds; round++) {
      for (const generator of round % 2 === 0 ? generators : generators.toReversed()) {
        const { seconds, signal } = options;
        const measure = (concurrency: number) =>
          figuresOf(generator, options.hey, requests, { concurrency, seconds, cores, signal });
        const { requestsPerSecond, perProcessorSecond } = await measure(options.concurrency);
        const { p50Ms, p99Ms } = await measure(1);
        rounds.push({ generator, requestsPerSecond, perProcessorSecond, p50Ms, p99Ms });
        options.say(
          `round ${round + 1}, ${generator}: ${Math.round(requestsPerSecond)} requests/s, ` +
            `one client p50 ${p50Ms.toFixed(3)} ms, p99 ${p99Ms.toFixed(3)} ms`,
        );
      }
    }
  });
  return { rounds, pinned };
}

/** Our rate as a part of hey's, medians of the rounds. */
export function rateRatio(rounds: readonly GeneratorRound[]): number {
  const of = (generator: GeneratorRound["generator"]) =>
    medianOf(rounds, generator, ({ requestsPerSecond }) => requestsPerSecond);
  return of("ours") / of("hey");
}

/** The comparison in words: medians, and the value of every round. */
export function describeComparison({ rounds, pinned }: Comparison): string {
  const line = (
    what: string,
    generator: GeneratorRound["generator"],
    value: (round: GeneratorRound) => number,
    digits: number,
  ) => {
    const values = rounds.filter((round) => round.generator === generator).map(value);
    const all = values.map((one) => one.toFixed(digits)).join(", ");
    return `  ${generator.padEnd(5)} ${what}: ${medianOf(rounds, generator, value).toFixed(digits)} (${all})`;
  };
  return [
    `${rounds.length / 2} rounds against a server that does nothing, ${pinned ? "each generator on one core, the server on another" : "nothing held to a core"}`,
    ...generators.map((one) => line("requests/s", one, (round) => round.requestsPerSecond, 0)),
    ...generators.map((one) =>
      line(
        "requests for each second of processor time",
        one,
        (round) => round.perProcessorSecond,
        0,
      ),
    ),
    ...generators.map((one) => line("one client, p50 ms", one, (round) => round.p50Ms, 3)),
    ...generators.map((one) => line("one client, p99 ms", one, (round) => round.p99Ms, 3)),
    `ours sends ${rateRatio(rounds).toFixed(2)} times as many requests a second as hey`,
  ].join("\n");
}

function medianOf(
  rounds: readonly GeneratorRound[],
  generator: GeneratorRound["generator"],
  value: (round: GeneratorRound) => number,
): number {
  const own = rounds.filter((round) => round.generator === generator);
  return median(own.map(value)) ?? Number.NaN;
}

async function figuresOf(
  generator: GeneratorRound["generator"],
  hey: string,
  requests: PreparedRequests,
  load: PeerLoad,
): Promise<Omit<GeneratorRound, "generator">> {
  if (generator === "hey") {
    const before = childrenCpuMs();
    const figures = await runHey(hey, requests, load);
    const cpuSeconds = (childrenCpuMs() - before) / 1_000;
    const count = figures.requestsPerSecond * load.seconds;
    return { ...figures, perProcessorSecond: count / cpuSeconds };
  }
  const { requestsPerSecond, latencyMs, errorsInAll, client } = await runOurs(requests, load);
  const [error] = Object.keys(errorsInAll);
  if (error !== undefined) throw new BenchError(`the null server: ${error}`);
  return {
    requestsPerSecond,
    perProcessorSecond: requestsPerSecond / client.busiestWorkerCores,
    p50Ms: latencyMs?.p50 ?? Number.NaN,
    p99Ms: latencyMs?.p99 ?? Number.NaN,
  };
}

/** Processor time of the children that have ended. */
function childrenCpuMs(): number {
  try {
    const { user, system } = process.cpuUsage();
    return (
      parseProcessStat(readFileSync("/proc/self/stat", "utf8")).cpuMs - (user + system) / 1_000
    );
  } catch {
    return Number.NaN;
  }
}

/** Requests whose content does not matter. */
export function nullRequests(url: string, bytes: number): PreparedRequests {
  return {
    transport: url.startsWith("http") ? "http" : "grpc",
    url,
    path: "/null",
    headers: { "content-type": "application/octet-stream" },
    requests: [{ headers: {}, body: new Uint8Array(bytes) }],
    imagesPerRequest: 1,
  };
}

/** A null server in a process of its own, while `work` uses it. */
export async function withNullServer<T>(
  kind: "http" | "grpc",
  cores: string | undefined,
  signal: AbortSignal,
  work: (url: string) => Promise<T>,
): Promise<T> {
  const pin = cores === undefined ? [] : ["taskset", "-c", cores];
  const child = startChild({
    command: [...pin, ...tsxCommand("null-server-main.ts")],
    args: [kind],
    env: {},
  });
  try {
    while (child.lastLines(1).length === 0) {
      signal.throwIfAborted();
      if (child.exit !== undefined) throw new BenchError("the null server did not start");
      await sleep(20);
    }
    return await work(child.lastLines(1)[0] ?? "");
  } finally {
    await child.stop(2);
  }
}

async function canPin(): Promise<boolean> {
  const { code } = await startChild({
    command: ["taskset", "-c", `${requestCore},${serverCore}`, process.execPath, "--version"],
    args: [],
    env: {},
  }).exited;
  return code === 0;
}
