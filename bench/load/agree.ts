import { openclipVitB32 } from "../../contract/model-signature.ts";
import { UserError } from "../../contract/user-error.ts";
import { tableOf } from "../report/markdown.ts";
import { median } from "../stats/statistics.ts";
import { type PeerFigures as Figures, type PeerLoad, runHey, runPerfAnalyzer } from "./peers.ts";
import { type LoadImage, prepareRequests } from "./prepare.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { runOurs } from "./run-load.ts";

/** Whether our generator sees what others see: the same server, the same load, in alternating rounds. */

/** Servers to load, each with the program that loads it beside ours. */
export interface AgreeTargets {
  /** A Triton at `http://host:port` and `host:port`, and the path of perf_analyzer. */
  readonly triton?: {
    readonly http: string;
    readonly grpc: string;
    readonly perfAnalyzer: string;
  };
  /** An embed API at `http://host:port`, and the path of hey. */
  readonly embed?: { readonly http: string; readonly hey: string };
}

export interface AgreeOptions {
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
  readonly endpoint: "onnx-http" | "onnx-grpc" | "embed-http";
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
  readonly endpoint: AgreeRow["endpoint"];
  readonly peer: AgreeRow["peer"];
  readonly ours: (load: PeerLoad) => Promise<Figures>;
  readonly theirs: (load: PeerLoad) => Promise<Figures>;
}

/** Measures each path with ours and with the other program; reverses the order in each round. */
export async function compareWithPeers(
  targets: AgreeTargets,
  options: AgreeOptions,
): Promise<readonly AgreeRow[]> {
  const rows: AgreeRow[] = [];
  for (const pair of await pairsOf(targets, options)) {
    const seen = { ours: [] as Figures[], theirs: [] as Figures[] };
    for (let round = 0; round < options.rounds; round++) {
      const order = ["ours", "theirs"] as const;
      for (const who of round % 2 === 0 ? order : order.toReversed()) {
        const found = await pair[who](options);
        seen[who].push(found);
        options.say(
          `round ${round + 1}, ${pair.endpoint}, ${who === "ours" ? "clipstack" : pair.peer}: ` +
            `${found.requestsPerSecond.toFixed(1)} requests/s, p50 ${found.p50Ms.toFixed(2)} ms, p95 ${found.p95Ms.toFixed(2)} ms`,
        );
      }
    }
    rows.push({ endpoint: pair.endpoint, peer: pair.peer, ...seen });
  }
  return rows;
}

async function pairsOf(
  { triton, embed }: AgreeTargets,
  { image }: AgreeOptions,
): Promise<readonly Pair[]> {
  const { name: model } = openclipVitB32;
  const pairs: Pair[] = [];
  const add = async (
    target: { readonly endpoint: AgreeRow["endpoint"]; readonly url: string },
    peer: AgreeRow["peer"],
    theirs: (requests: PreparedRequests, load: PeerLoad) => Promise<Figures>,
  ) => {
    const payload = target.endpoint === "embed-http" ? "jpeg" : "fp32";
    const body = { payload, serialization: "binary" } as const;
    const requests = await prepareRequests({ ...target, model }, body, [image], 1);
    pairs.push({
      endpoint: target.endpoint,
      peer,
      ours: async (load) => ours(await runOurs(requests, load)),
      theirs: (load) => theirs(requests, load),
    });
  };
  if (triton !== undefined) {
    const { http, grpc, perfAnalyzer } = triton;
    for (const protocol of ["http", "grpc"] as const) {
      const url = { http, grpc }[protocol];
      const address = url.replace(/^http:\/\//, "");
      await add({ endpoint: `onnx-${protocol}`, url }, "perf_analyzer", (_, load) =>
        runPerfAnalyzer(perfAnalyzer, { protocol, address, model }, load),
      );
    }
  }
  if (embed !== undefined) {
    await add({ endpoint: "embed-http", url: embed.http }, "hey", (requests, load) =>
      runHey(embed.hey, requests, load),
    );
  }
  return pairs;
}

function ours({
  requestsPerSecond,
  latencyMs,
  errorsWithWarmup,
}: Awaited<ReturnType<typeof runOurs>>): Figures {
  const [error] = Object.entries(errorsWithWarmup);
  if (error !== undefined) throw new UserError(`clipstack: ${error[1]} requests: ${error[0]}`);
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

/** Markdown table of the medians of the rounds, each round's value, and the ratio. */
export function agreeTable(rows: readonly AgreeRow[]): string {
  const cells = rows.flatMap((row) =>
    figures.map((figure) => {
      const values = (rounds: readonly Figures[]) => {
        const all = rounds.map((round) => round[figure]);
        return `${(median(all) ?? Number.NaN).toFixed(2)} (${all.map((one) => one.toFixed(2)).join(", ")})`;
      };
      const theirs = `${row.peer}: ${values(row.theirs)}`;
      const ratio = ratioOf(row, figure).toFixed(3);
      return [row.endpoint, titles[figure], values(row.ours), theirs, ratio];
    }),
  );
  const head = ["path", "figure", "clipstack: median (rounds)", "other", "median ratio of a round"];
  return tableOf(head, cells);
}
