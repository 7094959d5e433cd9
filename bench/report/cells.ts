import {
  type BenchRecord,
  benchPathName,
  type Cell,
  type Conditions,
  type LoadShape,
  type Price,
  type StudyId,
} from "../record/bench-record.ts";
import { mean } from "../stats/statistics.ts";
import { counted, formatPercent } from "./document.ts";

/** Questions about cells that every report asks. Pure. */

/** Whether a figure can be relied on. */
export type Trust =
  /** Measured, and its windows agree. */
  | "good"
  /** Its windows never agreed, or there were too few to say. */
  | "unstable"
  /** The generator says that it is not the server's. */
  | "invalid"
  /** Nothing was answered. */
  | "empty";

export function trustOf(cell: Cell): Trust {
  if (cell.samples === 0 || cell.latencyMs === undefined) return "empty";
  if (cell.invalid.length > 0) return "invalid";
  return cell.stability.verdict === "stable" ? "good" : "unstable";
}

/** In words for a table; nothing where all is well. */
export function trustText(cell: Cell): string {
  switch (trustOf(cell)) {
    case "good":
      return "";
    case "unstable":
      return stabilityWords[cell.stability.verdict];
    case "invalid":
      return "invalid";
    case "empty":
      return "no answer";
  }
}

const stabilityWords: Readonly<Record<Cell["stability"]["verdict"], string>> = {
  stable: "",
  unstable: "unstable",
  short: "too short",
  interrupted: "interrupted",
};

/** Why a figure is not to be relied on, in whole sentences. */
export function doubtsOf(cell: Cell): readonly string[] {
  const { verdict, throughputDeviation, p99Deviation, tolerance } = cell.stability;
  const deviations = [
    throughputDeviation === undefined ? "" : `throughput by ${formatPercent(throughputDeviation)}`,
    p99Deviation === undefined ? "" : `p99 by ${formatPercent(p99Deviation)}`,
  ].filter((part) => part !== "");
  const words: Readonly<Record<typeof verdict, string>> = {
    stable: "",
    unstable: `Its windows never agreed within ${formatPercent(tolerance)}${deviations.length === 0 ? "" : `: ${deviations.join(", ")}`}.`,
    short: "Too few windows were measured to say whether it is stable.",
    interrupted: "It was interrupted.",
  };
  return [
    ...cell.invalid,
    ...(isFailing(cell) ? [`${formatPercent(failedShare(cell))} of its requests failed.`] : []),
    ...(words[verdict] === "" ? [] : [words[verdict]]),
    ...(cell.samples === 0 ? ["No request was answered."] : []),
  ];
}

/** Part of the measured requests that failed, 0..1. */
export function failedShare({ errors, samples }: Cell): number {
  const failed = Object.values(errors).reduce((sum, count) => sum + count, 0);
  return failed === 0 ? 0 : failed / (failed + samples);
}

const mostFailed = 0.01;

/** So many requests failed that the figures of the others are no choice. */
export function isFailing(cell: Cell): boolean {
  return failedShare(cell) > mostFailed;
}

/** Name of the path that was measured, as `--backend` takes it. */
export const pathOf = benchPathName;

/** Names of the environments that were measured. */
export function environmentsOf(cells: readonly Cell[]): readonly string[] {
  return [...new Set(cells.map(({ environment }) => environment))];
}

/** A line of a plot: one path of one environment. */
export interface Series {
  readonly name: string;
  readonly environment: string;
  readonly path: string;
  readonly cells: readonly Cell[];
}

const pathOrder = ["embed-http", "onnx-http", "onnx-grpc", "trt-http", "trt-grpc"];

