import { formatPercent, formatUsd } from "../report/number-format.ts";
import { aligned } from "../report/text-table.ts";
import { median } from "../stats/statistics.ts";
import type { RecordCalibration } from "./calibrate-record.ts";
import {
  type CheckRow,
  type CheckSummary,
  explainedError,
  type Role,
  roles,
} from "./check-published.ts";
import { type StationName, stationNames } from "./model.ts";
import type { Parameter } from "./parameter-list.ts";
import type { Job, Option, Plan } from "./plan.ts";
import { publishedModel } from "./published.ts";
import { typicalCoresPerGpu } from "./published-parameters.ts";
import {
  type Alternative,
  coresOf,
  hostOf,
  largestBatch,
  payloads,
  type Scenario,
  type ScenarioPrediction,
  type ServiceTimes,
  timesFor,
} from "./scenario.ts";

/** Text output of `clipstack capacity`. Pure. */

/** Table with right-aligned numeric columns. */
export function textTable(rows: readonly (readonly string[])[]): string {
  const number = /^([-+]?[$]?\d.*)?$/;
  return aligned(rows, (column) =>
    rows.slice(1).every((row) => number.test(row[column] ?? "")) ? "right" : "left",
  );
}

/** Number with three significant digits. */
function formatNumber(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return size >= 1 || size === 0 ? value.toFixed(2) : value.toPrecision(2);
}

function formatError(error: number | undefined): string {
  if (error === undefined) return "";
  const percent = Math.round(100 * error);
  return percent === 0 ? "0 %" : `${percent > 0 ? "+" : ""}${percent} %`;
}

/** Utilisation from which a station, not the number of clients, counts as the bottleneck. */
const saturatedFrom = 0.8;

export const backendNames = { onnxruntime: "ONNX Runtime", tensorrt: "TensorRT" } as const;

function scenarioLine(scenario: Scenario): string {
  const { device, gpus, topology, backend, payload, concurrency, imagesPerRequest } = scenario;
  const where = gpus === 1 ? device.name : `${gpus} × ${device.name}, ${topology}`;
  const clients = concurrency === 1 ? "1 client" : `${concurrency} clients`;
  const images = imagesPerRequest === 1 ? "1 image" : `${imagesPerRequest} images`;
  return `${where}, ${backendNames[backend]}: ${payloads[payload]}, ${clients} × ${images} per request, ${formatNumber(scenario.bandwidthMbps)} Mbit/s, ${formatNumber(scenario.roundTripMs)} ms round trip`;
}

export interface Trust {
  /** Source of the times and error of the model, as sentences. */
  readonly sources: readonly string[];
  /** Assumptions and limitations, as sentences. */
  readonly notes: readonly string[];
}

/** Station that bounds the throughput: the bottleneck if it is saturated, otherwise the one with the longest time. */
function boundOf({ parts, bottleneck }: ScenarioPrediction): {
  readonly isSaturated: boolean;
  readonly station: StationName;
  /** Utilisation of the bottleneck, 0..1. */
  readonly utilization: number;
} {
  const utilization = parts.find(({ station }) => station === bottleneck)?.utilization ?? 0;
  const [slowest] = [...parts].sort((a, b) => b.ms - a.ms);
  return utilization >= saturatedFrom || slowest === undefined
    ? { isSaturated: true, station: bottleneck, utilization }
    : { isSaturated: false, station: slowest.station, utilization };
}

