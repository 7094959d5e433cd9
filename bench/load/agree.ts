import { BenchError } from "../src/bench-error.ts";
import { median } from "../src/statistics.ts";
import { type PeerFigures as Figures, type PeerLoad, runHey, runPerfAnalyzer } from "./peers.ts";
import { type LoadImage, prepareRequests } from "./prepare.ts";
import { runOurs } from "./run-load.ts";

/** Whether our generator sees what others see: the same server, the same load, in alternating rounds. */

export interface AgreeTargets {
  /** `http://host:port` of a Triton, and of an embed API; `host:port` of a Triton's gRPC. */
  readonly http?: string;
  readonly grpc?: string;
  readonly embed?: string;
  readonly model: string;
}

export interface AgreeOptions {
  /** Paths of the programs; each is needed where there is an address for it. */
  readonly perfAnalyzer?: string;
  readonly hey?: string;
  readonly image: LoadImage;
  readonly rounds: number;
  readonly seconds: number;
  readonly concurrency: number;
  /** Cores that each generator is held to; see {@link PeerLoad}. */
  readonly cores?: string;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
}

const figures = ["requestsPerSecond", "p50Ms", "p95Ms"] as const;
export type Figure = (typeof figures)[number];

/** What both programs saw on one path, round by round. */
export interface AgreeRow {
  readonly path: "onnx-http" | "onnx-grpc" | "embed-http";
  readonly peer: "perf_analyzer" | "hey";
  readonly ours: readonly Figures[];
  readonly theirs: readonly Figures[];
}

/** Ours divided by theirs of the same round, which the machine treated alike: median of the rounds. */
export function ratioOf({ ours, theirs }: AgreeRow, figure: Figure): number {
  const ratios = ours.map((round, i) => round[figure] / (theirs[i]?.[figure] ?? Number.NaN));
  return median(ratios) ?? Number.NaN;
}

/** Largest distance of a ratio from 1. */
export function disagreement(rows: readonly AgreeRow[]): number {
  return Math.max(
    ...rows.flatMap((row) => figures.map((figure) => Math.abs(ratioOf(row, figure) - 1))),
  );
}

interface Pair {
  readonly path: AgreeRow["path"];
  readonly peer: AgreeRow["peer"];
  readonly ours: (load: PeerLoad) => Promise<Figures>;
  readonly theirs: (load: PeerLoad) => Promise<Figures>;
}

/**
 * Measure each path with ours and with the other program, the order reversed in each round.
 *
 * @throws {BenchError} where an address has no program to compare with, or there is no address.
 */
export async function compareWithPeers(
  targets: AgreeTargets,
  options: AgreeOptions,
): Promise<readonly AgreeRow[]> {
  const pairs = await pairsOf(targets, options);
  if (pairs.length === 0) throw new BenchError("nothing to compare: give an address");
  const rows: AgreeRow[] = [];
  for (const pair of pairs) {
    const seen = { ours: [] as Figures[], theirs: [] as Figures[] };
    for (let round = 0; round < options.rounds; round++) {
      const order = ["ours", "theirs"] as const;
      for (const who of round % 2 === 0 ? order : order.toReversed()) {
        const found = await pair[who](options);
        seen[who].push(found);
        options.say(
          `round ${round + 1}, ${pair.path}, ${who === "ours" ? "clipstack" : pair.peer}: ` +
            `${found.requestsPerSecond.toFixed(1)} requests/s, p50 ${found.p50Ms.toFixed(2)} ms, p95 ${found.p95Ms.toFixed(2)} ms`,
        );
      }
    }
    rows.push({ path: pair.path, peer: pair.peer, ...seen });
  }
  return rows;
}

async function pairsOf(
  { http, grpc, embed, model }: AgreeTargets,
  { perfAnalyzer, hey, image }: AgreeOptions,
): Promise<readonly Pair[]> {
  const pairs: Pair[] = [];
  const fp32 = { payload: "fp32", serialization: "binary" } as const;
  for (const [protocol, url] of [
    ["http", http],
    ["grpc", grpc],
  ] as const) {
    if (url === undefined) continue;
    if (perfAnalyzer === undefined) {
      throw new BenchError(`--${protocol} ${url}: give --perf-analyzer to compare with`);
    }
    const path = `onnx-${protocol}` as const;
    const requests = await prepareRequests({ path, url, model }, fp32, [image], 1);
    const address = url.replace(/^http:\/\//, "");
    pairs.push({
      path,
      peer: "perf_analyzer",
      ours: async (load) => ours(await runOurs(requests, load)),
      theirs: (load) => runPerfAnalyzer(perfAnalyzer, { protocol, address, model }, load),
    });
  }
  if (embed !== undefined) {
    if (hey === undefined) throw new BenchError(`--embed ${embed}: give --hey to compare with`);
    const requests = await prepareRequests(
      { path: "embed-http", url: embed, model },
      { payload: "encoded", serialization: "binary" },
      [image],
      1,
    );
    pairs.push({
      path: "embed-http",
      peer: "hey",
      ours: async (load) => ours(await runOurs(requests, load)),
      theirs: (load) => runHey(hey, requests, load),
    });
  }
  return pairs;
}

function ours({
  requestsPerSecond,
  latencyMs,
  errorsInAll,
}: Awaited<ReturnType<typeof runOurs>>): Figures {
  const [error] = Object.entries(errorsInAll);
  if (error !== undefined) throw new BenchError(`clipstack: ${error[1]} requests: ${error[0]}`);
  return {
    requestsPerSecond,
    p50Ms: latencyMs?.p50 ?? Number.NaN,
    p95Ms: latencyMs?.p95 ?? Number.NaN,
  };
}

const titles: Readonly<Record<Figure, string>> = {
  requestsPerSecond: "requests/s",
  p50Ms: "p50 ms",
  p95Ms: "p95 ms",
};

/** A table: medians of the rounds, each round's value, and the ratio. */
export function agreeTable(rows: readonly AgreeRow[]): string {
  const cells = rows.flatMap((row) =>
    figures.map((figure) => {
      const values = (rounds: readonly Figures[]) => {
        const all = rounds.map((round) => round[figure]);
        return `${(median(all) ?? Number.NaN).toFixed(2)} (${all.map((one) => one.toFixed(2)).join(", ")})`;
      };
      return `| ${row.path} | ${titles[figure]} | ${values(row.ours)} | ${row.peer}: ${values(row.theirs)} | ${ratioOf(row, figure).toFixed(3)} |`;
    }),
  );
  return [
    "| path | figure | clipstack: median (rounds) | other | ratio in a round, median |",
    "| --- | --- | --- | --- | --- |",
    ...cells,
  ].join("\n");
}
