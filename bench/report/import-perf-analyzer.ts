import { basename } from "node:path";
import { parse } from "csv-parse/sync";
import { UserError } from "../../contract/user-error.ts";
import type { BenchRecord } from "../record/bench-record.ts";

type Imported = BenchRecord["imported"][number];
type Row = Imported["rows"][number];

/**
 * Parses the CSV of NVIDIA's perf_analyzer (`-f file.csv`): a row per concurrency or rate, times in microseconds.
 *
 * @param label - Load of the file, as `onnx-http b8`; without it, the file name.
 */
export function parsePerfAnalyzer(text: string, file: string, label?: string): Imported {
  let lines: Record<string, string>[];
  try {
    lines = parse(text, { columns: true, skip_empty_lines: true, trim: true, bom: true });
  } catch (error) {
    throw new UserError(`${file}: must be CSV: ${(error as Error).message}`);
  }
  const [first] = lines;
  const by = first === undefined ? undefined : loads.find((name) => name in first);
  if (first === undefined || by === undefined || !(rate in first)) {
    throw new UserError(
      `${file}: must be CSV of perf_analyzer with the columns ${loads.join(" or ")} and ${rate}`,
    );
  }
  const name = label ?? basename(file).replace(/\.csv$/i, "");
  return {
    program: "perf_analyzer",
    file: basename(file),
    rows: lines.map((line, i) => rowOf(line, by, name, `${file}: row ${i + 1}`)),
  };
}

const loads = ["Concurrency", "Request Rate"] as const;
const rate = "Inferences/Second";
const atLeastZero = (value: number) => value >= 0;
const wholeAndPositive = (value: number) => Number.isInteger(value) && value >= 1;

function rowOf(
  line: Readonly<Record<string, string>>,
  by: (typeof loads)[number],
  label: string,
  location: string,
): Row {
  const number = (column: string, rule = "a number, at least 0", ok = atLeastZero): number => {
    const value = Number(line[column]);
    if (line[column] === "" || !Number.isFinite(value) || !ok(value)) {
      throw new UserError(
        `${location}: ${column} must be ${rule}, got ${JSON.stringify(line[column])}`,
      );
    }
    return value;
  };
  const ms = (column: string): number | undefined =>
    line[column] === undefined || line[column] === "" ? undefined : number(column) / 1_000;
  return {
    label,
    ...(by === "Concurrency"
      ? { concurrency: number("Concurrency", "a whole number, at least 1", wholeAndPositive) }
      : { ratePerSecond: number("Request Rate") }),
    inferencesPerSecond: number(rate),
    p50Ms: ms("p50 latency"),
    p90Ms: ms("p90 latency"),
    p95Ms: ms("p95 latency"),
    p99Ms: ms("p99 latency"),
    queueMs: ms("Server Queue"),
    inputMs: ms("Server Compute Input"),
    inferMs: ms("Server Compute Infer"),
    outputMs: ms("Server Compute Output"),
  };
}