export function scenarioText(
  scenario: Scenario,
  prediction: ScenarioPrediction,
  alternatives: readonly Alternative[],
  trust: Trust,
): string {
  const { isSaturated, station, utilization } = boundOf(prediction);
  const limit = `${limitText(prediction)} images/s with more clients`;
  const bound = isSaturated
    ? `${stationNames[prediction.bottleneck]}, ${formatPercent(utilization)} utilised: at most ${limit}`
    : `none saturated; most latency is ${stationNames[station]}. First to saturate: ${stationNames[prediction.bottleneck]}, at ${limit}`;
  const { device, gpus } = scenario;
  const price =
    prediction.usdPerThousand === undefined || device.usdPerHour === undefined
      ? "unknown: set --price <dollars per hour for one GPU>"
      : `${prediction.usdPerThousand.toPrecision(2)}  (${formatUsd(device.usdPerHour * gpus)} per hour, ${device.priceDate === undefined ? "from --price" : `price of ${device.priceDate}`})`;
  const parts = [...prediction.parts]
    .filter(({ ms }) => ms >= 0.005)
    .sort((a, b) => b.ms - a.ms)
    .map(({ station, ms, utilization }) => [
      `  ${stationNames[station]}`,
      `${ms.toFixed(1)} ms`,
      formatPercent(ms / prediction.latencyMs),
      utilization > 0 ? `${formatPercent(utilization)} utilised` : "",
    ]);
  return [
    scenarioLine(scenario),
    "",
    `  images/s        ${formatNumber(prediction.imagesPerSecond)}`,
    `  latency         ${formatNumber(prediction.latencyMs)} ms, mean`,
    `  $/1,000 images  ${price}`,
    `  GPUs alone      ${formatNumber(prediction.gpusAloneImagesPerSecond)} images/s in batches of ${largestBatch}`,
    `  bottleneck      ${bound}`,
    "",
    "latency by station",
    textTable([["", "", "", ""], ...parts])
      .trimStart()
      .replace(/^/, "  "),
    "",
    alternatives.length === 0
      ? "no single change increases the throughput by 5 %"
      : "changes that increase the throughput, each on its own",
    ...(alternatives.length === 0 ? [] : [alternativesTable(alternatives)]),
    "",
    "accuracy",
    ...[...trust.sources, ...trust.notes].map((note) => `  ${note}`),
  ].join("\n");
}

/** Limit of the throughput; a limit that was not measured at this size is a lower bound. */
function limitText({ limitImagesPerSecond, measuredLimit }: ScenarioPrediction): string {
  return measuredLimit === undefined
    ? formatNumber(limitImagesPerSecond)
    : `≥ ${formatNumber(measuredLimit)} (measured on fewer cores; ${formatNumber(limitImagesPerSecond)} if it grows with them)`;
}

function alternativesTable(alternatives: readonly Alternative[]): string {
  return textTable([
    ["  change", "images/s", "latency", "new bottleneck"],
    ...alternatives.map(({ change, prediction }) => [
      `  ${change}`,
      formatNumber(prediction.imagesPerSecond),
      `${formatNumber(prediction.latencyMs)} ms`,
      stationNames[boundOf(prediction).station],
    ]),
  ]);
}

/** Float32 images per second (60 GB/s) above which a Triton's ingest is considered unlimited. */
const maxIngestRate = 1e5;

/** Assumptions of a prediction. */
export function notesOf(
  scenario: Scenario,
  all: ServiceTimes,
  bottleneck: StationName,
): readonly string[] {
  const { device, gpus, backend, payload, topology } = scenario;
  const times = timesFor(payload, all);
  const notes: string[] = [];
  if (times.model !== publishedModel.name) {
    notes.push(
      `No figure of ${times.model} is published: its arithmetic follows from the peak of ${device.name}; the rest of the time of one image is that of ${publishedModel.name}.`,
    );
  } else if (!times.measured(device.name, backend)) {
    notes.push(
      `No figure for ${device.name} with ${backendNames[backend]}: one image takes the median of the published times, further images of a batch follow from its peak.`,
    );
  }
  notes.push(...hostNotes(scenario, times));
  if (payload === "json") {
    notes.push(
      "The time in which the server parses JSON is unknown and not included: the real service is slower.",
    );
  }
  const { ingestMsPerImage } = times;
  if (ingestMsPerImage !== undefined && (bottleneck === "ingest" || gpus > 1)) {
    const rate = 1000 / ingestMsPerImage;
    const each = topology === "per-gpu" ? " per Triton" : "";
    notes.push(
      rate > maxIngestRate
        ? "No load point was limited by the ingest of one Triton, and no limit is assumed (--ingest-ms)."
        : times.ingestMeasured
          ? `Ingest is limited to ${formatNumber(rate)} float32 images/s${each}, the highest throughput of the record.`
          : `Ingest is limited to ${formatNumber(rate)} float32 images/s${each} (--ingest-ms).`,
    );
  }
  notes.push("Latencies are means, not percentiles, of an uninterrupted service.");
  return notes;
}

