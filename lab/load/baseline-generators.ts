import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parsePerfAnalyzer } from "../../bench/report/import-perf-analyzer.ts";
import { UserError } from "../../contract/user-error.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { runToEnd } from "./run-process.ts";

/** Load generators used as baselines: hey and NVIDIA's perf_analyzer. */

/** Results of a closed-loop load. */
export interface BaselineFigures {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

/** Environment variable with the path of hey, which `.ci/hey` builds. */
export const heyVariable = "CLIPSTACK_HEY";

export interface BaselineLoad {
  readonly concurrency: number;
  readonly seconds: number;
  /** CPU list for `taskset`; if absent, all cores. */
  readonly cores?: string;
  readonly signal: AbortSignal;
}

/** `taskset -c CORES`, or an empty command prefix. */
export function pinned(cores: string | undefined): readonly string[] {
  return cores === undefined ? [] : ["taskset", "-c", cores];
}

/** Runs hey, which repeats the first request without a warm-up. */
export async function runHey(
  program: string,
  requests: PreparedRequests,
  { concurrency, seconds, cores, signal }: BaselineLoad,
): Promise<BaselineFigures> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-hey-"));
  try {
    const [request] = requests.requests;
    const body = join(folder, "body");
    writeFileSync(body, request?.body ?? "");
    const headers = Object.entries({ ...requests.headers, ...request?.headers });
    const type = headers.find(([name]) => name === "content-type")?.[1];
    const text = await run(
      [
        ...pinned(cores),
        program,
        ...["-z", `${seconds}s`, "-c", String(concurrency), "-m", "POST", "-D", body],
        // its default is 20 seconds
        ...["-t", "60", "-T", type ?? "application/octet-stream"],
        ...(cores === undefined ? [] : ["-cpus", "1"]),
        ...headers
          .filter(([name]) => name !== "content-type" && name !== "content-length")
          .flatMap(([name, value]) => ["-H", `${name}: ${value}`]),
        `${requests.url}${requests.path}`,
      ],
      "hey",
      signal,
    );
    return parseHey(text);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Reads the figures that `hey` prints. */
export function parseHey(text: string): BaselineFigures {
  const failed = [...text.matchAll(/^\s*\[(\d+)\]\s+(.+)$/gm)].find(
    ([, number, rest]) => number !== "200" || !/^\d+ responses/.test(rest ?? ""),
  );
  if (failed !== undefined) throw new UserError(`hey: ${failed[0].trim().replace(/\s+/g, " ")}`);
  const rate = /Requests\/sec:\s+([\d.]+)/.exec(text)?.[1];
  if (rate === undefined) throw new UserError("hey: its output has no 'Requests/sec'");
  // hey omits percentiles of few requests, and rounds to 0.1 ms
  const percent = (p: number) =>
    1_000 * Number(new RegExp(`${p}%+ in ([\\d.]+) secs`).exec(text)?.[1] ?? Number.NaN);
  return {
    requestsPerSecond: Number(rate),
    p50Ms: percent(50),
    p95Ms: percent(95),
  };
}

export interface PerfAnalyzerTarget {
  readonly protocol: "http" | "grpc";
  /** `host:port` */
  readonly address: string;
  readonly model: string;
  /** Length of the strings that perf_analyzer sends as BYTES inputs. */
  readonly stringBytes?: number;
}

/** Runs perf_analyzer with its own warm-up, windows and stability rule on random inputs. */
export async function runPerfAnalyzer(
  program: string,
  { protocol, address, model, stringBytes }: PerfAnalyzerTarget,
  { concurrency, seconds, cores, signal }: BaselineLoad,
): Promise<BaselineFigures> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-perf-"));
  try {
    const report = join(folder, "report.csv");
    await run(
      [
        ...pinned(cores),
        program,
        ...["-m", model, "-i", protocol, "-u", address, "-b", "1"],
        ...["--concurrency-range", `${concurrency}:${concurrency}`, "-f", report],
        ...["--measurement-interval", String(Math.round((seconds * 1_000) / 3))],
        // always three windows, so that both programs run for the same time
        ...["--max-trials", "3", "--stability-percentage", "999"],
        ...(stringBytes === undefined ? [] : ["--string-length", String(stringBytes)]),
      ],
      "perf_analyzer",
      signal,
    );
    const [row] = parsePerfAnalyzer(readFileSync(report, "utf8"), report).rows;
    return {
      // with a batch of one image
      requestsPerSecond: row?.inferencesPerSecond ?? Number.NaN,
      p50Ms: row?.p50Ms ?? Number.NaN,
      p95Ms: row?.p95Ms ?? Number.NaN,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Runs a program to its end and returns its output. */
async function run(command: readonly string[], name: string, signal: AbortSignal): Promise<string> {
  const child = await runToEnd({ command, args: [], env: {} }, name, signal);
  return child.lastLines(1_000).join("\n");
}