/** Cells by environment and path; paths in the order in which people know them. */
export function seriesOf(cells: readonly Cell[]): readonly Series[] {
  const many = environmentsOf(cells).length > 1;
  const groups = new Map<string, Cell[]>();
  for (const cell of cells) {
    const key = JSON.stringify([cell.environment, pathOf(cell)]);
    groups.set(key, [...(groups.get(key) ?? []), cell]);
  }
  const order = (path: string) => {
    const base = pathOrder.findIndex((known) => path.startsWith(known));
    return base + path.length / 1_000;
  };
  return [...groups]
    .map(([key, list]) => {
      const [environment = "", path = ""] = JSON.parse(key) as readonly string[];
      return { name: many ? `${environment} ${path}` : path, environment, path, cells: list };
    })
    .sort((a, b) =>
      a.environment === b.environment
        ? order(a.path) - order(b.path)
        : environmentsOf(cells).indexOf(a.environment) -
          environmentsOf(cells).indexOf(b.environment),
    );
}

/** Measured as it is deployed: no study changed a link, a delay or the GPUs. */
export function isPlain({ conditions }: Cell): boolean {
  return Object.values(conditions).every((value) => value === undefined);
}

export function clientsOf({ load }: Cell): number | undefined {
  return load.kind === "closed loop" ? load.concurrency : undefined;
}

/** `8 clients`, `Poisson 200 /s`. */
export function loadText(load: LoadShape): string {
  return load.kind === "closed loop"
    ? counted(load.concurrency, "client")
    : `${load.arrivals === "poisson" ? "Poisson" : "constant"} ${trim(load.ratePerSecond)} /s`;
}

/** `4 images a request, 8 clients`. */
export function settingText({ imagesPerRequest, load }: Cell): string {
  return `${counted(imagesPerRequest, "image")} a request, ${loadText(load)}`;
}

/** What a study changed, in words; nothing where it changed nothing. */
export function conditionsText(conditions: Conditions): string {
  const { queueDelayUs, bandwidthMbps, roundTripMs, gpus, topology } = conditions;
  return [
    queueDelayUs === undefined ? "" : `queue delay ${trim(queueDelayUs / 1_000)} ms`,
    bandwidthMbps === undefined ? "" : `${trim(bandwidthMbps)} Mbit/s`,
    roundTripMs === undefined ? "" : `round trip ${trim(roundTripMs)} ms`,
    gpus === undefined ? "" : counted(gpus, "GPU"),
    topology ?? "",
  ]
    .filter((part) => part !== "")
    .join(", ");
}

const trim = (value: number) => String(Number(value.toPrecision(4)));

/** Cells under the same name of load, path and conditions: two records, or a study and the grid, may both have one. */
export function cellKey(cell: Cell): string {
  const { environment, load, conditions, imagesPerRequest } = cell;
  return JSON.stringify([
    environment,
    pathOf(cell),
    imagesPerRequest,
    load.kind === "closed loop"
      ? ["closed", load.concurrency]
      : ["open", load.arrivals, load.ratePerSecond],
    Object.entries(conditions)
      .filter(([, value]) => value !== undefined)
      .sort(([a], [b]) => a.localeCompare(b)),
  ]);
}

const trustOrder: readonly Trust[] = ["good", "unstable", "invalid", "empty"];

/** One cell for each load: of several that are the same, the most to be trusted, and of those the first. */
export function distinct(cells: readonly Cell[]): readonly Cell[] {
  const best = new Map<string, Cell>();
  for (const cell of cells) {
    const known = best.get(cellKey(cell));
    if (
      known === undefined ||
      trustOrder.indexOf(trustOf(cell)) < trustOrder.indexOf(trustOf(known))
    ) {
      best.set(cellKey(cell), cell);
    }
  }
  return [...best.values()];
}

/** Plain cells of a closed loop, once each. */
export function closedLoop(cells: readonly Cell[]): readonly Cell[] {
  return distinct(cells.filter((cell) => isPlain(cell) && cell.load.kind === "closed loop"));
}

export function openLoop(cells: readonly Cell[]): readonly Cell[] {
  return distinct(cells.filter((cell) => isPlain(cell) && cell.load.kind === "open loop"));
}

export function ofStudy(record: BenchRecord, study: StudyId): readonly Cell[] {
  return record.cells.filter((cell) => cell.study === study);
}

/** Where a request's time went: means in milliseconds, in the order in which it passes them. */
export interface TimePart {
  readonly id:
    | "network"
    | "decode"
    | "queue"
    | "input"
    | "infer"
    | "output"
    | "server"
    /** Without times of the server. */
    | "unknown";
  readonly ms: number;
}