/** Cores of the host, and the work for which they are used. */
function hostNotes(scenario: Scenario, times: ServiceTimes): readonly string[] {
  const { payload, jpegBytes } = scenario;
  const { decode, ingestMsPerImage, measuredIngestMs } = hostOf(scenario, times);
  const notes: string[] = [];
  if (decode !== undefined) {
    const where =
      times.decodeWorkers === undefined
        ? "of a core (--decode-ms)"
        : `on one of ${times.decodeWorkers} cores (--decode-ms, --decode-workers)`;
    const gateway =
      times.gatewayMsPerImage === undefined || times.gatewayMsPerImage === 0
        ? ""
        : `, and the rest of the embed server's work ${formatNumber(times.gatewayMsPerImage)} ms`;
    notes.push(
      `Decoding an image of ${formatNumber(jpegBytes / 1000)} kB takes ${formatNumber(times.decodeMsPerImage)} ms ${where}${gateway}.`,
    );
  }
  if (measuredIngestMs === undefined && times.decodeWorkers !== undefined) return notes;
  const assumed =
    scenario.cores === undefined
      ? `, an assumption of ${typicalCoresPerGpu} per GPU (--cores)`
      : " (--cores)";
  notes.push(`The host has ${coresOf(scenario)} cores${assumed}.`);
  if (measuredIngestMs !== undefined && measuredIngestMs > 1.001 * ingestMsPerImage) {
    notes.push(
      "Ingest was measured on one and two cores; on more, it is assumed to grow with the cores as from one to two.",
    );
  }
  return notes;
}

export function planText(job: Job, plan: Plan, maxRows: number, trust: Trust): string {
  const { options } = plan;
  const meeting = options.filter(({ meetsDeadline }) => meetsDeadline);
  const [best] = options;
  const priced = best?.usd !== undefined;
  const line = (option: Option) => {
    const { scenario, imagesPerSecond, hours, usd } = option;
    return [
      `  ${scenario.gpus === 1 ? scenario.device.name : `${scenario.gpus} × ${scenario.device.name}`}`,
      scenario.gpus === 1 ? "-" : scenario.topology,
      scenario.payload,
      String(scenario.concurrency),
      formatNumber(imagesPerSecond),
      `${formatNumber(hours)} h`,
      usd === undefined ? "-" : formatUsd(usd),
      stationNames[option.bottleneck],
    ];
  };
  const head = [
    "  GPUs",
    "topology",
    "payload",
    "clients",
    "images/s",
    "duration",
    "cost",
    "bottleneck",
  ];
  const listed = (meeting.length > 0 ? meeting : options)
    .filter((option, index, all) => index === all.findIndex((other) => sameKind(other, option)))
    .slice(0, maxRows);
  const rate = `${job.images.toLocaleString("en-US")} images in ${formatNumber(job.withinHours)} h require ${formatNumber(plan.requiredImagesPerSecond)} images/s`;
  return [
    rate,
    "",
    meeting.length > 0
      ? `${meeting.length} of ${options.length} plans meet the deadline; ${priced ? "the cheapest" : "without prices, the one with the fewest GPUs"} per GPU model and payload:`
      : `none of ${options.length} plans meets the deadline; the fastest per GPU model and payload:`,
    textTable([head, ...listed.map(line)]),
    "",
    "required bandwidth",
    textTable([
      ["  payload", "Mbit/s"],
      ...plan.requiredBandwidth.map(({ payload, mbps }) => [`  ${payload}`, formatNumber(mbps)]),
    ]),
    ...(best === undefined ? [] : ["", `first plan: ${scenarioLine(best.scenario)}`]),
    "",
    "accuracy",
    ...[...trust.sources, ...trust.notes].map((note) => `  ${note}`),
  ].join("\n");
}

const sameKind = (a: Option, b: Option) =>
  a.scenario.device.name === b.scenario.device.name && a.scenario.payload === b.scenario.payload;

