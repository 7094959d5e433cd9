import { aligned } from "../report/text-table.ts";
import { median } from "../stats/statistics.ts";
import type { RecordCalibration } from "./calibrate-record.ts";
import {
  type CheckRow,
  type CheckSummary,
  explainedWithin,
  type Role,
  roles,
} from "./check-published.ts";
import { type StationName, stationNames } from "./model.ts";
import type { Parameter } from "./parameter-list.ts";
import type { Job, Option, Plan } from "./plan.ts";
import {
  type Alternative,
  largestBatch,
  payloads,
  type Scenario,
  type ScenarioPrediction,
  type ServiceTimes,
  timesFor,
} from "./scenario.ts";

/** Text output of `clipstack capacity`. Pure. */

const right = (text: string, width: number) => text.padStart(width);

/** Table with right-aligned numeric columns. */
export function textTable(rows: readonly (readonly string[])[]): string {
  const number = /^([-+]?[$]?\d.*)?$/;
  return aligned(rows, (column) =>
    rows.slice(1).every((row) => number.test(row[column] ?? "")) ? "right" : "left",
  );
}

/** Number with three significant digits. */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return size >= 1 || size === 0 ? value.toFixed(2) : value.toPrecision(2);
}

export const shownError = (error: number | undefined): string => {
  if (error === undefined) return "";
  const percent = Math.round(100 * error);
  return percent === 0 ? "0 %" : `${percent > 0 ? "+" : ""}${percent} %`;
};

/** Utilisation from which a station, not the number of clients, counts as the bottleneck. */
const fullFrom = 0.8;

const percent = (part: number) => `${Math.round(100 * part)} %`;

const money = (usd: number) => (usd < 1 ? `$${usd.toPrecision(2)}` : `$${usd.toFixed(2)}`);

export const backendNames = { onnxruntime: "ONNX Runtime", tensorrt: "TensorRT" } as const;

/** Scenario in one line. */
export function questionLine(question: Scenario): string {
  const { device, gpus, topology, backend, payload, concurrency, imagesPerRequest } = question;
  const where = gpus === 1 ? device.name : `${gpus} × ${device.name}, ${topology}`;
  const clients = concurrency === 1 ? "1 client" : `${concurrency} clients`;
  const images = imagesPerRequest === 1 ? "1 image" : `${imagesPerRequest} images`;
  return `${where}, ${backendNames[backend]}: ${payloads[payload]}, ${clients} × ${images} per request, ${shortNumber(question.bandwidthMbps)} Mbit/s, ${shortNumber(question.roundTripMs)} ms round trip`;
}

export interface Trust {
  /** Source of the times and error of the model, as sentences. */
  readonly from: readonly string[];
  /** Assumptions and limitations, as sentences. */
  readonly notes: readonly string[];
}

/** Station that bounds the throughput: the bottleneck if it is saturated, otherwise the one with the longest time. */
function boundOf({ parts, bottleneck }: ScenarioPrediction): {
  readonly isFull: boolean;
  readonly station: StationName;
} {
  const use = parts.find(({ station }) => station === bottleneck)?.utilization ?? 0;
  const [slowest] = [...parts].sort((a, b) => b.ms - a.ms);
  return use >= fullFrom || slowest === undefined
    ? { isFull: true, station: bottleneck }
    : { isFull: false, station: slowest.station };
}

