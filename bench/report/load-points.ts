import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import { endpointNames } from "../../contract/environment.ts";
import type { LoadShape } from "../../contract/load-shape.ts";
import { counted, formatPercent, formatRatio } from "../../report/document/number-format.ts";
import type { Price } from "../../target/subject/subject.ts";
import type { BenchRecord, Conditions, LoadPoint } from "../record/bench-record.ts";
import type { StudyId } from "../record/study-result.ts";

/** Reliability of a figure. */
export type Trust =
  /** No drift was found. */
  | "good"
  /** The throughput drifts, or there are too few windows or rounds. */
  | "unstable"
  /** The load generator was the bottleneck. */
  | "invalid"
  /** No response. */
  | "empty";

export function trustOf(point: LoadPoint): Trust {
  if (point.samples === 0 || point.latencyMs === undefined) return "empty";
  if (point.invalid.length > 0) return "invalid";
  return point.stability.verdict === "stable" ? "good" : "unstable";
}

/** Table text; empty for a reliable figure. */
export function trustText(point: LoadPoint): string {
  switch (trustOf(point)) {
    case "good":
      return "";
    case "unstable":
      return stabilityWords[point.stability.verdict];
    case "invalid":
      return "invalid";
    case "empty":
      return "no response";
  }
}

const stabilityWords: Readonly<Record<LoadPoint["stability"]["verdict"], string>> = {
  stable: "",
  drifting: "drifting",
  short: "too short",
  interrupted: "interrupted",
};

/** Reasons why a figure is unreliable, as sentences. */
export function reliabilityIssues(point: LoadPoint): readonly string[] {
  const { verdict } = point.stability;
  const words: Readonly<Record<typeof verdict, string>> = {
    stable: "",
    drifting: driftText(point.stability),
    short: "Too few windows or rounds were measured to detect drift.",
    interrupted: "It was interrupted.",
  };
  return [
    ...point.invalid,
    ...(isFailing(point) ? [`${formatPercent(failedShare(point))} of its requests failed.`] : []),
    ...(words[verdict] === "" ? [] : [words[verdict]]),
    ...(point.samples === 0 ? ["No request succeeded."] : []),
  ];
}

function driftText({ changeInRound, changeOverRounds }: LoadPoint["stability"]): string {
  const changes = [
    ...(changeInRound === undefined ? [] : [`${changeText(changeInRound)} within a round`]),
    ...(changeOverRounds === undefined
      ? []
      : [`${changeText(changeOverRounds)} from the first to the last round`]),
  ];
  return `Its throughput drifted: ${changes.join(", ")}.`;
}

const changeText = (change: number) =>
  `${change < 0 ? "−" : "+"}${formatPercent(Math.abs(change))}`;

/** Share of failed requests, 0..1. */
export function failedShare({ errors, samples }: LoadPoint): number {
  const failed = Object.values(errors).reduce((sum, count) => sum + count, 0);
  return failed === 0 ? 0 : failed / (failed + samples);
}

const maxFailedShare = 0.01;

/** Returns whether too many requests failed for the load point to be recommended. */
export function isFailing(point: LoadPoint): boolean {
  return failedShare(point) > maxFailedShare;
}

/** Name of the measured endpoint, as in `--backend`. */
export const endpointOf = benchEndpointName;

export function environmentNames(
  measured: readonly { readonly environment: string }[],
): readonly string[] {
  return [...new Set(measured.map(({ environment }) => environment))];
}

/** Returns how to name endpoints: with their environment if there are several. */
export function endpointNamer(
  measured: readonly { readonly environment: string }[],
): (endpoint: BenchEndpoint & { readonly environment: string }) => string {
  const isMany = environmentNames(measured).length > 1;
  return (endpoint) => `${isMany ? `${endpoint.environment} ` : ""}${endpointOf(endpoint)}`;
}

/** Line of a plot: one endpoint of one environment. */
export interface Series {
  readonly name: string;
  readonly environment: string;
  readonly endpoint: string;
  readonly loadPoints: readonly LoadPoint[];
}

const endpointOrder: readonly string[] = endpointNames;

/** Load points by environment and endpoint, in a fixed order of endpoints. */
export function seriesOf(loadPoints: readonly LoadPoint[]): readonly Series[] {
  const [nameOf, environments] = [endpointNamer(loadPoints), environmentNames(loadPoints)];
  const groups = grouped(loadPoints, (point) =>
    JSON.stringify([point.environment, endpointOf(point)]),
  );
  const order = (endpoint: string) => {
    const base = endpointOrder.findIndex((known) => endpoint.startsWith(known));
    return base + endpoint.length / 1_000;
  };
  return groups
    .map((own): Series => {
      const [first] = own;
      const { environment } = first;
      return { name: nameOf(first), environment, endpoint: endpointOf(first), loadPoints: own };
    })
    .sort(
      (a, b) =>
        environments.indexOf(a.environment) - environments.indexOf(b.environment) ||
        order(a.endpoint) - order(b.endpoint),
    );
}

/** Groups of items with equal keys, in the order of their first items. */
export function grouped<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string | number,
): (readonly [Item, ...Item[]])[] {
  const groups = new Map<string | number, [Item, ...Item[]]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return [...groups.values()];
}

/** Returns whether no study changed the conditions, such as the queue delay or GPUs, or the clients' channels. */
export function isUnmodified({ study, load, conditions }: LoadPoint): boolean {
  const hasOtherChannels = study === "protocol" && load.channels !== undefined;
  return !hasOtherChannels && Object.values(conditions).every((value) => value === undefined);
}

