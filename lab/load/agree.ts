import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { tableOf } from "../../report/render/markdown.ts";
import type { LoadImage } from "../../target/requests/load-items.ts";
import { prepareRequests } from "../../target/requests/prepare.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { median } from "../../target/stats/statistics.ts";
import {
  type BaselineLoad,
  type BaselineFigures as Figures,
  runHey,
  runPerfAnalyzer,
} from "./baseline-generators.ts";
import { runClipstackLoad } from "./run-load.ts";

/** Servers under load, each with the path of its baseline load generator. */
export interface AgreeTargets {
  /** HTTP (`http://host:port`) and gRPC (`host:port`) addresses of a Triton server, and the path of perf_analyzer. */
  readonly triton?: {
    readonly http: string;
    readonly grpc: string;
    readonly perfAnalyzer: string;
  };
  /** Address of an embed API (`http://host:port`) and the path of hey. */
  readonly embed?: { readonly http: string; readonly hey: string };
}

export interface AgreeOptions {
  readonly image: LoadImage;
  readonly rounds: number;
  readonly seconds: number;
  readonly concurrency: number;
  /** CPU list that each generator is pinned to; see {@link BaselineLoad}. */
  readonly cores?: string;
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
}

const figures = ["requestsPerSecond", "p50Ms", "p95Ms"] as const;
export type Figure = (typeof figures)[number];

/** Figures of both load generators for one endpoint, per round. */
export interface AgreementRow {
  readonly endpoint: "onnx-http" | "onnx-grpc" | "embed-http";
  readonly baseline: "perf_analyzer" | "hey";
  readonly clipstackRounds: readonly Figures[];
  readonly baselineRounds: readonly Figures[];
}

/** Median over the rounds of clipstack's figure divided by the baseline's. Comparing within a round cancels slow phases of the machine. */
export function medianRatio(
  { clipstackRounds, baselineRounds }: AgreementRow,
  figure: Figure,
): number {
  const ratios = clipstackRounds.map(
    (round, i) => round[figure] / (baselineRounds[i]?.[figure] ?? Number.NaN),
  );
  return median(ratios) ?? Number.NaN;
}

/** Maximum deviation of a median ratio from 1. */
export function disagreement(rows: readonly AgreementRow[]): number {
  return Math.max(
    ...rows.flatMap((row) => figures.map((figure) => Math.abs(medianRatio(row, figure) - 1))),
  );
}

interface Comparison {
  readonly endpoint: AgreementRow["endpoint"];
  readonly baseline: AgreementRow["baseline"];
  readonly runClipstack: (load: BaselineLoad) => Promise<Figures>;
  readonly runBaseline: (load: BaselineLoad) => Promise<Figures>;
}

/** Measures each endpoint with both load generators, in an order that alternates between rounds. */
export async function compareWithBaselines(
  targets: AgreeTargets,
  options: AgreeOptions,
): Promise<readonly AgreementRow[]> {
  const rows: AgreementRow[] = [];
  for (const comparison of await comparisonsOf(targets, options)) {
    const { endpoint, baseline, runClipstack, runBaseline } = comparison;
    const clipstackRounds: Figures[] = [];
    const baselineRounds: Figures[] = [];
    for (let round = 0; round < options.rounds; round++) {
      const measure = async (name: string, run: Comparison["runBaseline"], results: Figures[]) => {
        const result = await run(options);
        results.push(result);
        options.log(
          `round ${round + 1}, ${endpoint}, ${name}: ` +
            `${result.requestsPerSecond.toFixed(1)} requests/s, p50 ${result.p50Ms.toFixed(2)} ms, p95 ${result.p95Ms.toFixed(2)} ms`,
        );
      };
      const measureClipstack = () => measure("clipstack", runClipstack, clipstackRounds);
      const measureBaseline = () => measure(baseline, runBaseline, baselineRounds);
      const order =
        round % 2 === 0 ? [measureClipstack, measureBaseline] : [measureBaseline, measureClipstack];
      for (const run of order) await run();
    }
    rows.push({ endpoint, baseline, clipstackRounds, baselineRounds });
  }
  return rows;
}

async function comparisonsOf(
  { triton, embed }: AgreeTargets,
  { image }: AgreeOptions,
): Promise<readonly Comparison[]> {
  const model = tritonModelName(defaultModel, "fp32");
  const comparisons: Comparison[] = [];
  const add = async (
    target: { readonly endpoint: AgreementRow["endpoint"]; readonly url: string },
    baseline: AgreementRow["baseline"],
    runBaseline: (requests: PreparedRequests, load: BaselineLoad) => Promise<Figures>,
  ) => {
    const payload = target.endpoint === "embed-http" ? "jpeg" : "fp32";
    const format = { payload, serialization: "binary" } as const;
    const requests = await prepareRequests(
      { ...target, model, spec: defaultModel },
      format,
      [image],
      1,
    );
    comparisons.push({
      endpoint: target.endpoint,
      baseline,
      runClipstack: async (load) => clipstackFigures(await runClipstackLoad(requests, load)),
      runBaseline: (load) => runBaseline(requests, load),
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
  return comparisons;
}

function clipstackFigures({
  requestsPerSecond,
  latencyMs,
  errorsWithWarmup,
}: Awaited<ReturnType<typeof runClipstackLoad>>): Figures {
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

/** Markdown table with the median, the value of each round and the median ratio. */
export function agreeTable(rows: readonly AgreementRow[]): string {
  const cells = rows.flatMap((row) =>
    figures.map((figure) => {
      const figureText = (rounds: readonly Figures[]) => {
        const values = rounds.map((round) => round[figure]);
        return `${(median(values) ?? Number.NaN).toFixed(2)} (${values.map((value) => value.toFixed(2)).join(", ")})`;
      };
      const baseline = `${row.baseline}: ${figureText(row.baselineRounds)}`;
      const ratio = medianRatio(row, figure).toFixed(3);
      return [row.endpoint, titles[figure], figureText(row.clipstackRounds), baseline, ratio];
    }),
  );
  const head = ["endpoint", "figure", "clipstack: median (rounds)", "baseline", "median ratio"];
  return tableOf(head, cells);
}
