import {
  type BenchRecord,
  benchEndpointName,
  type Conditions,
  type LoadPoint,
  type LoadShape,
  type Price,
  type StudyId,
} from "../record/bench-record.ts";
import { counted, formatPercent } from "./number-format.ts";

/** Questions about load points that every report asks. Pure. */

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

export function trustOf(point: LoadPoint): Trust {
  if (point.samples === 0 || point.latencyMs === undefined) return "empty";
  if (point.invalid.length > 0) return "invalid";
  return point.stability.verdict === "stable" ? "good" : "unstable";
}

/** In words for a table; nothing where all is well. */
export function trustText(point: LoadPoint): string {
  switch (trustOf(point)) {
    case "good":
      return "";
    case "unstable":
      return stabilityWords[point.stability.verdict];
    case "invalid":
      return "invalid";
    case "empty":
      return "no answer";
  }
}

const stabilityWords: Readonly<Record<LoadPoint["stability"]["verdict"], string>> = {
  stable: "",
  unstable: "unstable",
  short: "too short",
  interrupted: "interrupted",
};

/** Why a figure is not to be relied on, in whole sentences. */
export function reliabilityIssues(point: LoadPoint): readonly string[] {
  const { verdict, throughputDeviation, p99Deviation, tolerance } = point.stability;
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
    ...point.invalid,
    ...(isFailing(point) ? [`${formatPercent(failedShare(point))} of its requests failed.`] : []),
    ...(words[verdict] === "" ? [] : [words[verdict]]),
    ...(point.samples === 0 ? ["No request was answered."] : []),
  ];
}

/** Part of the measured requests that failed, 0..1. */
export function failedShare({ errors, samples }: LoadPoint): number {
  const failed = Object.values(errors).reduce((sum, count) => sum + count, 0);
  return failed === 0 ? 0 : failed / (failed + samples);
}

const mostFailed = 0.01;

/** So many requests failed that the figures of the others are no choice. */
export function isFailing(point: LoadPoint): boolean {
  return failedShare(point) > mostFailed;
}

/** Name of the endpoint that was measured, as `--backend` takes it. */
export const endpointOf = benchEndpointName;

/** Names of the environments that were measured. */
export function environmentsOf(loadPoints: readonly LoadPoint[]): readonly string[] {
  return [...new Set(loadPoints.map(({ environment }) => environment))];
}

/** A line of a plot: one endpoint of one environment. */
export interface Series {
  readonly name: string;
  readonly environment: string;
  readonly endpoint: string;
  readonly loadPoints: readonly LoadPoint[];
}

const endpointOrder = ["embed-http", "onnx-http", "onnx-grpc", "trt-http", "trt-grpc"];

/** Load points by environment and path; paths in the order in which people know them. */
export function seriesOf(loadPoints: readonly LoadPoint[]): readonly Series[] {
  const many = environmentsOf(loadPoints).length > 1;
  const groups = new Map<string, LoadPoint[]>();
  for (const point of loadPoints) {
    const key = JSON.stringify([point.environment, endpointOf(point)]);
    groups.set(key, [...(groups.get(key) ?? []), point]);
  }
  const order = (endpoint: string) => {
    const base = endpointOrder.findIndex((known) => endpoint.startsWith(known));
    return base + endpoint.length / 1_000;
  };
  return [...groups]
    .map(([key, list]) => {
      const [environment = "", endpoint = ""] = JSON.parse(key) as readonly string[];
      return {
        name: many ? `${environment} ${endpoint}` : endpoint,
        environment,
        endpoint,
        loadPoints: list,
      };
    })
    .sort((a, b) =>
      a.environment === b.environment
        ? order(a.endpoint) - order(b.endpoint)
        : environmentsOf(loadPoints).indexOf(a.environment) -
          environmentsOf(loadPoints).indexOf(b.environment),
    );
}

/** Measured as it is deployed: no study changed a link, a delay or the GPUs. */
export function isUnmodified({ conditions }: LoadPoint): boolean {
  return Object.values(conditions).every((value) => value === undefined);
}