export function clientsOf({ load }: LoadPoint): number | undefined {
  return load.kind === "closed loop" ? load.concurrency : undefined;
}

/** `8 clients`, `8 clients on a shared channel`, `Poisson 200 /s`. */
export function loadText(load: LoadShape): string {
  const shape =
    load.kind === "closed loop"
      ? counted(load.concurrency, "client")
      : `${load.arrivals === "poisson" ? "Poisson" : "constant"} ${trim(load.ratePerSecond)} /s`;
  return load.channels === undefined ? shape : `${shape} ${channelsText(load.channels)}`;
}

/** `on a shared channel`, `on 4 connections`; empty for one connection per outstanding request. */
export function channelsText(channels: LoadShape["channels"]): string {
  if (channels === undefined) return "";
  if (channels === "shared") return "on a shared channel";
  return channels === "new"
    ? "with a new connection for each request"
    : `on ${counted(channels, "connection")}`;
}

/** `4 images per request, 8 clients`. */
export function settingText({ imagesPerRequest, load }: LoadPoint): string {
  return `${counted(imagesPerRequest, "image")} per request, ${loadText(load)}`;
}

/** Conditions changed by a study as text; empty without changes. */
export function conditionsText(conditions: Conditions): string {
  const { queueDelayUs, gpus, topology } = conditions;
  return [
    queueDelayUs === undefined ? "" : `queue delay ${trim(queueDelayUs / 1_000)} ms`,
    gpus === undefined ? "" : counted(gpus, "GPU"),
    topology ?? "",
  ]
    .filter((part) => part !== "")
    .join(", ");
}

const trim = (value: number) => String(Number(value.toPrecision(4)));

/** Key of a load point: environment, endpoint, load and conditions. The same load point has the same key in two records, and in a study. */
export function loadPointKey(point: LoadPoint): string {
  const { environment, load, conditions, imagesPerRequest } = point;
  return JSON.stringify([
    environment,
    endpointOf(point),
    imagesPerRequest,
    load.kind === "closed loop"
      ? ["closed", load.concurrency]
      : ["open", load.arrivals, load.ratePerSecond],
    // absent in older records
    ...(load.channels === undefined ? [] : [load.channels]),
    Object.entries(conditions)
      .filter(([, value]) => value !== undefined)
      .sort(([a], [b]) => a.localeCompare(b)),
  ]);
}

const trustOrder: readonly Trust[] = ["good", "unstable", "invalid", "empty"];

/** Removes duplicate load points: of each group, the most reliable one remains, or the first of equally reliable ones. */
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

/** Distinct closed-loop load points under unmodified conditions. */
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

/** Price used for costs, or the reason for its absence. */
export function costBasis({ subject }: BenchRecord): Price | string {
  const { price, target, gpu } = subject;
  if (price !== undefined && (isManual(price) || (target !== "simulation" && gpu !== undefined))) {
    return price;
  }
  if (target === "simulation") {
    return "No GPU was measured, so the price of the environment's GPU does not apply. Measure the deployed environment, or set a price for this machine with `--price`.";
  }
  return price === undefined
    ? "No price is known. Set one with `--price`."
    : "No GPU was measured, so the price of the environment's GPU does not apply. Set a price with `--price`.";
}

const isManual = ({ source }: Price) => source.includes("--price");

/** US dollars per 1,000 images at a steady rate: $/h ÷ 3600 ÷ images/s × 1000. */
export function usdPerThousand({ usdPerHour }: Price, imagesPerSecond: number): number {
  return (usdPerHour / 3_600 / imagesPerSecond) * 1_000;
}

/**
 * Returns the valid load point with the highest throughput. Load points with many failed requests are chosen only if there is no other.
 * Drifting load points count: without them, an endpoint would be represented by a smaller load and appear slower.
 */
export function fastest(loadPoints: readonly LoadPoint[]): LoadPoint | undefined {
  const valid = loadPoints.filter((point) => unreliabilityRank(point) !== undefined);
  const answering = valid.filter((point) => !isFailing(point));
  const [first, ...rest] = answering.length > 0 ? answering : valid;
  return rest.reduce(
    (best, point) =>
      best === undefined || point.imagesPerSecond > best.imagesPerSecond ? point : best,
    first,
  );
}

/**
 * Rank of a load point by reliability: 0 reliable, 1 drifting or too short, 2 with many failed requests; `undefined` for an invalid or
 * empty one, which is never recommended.
 */
export function unreliabilityRank(point: LoadPoint): 0 | 1 | 2 | undefined {
  const trust = trustOf(point);
  if (trust === "invalid" || trust === "empty") return undefined;
  if (isFailing(point)) return 2;
  return trust === "good" ? 0 : 1;
}

/** Load points of the best available reliability rank. */
export function preferTrusted(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  for (const rank of [0, 1, 2] as const) {
    const ranked = loadPoints.filter((point) => unreliabilityRank(point) === rank);
    if (ranked.length > 0) return ranked;
  }
  return [];
}

/** Minimum share of the offered rate to count as achieved. */
export const minAchievedShare = 0.99;

/** Returns whether an open loop achieved its offered rate, so that its throughput is no limit of the server. */
export function isOffered({ load, achievedShare }: LoadPoint): boolean {
  return load.kind === "open loop" && (achievedShare ?? 1) >= minAchievedShare;
}

/** Formats the ratio of two figures, with a mark if one of the load points has only one round. */
export function ratioText(ratio: number, ...points: readonly LoadPoint[]): string {
  return `${formatRatio(ratio)}${points.some(({ rounds }) => rounds.length < 2) ? " (one round)" : ""}`;
}
