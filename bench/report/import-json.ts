import { basename } from "node:path";
import { z } from "zod";
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord } from "../record/bench-record.ts";

type Imported = BenchRecord["imported"][number];
type Row = Omit<Imported["rows"][number], "label">;

const atLeastZero = z.number().min(0);
const concurrency = z.int().min(1).nullish();

/** `profile_export_aiperf.json`. Older releases have `loadgen` in place of `phases`. */
const aiperf = z.object({
  request_throughput: z.object({ unit: z.string(), avg: atLeastZero }),
  request_latency: z
    .object({
      unit: z.literal("ms"),
      p50: atLeastZero.optional(),
      p90: atLeastZero.optional(),
      p95: atLeastZero.optional(),
      p99: atLeastZero.optional(),
    })
    .optional(),
  input_config: z.object({
    phases: z
      .array(z.object({ kind: z.string().optional(), concurrency, rate: atLeastZero.nullish() }))
      .optional(),
    loadgen: z.object({ concurrency, request_rate: atLeastZero.nullish() }).optional(),
  }),
});

/** Result of `vllm bench serve --save-result`. Percentiles other than the median are those of `--metric-percentiles`. */
const vllmBench = z.object({
  request_throughput: atLeastZero,
  /** Inputs per second, of embedding and other pooling models. */
  input_sequence_throughput: atLeastZero.optional(),
  max_concurrency: concurrency,
  request_rate: z.union([atLeastZero, z.literal("inf")]),
  median_e2el_ms: atLeastZero.optional(),
  p90_e2el_ms: atLeastZero.optional(),
  p95_e2el_ms: atLeastZero.optional(),
  p99_e2el_ms: atLeastZero.optional(),
});

function aiperfRow(run: z.infer<typeof aiperf>, imagesPerRequest: number): Row {
  const { phases, loadgen } = run.input_config;
  const phase = phases?.findLast(({ kind = "profiling" }) => kind === "profiling");
  const latency = run.request_latency;
  return {
    ...loadOf(
      phase?.concurrency ?? loadgen?.concurrency,
      phase?.rate ?? loadgen?.request_rate ?? undefined,
    ),
    inferencesPerSecond: run.request_throughput.avg * imagesPerRequest,
    p50Ms: latency?.p50,
    p90Ms: latency?.p90,
    p95Ms: latency?.p95,
    p99Ms: latency?.p99,
  };
}

function vllmRow(run: z.infer<typeof vllmBench>, imagesPerRequest: number): Row {
  const { request_rate: rate } = run;
  return {
    ...loadOf(run.max_concurrency, rate === "inf" ? undefined : rate),
    inferencesPerSecond: run.input_sequence_throughput ?? run.request_throughput * imagesPerRequest,
    p50Ms: run.median_e2el_ms,
    p90Ms: run.p90_e2el_ms,
    p95Ms: run.p95_e2el_ms,
    p99Ms: run.p99_e2el_ms,
  };
}

/** A rate makes an open loop, which the concurrency only limits. */
function loadOf(clients: number | null | undefined, rate: number | undefined) {
  if (rate !== undefined) return { ratePerSecond: rate };
  return clients == null ? {} : { concurrency: clients };
}

/**
 * Parses the JSON result of AIPerf or `vllm bench serve`; with `--append-result`, one result per line.
 *
 * @param label - Load of the file, as `openai-http b8`; without it, the file name. Its batch size converts requests to images.
 */
export function parseJsonResult(text: string, file: string, label?: string): Imported {
  const imagesPerRequest = Number(/ b(\d+)$/.exec(label ?? "")?.[1] ?? 1);
  const lines = text.trim().split(/\n(?=\{)/);
  const runs = lines.map((line) => parseJson(line, file) as { request_throughput?: unknown });
  const throughput = runs[0]?.request_throughput;
  const isAiperf = typeof throughput === "object" && throughput !== null;
  if (!isAiperf && typeof throughput !== "number") {
    throw new UserError(
      `${file}: must be profile_export_aiperf.json of AIPerf or a result of vllm bench serve, which have request_throughput`,
    );
  }
  const rows = isAiperf
    ? runs.map((run) => aiperfRow(parseAs(aiperf, run, file), imagesPerRequest))
    : runs.map((run) => vllmRow(parseAs(vllmBench, run, file), imagesPerRequest));
  const name = label ?? basename(file).replace(/\.json$/i, "");
  return {
    program: isAiperf ? "AIPerf" : "vllm bench",
    file: basename(file),
    rows: rows.map((row) => ({ label: name, ...row })),
  };
}