/** Prediction of one scenario as text. */
export function answerText(
  question: Scenario,
  answer: ScenarioPrediction,
  others: readonly Alternative[],
  trust: Trust,
): string {
  const { isFull, station } = boundOf(answer);
  const use = answer.parts.find(({ station }) => station === answer.bottleneck)?.utilization ?? 0;
  const limit = `${shortNumber(answer.limitImagesPerSecond)} images/s with more clients`;
  const bound = isFull
    ? `${stationNames[answer.bottleneck]}, ${percent(use)} used: at most ${limit}`
    : `nothing is full: clients wait, mostly for ${stationNames[station]}; first full would be ${stationNames[answer.bottleneck]}, at ${limit}`;
  const { device, gpus } = question;
  const price =
    answer.usdPerThousand === undefined || device.usdPerHour === undefined
      ? "no price: --price <dollars per hour for one GPU>"
      : `${answer.usdPerThousand.toPrecision(2)}  (${money(device.usdPerHour * gpus)} an hour, ${device.priceDate === undefined ? "as given" : `price of ${device.priceDate}`})`;
  const parts = [...answer.parts]
    .filter(({ ms }) => ms >= 0.005)
    .sort((a, b) => b.ms - a.ms)
    .map(({ station, ms, utilization }) => [
      `  ${stationNames[station]}`,
      `${ms.toFixed(1)} ms`,
      `${Math.round((100 * ms) / answer.latencyMs)} %`,
      utilization > 0 ? `${Math.round(100 * utilization)} % used` : "",
    ]);
  return [
    questionLine(question),
    "",
    `  images/s        ${shortNumber(answer.imagesPerSecond)}`,
    `  latency         ${shortNumber(answer.latencyMs)} ms, mean`,
    `  $/1,000 images  ${price}`,
    `  GPUs alone      ${shortNumber(answer.gpusAloneImagesPerSecond)} images/s in batches of ${largestBatch}`,
    `  bottleneck      ${bound}`,
    "",
    "where the latency goes",
    textTable([["", "", "", ""], ...parts])
      .trimStart()
      .replace(/^/, "  "),
    "",
    others.length === 0
      ? "nothing that the model knows would give 5 % more on its own"
      : "what would give more, each on its own",
    ...(others.length === 0 ? [] : [otherRows(others)]),
    "",
    "how far to trust it",
    ...[...trust.from, ...trust.notes].map((note) => `  ${note}`),
  ].join("\n");
}

function otherRows(others: readonly Alternative[]): string {
  return textTable([
    ["  change", "images/s", "latency", "then bound by"],
    ...others.map(({ change, answer }) => [
      `  ${change}`,
      shortNumber(answer.imagesPerSecond),
      `${shortNumber(answer.latencyMs)} ms`,
      stationNames[boundOf(answer).station],
    ]),
  ]);
}

/** Float32 images per second (60 GB/s) above which a Triton's ingest is considered unlimited. */
const maxIngestRate = 1e5;

/** Assumptions of a prediction. */
export function notesOf(
  question: Scenario,
  all: ServiceTimes,
  bottleneck: StationName,
): readonly string[] {
  const { device, gpus, backend, payload, topology } = question;
  const times = timesFor(payload, all);
  const notes: string[] = [];
  if (!times.measured(device.name, backend)) {
    notes.push(
      `No figure of ${device.name} with ${backendNames[backend]}: one image takes what is usual, more of a batch what its peak gives.`,
    );
  }
  if (payload === "jpeg") {
    notes.push(
      `Decoding: ${shortNumber(times.decodeMsPerImage)} ms of one core for an image of ${shortNumber(question.jpegBytes / 1000)} kB, ${times.decodeWorkers} at a time; another host: --decode-ms, --decode-workers.`,
    );
  }
  if (payload === "json") {
    notes.push("What the server needs to read JSON text is in no figure: it will be slower.");
  }
  if (bottleneck === "ingest" || (gpus > 1 && payload !== "jpeg")) {
    const rate = 1000 / times.ingestMsPerImage;
    const each = topology === "per-gpu" ? "; with per-gpu, for each" : "";
    notes.push(
      rate > maxIngestRate
        ? "No load was limited by what one Triton ingests, and no limit is assumed (--ingest-ms)."
        : times.ingestMeasured
          ? `One Triton ingests ${shortNumber(rate)} float32 images/s, by the highest throughput of the record${each}.`
          : `How much one Triton ingests was never reached in a figure: ${shortNumber(rate)} float32 images/s are assumed (--ingest-ms)${each}.`,
    );
  }
  notes.push("Means, not percentiles; a service that is not interrupted.");
  return notes;
}

/** Plan of a job as text. */
export function planText(job: Job, plan: Plan, shown: number, trust: Trust): string {
  const { options } = plan;
  const meeting = options.filter(({ meets }) => meets);
  const [best] = options;
  const priced = best?.usd !== undefined;
  const line = (option: Option) => {
    const { question, imagesPerSecond, hours, usd } = option;
    return [
      `  ${question.gpus === 1 ? question.device.name : `${question.gpus} × ${question.device.name}`}`,
      question.gpus === 1 ? "-" : question.topology,
      question.payload,
      String(question.concurrency),
      shortNumber(imagesPerSecond),
      `${shortNumber(hours)} h`,
      usd === undefined ? "-" : money(usd),
      stationNames[option.bottleneck],
    ];
  };
  const head = [
    "  GPUs",
    "topology",
    "payload",
    "clients",
    "images/s",
    "takes",
    "costs",
    "bound by",
  ];
  const listed = (meeting.length > 0 ? meeting : options)
    .filter((option, index, all) => index === all.findIndex((other) => sameKind(other, option)))
    .slice(0, shown);
  const rate = `${job.images.toLocaleString("en-US")} images in ${shortNumber(job.withinHours)} h are ${shortNumber(plan.needed)} images/s`;
  return [
    rate,
    "",
    meeting.length > 0
      ? `${meeting.length} of ${options.length} ways meet it; ${priced ? "the cheapest" : "no price is known: the fewest GPUs"} of each GPU and payload:`
      : `none of ${options.length} ways meets it; the fastest of each GPU and payload:`,
    textTable([head, ...listed.map(line)]),
    "",
    "the link alone needs",
    textTable([
      ["  payload", "Mbit/s"],
      ...plan.bandwidthNeeded.map(({ payload, mbps }) => [`  ${payload}`, shortNumber(mbps)]),
    ]),
    ...(best === undefined ? [] : ["", `first way: ${questionLine(best.question)}`]),
    "",
    "how far to trust it",
    ...[...trust.from, ...trust.notes].map((note) => `  ${note}`),
  ].join("\n");
}