export function clientsOf({ load }: LoadPoint): number | undefined {
  return load.kind === "closed loop" ? load.concurrency : undefined;
}

/** `8 clients`, `Poisson 200 /s`. */
export function loadText(load: LoadShape): string {
  return load.kind === "closed loop"
    ? counted(load.concurrency, "client")
    : `${load.arrivals === "poisson" ? "Poisson" : "constant"} ${trim(load.ratePerSecond)} /s`;
}

/** `4 images per request, 8 clients`. */
export function settingText({ imagesPerRequest, load }: LoadPoint): string {
  return `${counted(imagesPerRequest, "image")} per request, ${loadText(load)}`;
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

/** Load points under the same name of load, path and conditions: two records, or a study and the grid, may both have one. */
export function loadPointKey(point: LoadPoint): string {
  const { environment, load, conditions, imagesPerRequest } = point;
  return JSON.stringify([
    environment,
    endpointOf(point),
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

/** One load point for each load: of several that are the same, the most to be trusted, and of those the first. */
export function distinct(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  const best = new Map<string, LoadPoint>();
  for (const point of loadPoints) {
    const known = best.get(loadPointKey(point));
    if (
      known === undefined ||
      trustOrder.indexOf(trustOf(point)) < trustOrder.indexOf(trustOf(known))
    ) {
      best.set(loadPointKey(point), point);
    }
  }
  return [...best.values()];
}

/** Plain load points of a closed loop, once each. */
export function closedLoop(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return distinct(
    loadPoints.filter((point) => isUnmodified(point) && point.load.kind === "closed loop"),
  );
}

export function openLoop(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return distinct(
    loadPoints.filter((point) => isUnmodified(point) && point.load.kind === "open loop"),
  );
}

export function loadPointsOfStudy(record: BenchRecord, study: StudyId): readonly LoadPoint[] {
  return record.loadPoints.filter((point) => point.study === study);
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
export function timeParts({ latencyMs, server }: LoadPoint): readonly TimePart[] {
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

/** The price to reckon with, or in words why there is none. */
export function costBasis({ subject }: BenchRecord): Price | string {
  const { price, target, gpu } = subject;
  if (price !== undefined && (byHand(price) || (target !== "simulation" && gpu !== undefined))) {
    return price;
  }
  if (target === "simulation") {
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

/** The load point with the most images per second among those to be trusted; without one, among those that were answered. */
export function fastest(loadPoints: readonly LoadPoint[]): LoadPoint | undefined {
  const [first, ...rest] = preferTrusted(loadPoints);
  return rest.reduce(
    (best, point) =>
      best === undefined || point.imagesPerSecond > best.imagesPerSecond ? point : best,
    first,
  );
}

/**
 * How far behind a figure is ranked, whatever it is: 0 to be trusted, 1 unstable, 2 many of its requests failed; `undefined`
 * where it is none, as an invalid figure wins nothing.
 */
export function unreliabilityRank(point: LoadPoint): 0 | 1 | 2 | undefined {
  const trust = trustOf(point);
  if (trust === "invalid" || trust === "empty") return undefined;
  if (isFailing(point)) return 2;
  return trust === "good" ? 0 : 1;
}

/** The load points to be trusted; without one, the unstable; without one of these, those of which many requests failed. */
export function preferTrusted(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  for (const weakness of [0, 1, 2] as const) {
    const found = loadPoints.filter((point) => unreliabilityRank(point) === weakness);
    if (found.length > 0) return found;
  }
  return [];
}

/** Offered rates that were answered as asked: at least so much of it. */
export const minAchievedShare = 0.99;

/** An open loop whose rate was held: its throughput is what was offered, and no limit of the server. */
export function isOffered({ load, achievedShare }: LoadPoint): boolean {
  return load.kind === "open loop" && (achievedShare ?? 1) >= minAchievedShare;
}