/**
 * The mean latency in parts. `network`: what the client waited and the server did not work: transfer, and both systems'
 * network stacks. `server`: what the server's own total has beyond its parts.
 */
export function timeParts({ latencyMs, server }: Cell): readonly TimePart[] {
  if (latencyMs === undefined) return [];
  const known = (
    [
      ["decode", server?.decodeMs],
      ["queue", server?.queueMs],
      ["input", server?.inputMs],
      ["infer", server?.inferMs],
      ["output", server?.outputMs],
    ] as const
  ).flatMap(([id, ms]) => (ms === undefined ? [] : [{ id, ms }]));
  if (known.length === 0) return [{ id: "unknown", ms: latencyMs.mean }];
  const sum = known.reduce((total, { ms }) => total + ms, 0);
  const inServer = Math.max(sum, server?.requestMs ?? sum);
  return [
    { id: "network" as const, ms: Math.max(0, latencyMs.mean - inServer) },
    ...known,
    { id: "server" as const, ms: inServer - sum },
  ].filter(({ ms }) => ms > 0);
}

/** Mean utilisation of the GPUs, 0..1; absent if none was measured. */
export function meanGpuUse({ gpu }: Cell): number | undefined {
  const uses = (gpu?.gpus ?? []).flatMap(({ utilization = [] }) => utilization);
  return uses.length === 0 ? undefined : mean(uses);
}

/** The price to reckon with, or in words why there is none. */
export function costBasis({ subject }: BenchRecord): Price | string {
  const { price, runtime, gpu } = subject;
  if (price !== undefined && (byHand(price) || (runtime !== "embedded" && gpu !== undefined))) {
    return price;
  }
  if (runtime === "embedded") {
    return "No GPU computed here, local processes did: what an hour of the environment's GPU costs says nothing about these figures. Measure it where it is deployed, or give this machine's price with `--price`.";
  }
  return price === undefined
    ? "No price is known: give one with `--price`."
    : "The environment's price is that of a GPU, and none was measured: give this one's with `--price`.";
}

const byHand = ({ source }: Price) => source.includes("--price");

/** Dollars for 1,000 images at a steady rate: $/h ÷ 3600 ÷ images/s × 1000. */
export function usdPerThousand({ usdPerHour }: Price, imagesPerSecond: number): number {
  return (usdPerHour / 3_600 / imagesPerSecond) * 1_000;
}

/** The cell with the most images a second among those to be trusted; without one, among those that were answered. */
export function fastest(cells: readonly Cell[]): Cell | undefined {
  const [first, ...rest] = preferTrusted(cells);
  return rest.reduce(
    (best, cell) =>
      best === undefined || cell.imagesPerSecond > best.imagesPerSecond ? cell : best,
    first,
  );
}

/**
 * How far behind a figure is ranked, whatever it is: 0 to be trusted, 1 unstable, 2 many of its requests failed; `undefined`
 * where it is none, as an invalid figure wins nothing.
 */
export function weaknessOf(cell: Cell): 0 | 1 | 2 | undefined {
  const trust = trustOf(cell);
  if (trust === "invalid" || trust === "empty") return undefined;
  if (isFailing(cell)) return 2;
  return trust === "good" ? 0 : 1;
}

/** The cells to be trusted; without one, the unstable; without one of these, those of which many requests failed. */
export function preferTrusted(cells: readonly Cell[]): readonly Cell[] {
  for (const weakness of [0, 1, 2] as const) {
    const found = cells.filter((cell) => weaknessOf(cell) === weakness);
    if (found.length > 0) return found;
  }
  return [];
}

/** Offered rates that were answered as asked: at least so much of it. */
export const heldShare = 0.99;

/** An open loop whose rate was held: its throughput is what was offered, and no limit of the server. */
export function isOffered({ load, achievedShare }: Cell): boolean {
  return load.kind === "open loop" && (achievedShare ?? 1) >= heldShare;
}