const sameKind = (a: Option, b: Option) =>
  a.question.device.name === b.question.device.name && a.question.payload === b.question.payload;

const shownPublished = ({ published: { low, high } }: CheckRow) =>
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
            `  ${row.shown}${row.assumed.length > 0 ? " *" : ""}`,
            shownPublished(row),
            row.predicted === undefined ? "" : shortNumber(row.predicted),
            shownError(row.error),
            row.unit,
            row.role,
          ]),
      ]),
      "",
    ].join("\n"),
  );
  const explained = `${Math.round(100 * explainedWithin)} %`;
  return [
    ...tables,
    "* a part of the load is not in the source, and assumed; the model's latencies are means, also beside a p50 or p95",
    "",
    ...Object.entries(summary.byRole).map(
      ([role, count]) => `${right(String(count), 4)}  ${role}: ${roles[role as Role]}`,
    ),
    "",
    summaryLine(summary),
    "",
    `not explained (off by more than ${explained}):`,
    ...summary.predicted.notExplained.map(
      (row) => `  ${shownError(row.error).padStart(8)}  ${row.figure}: ${row.note}`,
    ),
    ...summary.broken.map((row) => `broken: ${row.figure} is not given back`),
  ].join("\n");
}

export function summaryLine({ byRole, predicted }: CheckSummary): string {
  return `Of ${byRole.predicted} predicted figures ${predicted.within10} are within 10 %, ${predicted.within25} within ${Math.round(100 * explainedWithin)} %; the median error is ${Math.round(100 * predicted.medianError)} %.`;
}

export function parametersText(parameters: readonly Parameter[]): string {
  return textTable([
    ["parameter", "value", "unit", "from", "meaning"],
    ...parameters.map(({ name, value, unit, from, meaning }) => [
      name,
      shortNumber(value),
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
    return ["Nothing could be checked: every load of the record calibrates the model."];
  }
  const throughput = median(predicted.map((row) => Math.abs(row.throughputError))) ?? 0;
  const latency = median(predicted.map((row) => Math.abs(row.latencyError))) ?? 0;
  const loads = predicted.length === 1 ? "1 predicted load" : `${predicted.length} predicted loads`;
  return [
    `Of ${loads} the median error is ${percent(throughput)} of images/s, ${percent(latency)} of latency (--check).`,
    ...(Math.max(throughput, latency) > maxMedianError
      ? ["WARNING: the model does not fit this record; measure in place of asking it."]
      : []),
  ];
}

/** Loads of a record with their predictions as text. */
export function recordCheckText({ rows, leftOut, notes }: RecordCalibration): string {
  return [
    textTable([
      ["load", "images/s", "model", "error", "latency", "model", "error", "role"],
      ...rows.map((row) => [
        row.cell,
        shortNumber(row.imagesPerSecond.measured),
        shortNumber(row.imagesPerSecond.predicted),
        shownError(row.throughputError),
        `${shortNumber(row.latencyMs.measured)} ms`,
        `${shortNumber(row.latencyMs.predicted)} ms`,
        shownError(row.latencyError),
        row.role,
      ]),
    ]),
    "",
    ...recordErrorLines({ rows }),
    ...notes,
    ...[...new Set(leftOut.map(({ reason }) => reason))].map((reason) => {
      const loads = leftOut.filter((one) => one.reason === reason).map(({ load }) => load);
      return `left out: ${loads.length === 1 ? loads[0] : `${loads.length} loads`}: ${reason}`;
    }),
  ].join("\n");
}