const publishedText = ({ published: { low, high } }: CheckRow) =>
  low === high ? String(low) : `${low}-${high}`;

/** Published figures with their predictions and errors as text. */
export function checkText(rows: readonly CheckRow[], summary: CheckSummary): string {
  const titles = [...new Set(rows.map(({ title }) => title))];
  const tables = titles.map((title) =>
    [
      title,
      textTable([
        ["  figure", "published", "model", "error", "unit", "role"],
        ...rows
          .filter((row) => row.title === title)
          .map((row) => [
            `  ${row.label}${row.assumed.length > 0 ? " *" : ""}`,
            publishedText(row),
            row.predicted === undefined ? "" : formatNumber(row.predicted),
            formatError(row.error),
            row.unit,
            row.role,
          ]),
      ]),
      "",
    ].join("\n"),
  );
  return [
    ...tables,
    "* part of the load is not in the source and is assumed; the model's latencies are means, also next to a p50 or p95",
    "",
    ...Object.entries(summary.byRole).map(
      ([role, count]) => `${String(count).padStart(4)}  ${role}: ${roles[role as Role]}`,
    ),
    "",
    summaryLine(summary),
    "",
    `unexplained (error above ${formatPercent(explainedError)}):`,
    ...summary.predicted.notExplained.map(
      (row) => `  ${formatError(row.error).padStart(8)}  ${row.figure}: ${row.note}`,
    ),
    ...summary.broken.map((row) => `broken: the model no longer reproduces ${row.figure}`),
  ].join("\n");
}

export function summaryLine({ byRole, predicted }: CheckSummary): string {
  return `Of ${byRole.predicted} predicted figures, ${predicted.within10} are within 10 % and ${predicted.within25} within ${formatPercent(explainedError)}; the median error is ${formatPercent(predicted.medianError)}.`;
}

export function parametersText(parameters: readonly Parameter[]): string {
  return textTable([
    ["parameter", "value", "unit", "source", "meaning"],
    ...parameters.map(({ name, value, unit, from, meaning }) => [
      name,
      formatNumber(value),
      unit,
      from.join(", "),
      meaning,
    ]),
  ]);
}

/** Maximum median error for predictions to be usable. */
const maxMedianError = 0.5;

/** Error of the model on loads that did not calibrate it. */
export function recordErrorLines({ rows }: Pick<RecordCalibration, "rows">): readonly string[] {
  const predicted = rows.filter(({ role }) => role === "predicted");
  if (predicted.length === 0) {
    return ["The error is unknown: every load point of the record calibrates the model."];
  }
  const throughput = median(predicted.map((row) => Math.abs(row.throughputError))) ?? 0;
  const latency = median(predicted.map((row) => Math.abs(row.latencyError))) ?? 0;
  const loads =
    predicted.length === 1 ? "1 predicted load point" : `${predicted.length} predicted load points`;
  return [
    `Median error over ${loads}: ${formatPercent(throughput)} of images/s, ${formatPercent(latency)} of latency (--check).`,
    ...(Math.max(throughput, latency) > maxMedianError
      ? ["WARNING: the model does not fit this record; measure instead of predicting."]
      : []),
  ];
}

/** Loads of a record with their predictions as text. */
export function recordCheckText({ rows, excluded, notes }: RecordCalibration): string {
  return [
    textTable([
      ["load point", "images/s", "model", "error", "latency", "model", "error", "role"],
      ...rows.map((row) => [
        row.loadPoint,
        formatNumber(row.imagesPerSecond.measured),
        formatNumber(row.imagesPerSecond.predicted),
        formatError(row.throughputError),
        `${formatNumber(row.latencyMs.measured)} ms`,
        `${formatNumber(row.latencyMs.predicted)} ms`,
        formatError(row.latencyError),
        row.role,
      ]),
    ]),
    "",
    ...recordErrorLines({ rows }),
    ...notes,
    ...[...new Set(excluded.map(({ reason }) => reason))].map((reason) => {
      const loads = excluded.filter((entry) => entry.reason === reason).map(({ load }) => load);
      return `excluded: ${loads.length === 1 ? loads[0] : `${loads.length} load points`}: ${reason}`;
    }),
  ].join("\n");
}
