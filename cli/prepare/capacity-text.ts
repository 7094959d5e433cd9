import { formatNumber, textTable } from "../../bench/capacity/capacity-format.ts";
import type { Band, PredictionInterval } from "../../bench/capacity/intervals.ts";
import { type StationName, stationNames } from "../../bench/capacity/model.ts";
import type { Job, Option, Plan, transferCost } from "../../bench/capacity/plan.ts";
import {
  type Alternative,
  coresOf,
  hostShareOf,
  payloads,
  type Scenario,
  type ScenarioPrediction,
  typicalCoresPerGpu,
} from "../../bench/capacity/scenario.ts";
import {
  gatewayCores,
  publishedModel,
  type ServiceTimes,
} from "../../bench/capacity/service-times.ts";
import { counted, formatPercent, formatUsd } from "../../report/document/number-format.ts";

/** Text output of `clipstack capacity`. */

/** Utilisation from which a station counts as saturated. Below it, the number of clients limits the throughput. */
const saturatedFrom = 0.8;

export const backendNames = { onnxruntime: "ONNX Runtime", tensorrt: "TensorRT" } as const;

export function scenarioLine(scenario: Scenario): string {
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
  transfer: ReturnType<typeof transferCost>,
  interval: PredictionInterval,
): string {
  const { isSaturated, station, utilization } = boundOf(prediction);
  const limit = limitText(prediction);
  const bound = isSaturated
    ? `${stationNames[prediction.bottleneck]}, ${formatPercent(utilization)} utilised: ${limit}`
    : `none saturated; most latency is ${stationNames[station]}. First to saturate: ${stationNames[prediction.bottleneck]}, ${limit}`;
  const { device, gpus } = scenario;
  const price = `${prediction.usdPerThousand.toPrecision(2)}${bandText(interval.usdPerThousand, (usd) => usd.toPrecision(2))}  (${formatUsd(device.usdPerHour * gpus)} per hour, ${device.priceDate === undefined ? "from --price or the settings" : `price of ${device.priceDate}`})`;
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
    `  images/s        ${formatNumber(prediction.imagesPerSecond)}${bandText(interval.imagesPerSecond)}`,
    `  latency         ${formatNumber(prediction.latencyMs)} ms${bandText(interval.latencyMs)}, mean`,
    `  $/1,000 images  ${price}`,
    `  transfer        ${transferText(transfer)}: $${transfer.usd.toPrecision(2)} per 1,000 images`,
    `  GPUs alone      ${gpusAloneText(prediction.gpusAloneImagesPerSecond, scenario.jpegBytes)}`,
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

/** States the throughput of the GPUs, and the number of cores that a gateway requires for it. */
function gpusAloneText(imagesPerSecond: number, jpegBytes: number): string {
  const cores = gatewayCores(imagesPerSecond, jpegBytes);
  return `${formatNumber(imagesPerSecond)} images/s in large batches; a gateway that decodes as many files of ${formatNumber(jpegBytes / 1000)} kB requires ${counted(cores, "core")}`;
}

/** Price of the source's bytes, beside that of the GPUs. */
function transferText({ gigabytes, usdPerGb }: ReturnType<typeof transferCost>): string {
  return `${formatNumber(gigabytes)} GB leave the source, at $${usdPerGb} per GB (--egress-price)`;
}

/** 10th and 90th percentile in brackets. */
function bandText({ p10, p90 }: Band, format = formatNumber): string {
  return ` (P10-P90 ${format(p10)}-${format(p90)})`;
}

/** Limit of the throughput; a limit that was not measured at this size is a lower bound. */
function limitText({ limitImagesPerSecond, measuredLimit }: ScenarioPrediction): string {
  return measuredLimit === undefined
    ? `at most ${formatNumber(limitImagesPerSecond)} images/s with more clients`
    : `limit ≥ ${formatNumber(measuredLimit)} images/s (as measured on fewer cores; ${formatNumber(limitImagesPerSecond)} if it grows with them)`;
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

/** Float32 images per second (60 GB/s) above which a Triton server's ingest is considered unlimited. */
const maxIngestRate = 1e5;

/** Assumptions of a prediction. */
export function notesOf(
  scenario: Scenario,
  times: ServiceTimes,
  bottleneck: StationName,
): readonly string[] {
  const { device, gpus, backend, payload, topology } = scenario;
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
  const isIngestBypassed = payload === "jpeg" && times.embedComputes;
  if (
    ingestMsPerImage !== undefined &&
    !isIngestBypassed &&
    (bottleneck === "ingest" || gpus > 1)
  ) {
    const rate = 1000 / ingestMsPerImage;
    const each = topology === "per-gpu" ? " per Triton server" : "";
    notes.push(
      rate > maxIngestRate
        ? "The ingest of one Triton server is assumed to have no limit (--ingest-ms)."
        : `Ingest is limited to ${formatNumber(rate)} float32 images/s${each} (--ingest-ms).`,
    );
  }
  if (payload !== "jpeg") {
    const ms = formatNumber(times.decodeMsPerImage);
    notes.push(
      `Clients decode and resize the images themselves: ${ms} ms of a core for a file of ${formatNumber(scenario.jpegBytes / 1000)} kB with this project's client, not included (--client-ms).`,
    );
  }
  notes.push("Latencies are means, not percentiles, of an uninterrupted service.");
  return notes;
}

/** Cores of the host, and the work for which they are used. */
function hostNotes(scenario: Scenario, times: ServiceTimes): readonly string[] {
  const { jpegBytes } = scenario;
  const { decode, ingestMsPerImage, measuredIngestMs, measuredWorkers } = hostShareOf(
    scenario,
    times,
  );
  const notes: string[] = [];
  if (decode !== undefined) {
    const where =
      times.decodeWorkers === undefined
        ? "of a core (--decode-ms)"
        : `on one of ${times.decodeWorkers} cores (--decode-ms, --decode-workers)`;
    const gateway =
      times.gatewayMsPerImage === 0
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
  const isExtrapolated =
    decode === undefined
      ? measuredIngestMs !== undefined && measuredIngestMs > 1.001 * ingestMsPerImage
      : measuredWorkers !== undefined && measuredWorkers < decode.workers;
  if (isExtrapolated) {
    notes.push(
      `${decode === undefined ? "Ingest was" : "Decoding and ingest were"} measured on up to two cores; on more, the rate is assumed to grow with the cores.`,
    );
  }
  return notes;
}

export function planText(
  job: Job,
  plan: Plan,
  maxRows: number,
  trust: Trust,
  transfer: ReturnType<typeof transferCost>,
): string {
  const { options } = plan;
  const meeting = options.filter(({ meetsDeadline }) => meetsDeadline);
  const [best] = options;
  const line = (option: Option) => {
    const { scenario, imagesPerSecond, interval, hours, usd } = option;
    return [
      `  ${scenario.gpus === 1 ? scenario.device.name : `${scenario.gpus} × ${scenario.device.name}`}`,
      scenario.gpus === 1 ? "-" : scenario.topology,
      scenario.payload,
      String(scenario.concurrency),
      formatNumber(imagesPerSecond),
      `${formatNumber(interval.p10)}-${formatNumber(interval.p90)}`,
      `${formatNumber(hours)} h`,
      formatUsd(usd),
      stationNames[option.bottleneck],
    ];
  };
  const head = [
    "  GPUs",
    "topology",
    "payload",
    "clients",
    "images/s",
    "P10-P90",
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
      ? `${meeting.length} of ${options.length} plans meet the deadline at the 10th percentile of the prediction; the cheapest per GPU model and payload:`
      : `none of ${options.length} plans meets the deadline at the 10th percentile of the prediction; the fastest per GPU model and payload:`,
    textTable([head, ...listed.map(line)]),
    "",
    "required bandwidth",
    textTable([
      ["  payload", "Mbit/s"],
      ...plan.requiredBandwidth.map(({ payload, mbps }) => [`  ${payload}`, formatNumber(mbps)]),
    ]),
    "",
    `transfer, in addition to the cost of every plan: ${formatUsd(transfer.usd)}; ${transferText(transfer)}`,
    ...(best === undefined ? [] : ["", `first plan: ${scenarioLine(best.scenario)}`]),
    "",
    "accuracy",
    ...[...trust.sources, ...trust.notes].map((note) => `  ${note}`),
  ].join("\n");
}

const sameKind = (a: Option, b: Option) =>
  a.scenario.device.name === b.scenario.device.name && a.scenario.payload === b.scenario.payload;
