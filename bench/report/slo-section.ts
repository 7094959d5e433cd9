import {
  type DataTable,
  type Figure,
  newSection,
  numberField,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatMs,
  formatPercent,
  formatRate,
} from "../../report/document/number-format.ts";
import { indexedStyle, type PlotLine } from "../../report/plots/plot-styles.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { confirmedTrial, type Slo, type SloSearch, type SloTrial } from "../record/slo-search.ts";
import { lineFigure } from "./figure-parts.ts";
import { endpointNamer, settingText } from "./load-points.ts";
import type { SloChoice } from "./verdict.ts";

/** Maximum share of its confirmed rate at which a replica is planned to run, for bursts and for the loss of a replica. */
export const plannedShare = 0.8;

/** Number of replicas that serve `demand` if each sustains `rate`, both in the same unit. */
export function replicasFor(demand: number, rate: number): number {
  return Math.ceil(demand / rate);
}

/** `p99 ≤ 200 ms`. */
export function sloText({ percentile, limitMs }: Slo): string {
  return `${percentile} ≤ ${limitMs} ms`;
}

/** Search with its result. */
interface SloRow {
  readonly search: SloSearch;
  readonly name: string;
  readonly confirmed?: SloTrial;
}

function sloRows({ slo = [] }: BenchRecord): readonly SloRow[] {
  const nameOf = endpointNamer(slo);
  return slo.map((search) => ({
    search,
    name: nameOf(search),
    confirmed: confirmedTrial(search),
  }));
}

/** Sections with the highest rate within the SLO: of the searches, or of closed loops, labelled as such, if the run had no search. */
export function sloSections(
  record: BenchRecord,
  choices: readonly SloChoice[],
): readonly Section[] {
  const rows = sloRows(record);
  if (rows.length > 0) return [searchSection(rows)];
  return choices.length === 0 ? [] : [choiceSection(choices)];
}

function searchSection(rows: readonly SloRow[]): Section {
  const demands = rows.flatMap(({ search }) => search.demandPerSecond ?? []);
  return newSection("slos", "Highest rate within the SLO", {
    tables: [resultTable(rows, demands.length > 0)],
    answer: rows.map(resultText),
    notes: [
      "Open loop: requests arrive independently of responses. Failed and timed-out requests count as later than every response. Each rate was confirmed by a separate measurement with other arrival times. Goodput is the rate of responses within the SLO.",
      ...(demands.length === 0
        ? []
        : [
            `Replicas: demand ÷ rate, rounded up; with headroom, each replica runs at no more than ${formatPercent(plannedShare)} of its rate. It assumes that replicas do not share a bottleneck.`,
          ]),
    ],
  });
}

function resultTable(rows: readonly SloRow[], hasDemand: boolean): DataTable {
  const images = (
    { search, confirmed }: SloRow,
    read: (trial: SloTrial) => number | undefined,
  ): number | undefined => {
    const value = confirmed && read(confirmed);
    return value === undefined ? undefined : value * search.imagesPerRequest;
  };
  const rate = (row: SloRow) => images(row, (trial) => trial.ratePerSecond);
  const replicas = (row: SloRow, share: number): number | undefined => {
    const [demand, perReplica] = [row.search.demandPerSecond, rate(row)];
    return demand === undefined || perReplica === undefined
      ? undefined
      : replicasFor(demand, share * perReplica);
  };
  return tableOf("Highest confirmed rate of each endpoint and batch size", rows, [
    textField("endpoint", ({ name }) => name),
    numberField("batch", ({ search }) => search.imagesPerRequest, formatCount),
    textField("SLO", ({ search }) => sloText(search.slo)),
    numberField("requests/s", ({ confirmed }) => confirmed?.ratePerSecond, formatRate, "Offered"),
    numberField("images/s", rate, formatRate, "Offered"),
    numberField(
      "throughput images/s",
      (row) => images(row, (trial) => trial.requestsPerSecond),
      formatRate,
    ),
    numberField(
      "goodput images/s",
      (row) => images(row, (trial) => trial.goodputPerSecond),
      formatRate,
      "Responses within the SLO",
    ),
    numberField("percentile ms", ({ confirmed }) => confirmed?.percentileMs, formatMs),
    numberField(
      "closed loop images/s",
      ({ search }) => search.closedLoopPerSecond * search.imagesPerRequest,
      formatRate,
      "Highest throughput of a closed loop, at any latency",
    ),
    ...(hasDemand
      ? [
          numberField<SloRow>("replicas", (row) => replicas(row, 1), formatCount),
          numberField<SloRow>(
            "with headroom",
            (row) => replicas(row, plannedShare),
            formatCount,
            `Replicas that each run at no more than ${formatPercent(plannedShare)} of the rate`,
          ),
        ]
      : []),
  ]);
}

/** `embed-http`, 1 image per request: 48.0 requests per second with a p99 of 180 ms; 500 images per second need 11 replicas. */
function resultText({ name, search, confirmed }: SloRow): string {
  const { slo, imagesPerRequest, trials, demandPerSecond, tolerance } = search;
  const subject = `\`${name}\`, ${counted(imagesPerRequest, "image")} per request`;
  const invalid = trials.filter(({ verdict }) => verdict === "client").length;
  const client =
    invalid > 0
      ? ` ${counted(invalid, "trial")} of ${trials.length} invalid because the load generator was too slow, so the server's limit can be higher.`
      : "";
  if (confirmed === undefined) {
    const met = trials.some(({ verdict }) => verdict === "met");
    const lowest = Math.min(...trials.map(({ ratePerSecond }) => ratePerSecond));
    const result = met
      ? "a rate met the SLO, but no confirmation did"
      : trials.length === invalid
        ? "no valid trial was measured"
        : `no rate down to ${formatRate(lowest)} requests per second met the SLO`;
    return `${subject}: ${result}.${client}`;
  }
  const rate = confirmed.ratePerSecond * imagesPerRequest;
  const demand =
    demandPerSecond === undefined
      ? ""
      : `; ${formatRate(demandPerSecond)} images per second need ${counted(replicasFor(demandPerSecond, rate), "replica")}, ${formatCount(replicasFor(demandPerSecond, plannedShare * rate))} with headroom`;
  const rejected = trials
    .filter(({ verdict }) => verdict !== "met")
    .map(({ ratePerSecond }) => ratePerSecond)
    .filter((tried) => tried > confirmed.ratePerSecond);
  const next = Math.min(...rejected);
  const isWide = next > confirmed.ratePerSecond * (1 + 2 * tolerance);
  const wide = isWide
    ? ` The search ended before it was within ${formatPercent(tolerance)}: ${Number.isFinite(next) ? `the next higher rate that failed is ${formatRate(next)}` : "no higher rate failed"}.`
    : "";
  return `${subject}: ${formatRate(confirmed.ratePerSecond)} requests per second with a ${slo.percentile} of ${formatMs(confirmed.percentileMs ?? Number.NaN)} ms, goodput ${formatRate(confirmed.goodputPerSecond)}${demand}.${wide}${client}`;
}

function choiceSection(choices: readonly SloChoice[]): Section {
  const isClosed = choices.some(({ point }) => point.load.kind === "closed loop");
  const loop = isClosed ? ", closed loop" : "";
  const table = tableOf("Load point with the highest throughput within each SLO", choices, [
    numberField(
      "p95 SLO",
      ({ sloMs }) => sloMs,
      (sloMs) => `${sloMs} ms`,
    ),
    textField("endpoint", ({ name }) => name),
    textField("load", ({ point }) => settingText(point)),
    numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
    numberField(`p95 ms${loop}`, ({ p95Ms }) => p95Ms, formatMs),
  ]);
  return newSection("slos", `Highest throughput within a p95 SLO${loop}`, {
    tables: [table],
    notes: isClosed
      ? [
          "A closed loop hides stalls, because its clients wait for responses: at the same rate, independent users see a higher p95. Do not plan replicas with this table; `clipstack bench --slo p95=200ms` searches the rate in an open loop.",
        ]
      : [],
  });
}

const verdictTexts: Readonly<Record<SloTrial["verdict"], string>> = {
  met: "met",
  latency: "too late",
  achieved: "rate not achieved",
  client: "invalid: load generator too slow",
};

/** One line per trial: `50.0 requests/s, goodput 49.8, p99 34.0 ms: met`. */
export function trialText({ percentile }: Slo, trial: SloTrial): string {
  const { purpose, ratePerSecond, goodputPerSecond, percentileMs, verdict, invalid = [] } = trial;
  const latency =
    percentileMs === undefined ? "beyond every response" : `${formatMs(percentileMs)} ms`;
  return `${purpose === "confirmation" ? "confirmation at " : ""}${formatRate(ratePerSecond)} requests/s, goodput ${formatRate(goodputPerSecond)}, ${percentile} ${latency}: ${[verdictTexts[verdict], ...invalid.map((text) => text.replace(/\.$/, ""))].join("; ")}`;
}

/** Trials of all searches, as evidence. */
export function sloTrialsSection(record: BenchRecord): Section | undefined {
  const rows = sloRows(record).filter(({ search }) => search.trials.length > 0);
  if (rows.length === 0) return undefined;
  const trials = rows.flatMap(({ search, name }) =>
    search.trials.map((trial) => ({ search, name, trial })),
  );
  const table = tableOf(`All ${counted(trials.length, "trial")}`, trials, [
    textField("endpoint", ({ name }) => name),
    numberField("batch", ({ search }) => search.imagesPerRequest, formatCount),
    textField("trial", ({ trial }) => trial.purpose),
    numberField("offered /s", ({ trial }) => trial.ratePerSecond, formatRate),
    numberField("throughput /s", ({ trial }) => trial.requestsPerSecond, formatRate),
    numberField("goodput /s", ({ trial }) => trial.goodputPerSecond, formatRate),
    numberField("succeeded", ({ trial }) => trial.achievedShare, formatPercent),
    textField("percentile ms", ({ trial: { percentileMs } }) =>
      percentileMs === undefined
        ? { text: "> all", title: "falls on a failed request", sort: Number.MAX_VALUE }
        : { text: formatMs(percentileMs), sort: percentileMs },
    ),
    numberField("requests", ({ trial }) => trial.requests, formatCount),
    numberField("failed", ({ trial }) => trial.failed, formatCount),
    textField("result", ({ trial: { verdict, invalid } }) => ({
      text: verdictTexts[verdict],
      title: invalid?.join(" "),
      tone: verdict === "met" ? "good" : verdict === "client" ? "care" : "quiet",
    })),
  ]);
  const bounds = rows.map(
    ({ name, search }) =>
      `\`${name}\`, ${counted(search.imagesPerRequest, "image")} per request: ${counted(search.trials.length, "trial")} below ${formatRate(search.closedLoopPerSecond)} requests per second, the throughput of a closed loop.`,
  );
  return {
    id: "slo-trials",
    title: "Search for the highest rate within the SLO",
    answer: bounds,
    figures: trialFigures(rows),
    tables: [{ ...table, isReference: true }],
    notes: [
      "Bisection over the offered rate. A rate is accepted if its percentile is within the SLO, 99 % of its requests succeed, responses do not fall behind the requests, and the load generator was not the bottleneck.",
    ],
  };
}

/** Percentile by offered rate, with one figure for each SLO. */
function trialFigures(rows: readonly SloRow[]): readonly Figure[] {
  const slos = new Map(rows.map(({ search: { slo } }) => [sloText(slo), slo]));
  return [...slos].flatMap(([text, { percentile, limitMs }]): readonly Figure[] => {
    const lines = rows
      .filter(({ search }) => sloText(search.slo) === text)
      .map(trialLine)
      .filter(({ points }) => points.length > 0);
    return lineFigure(
      `${percentile} by offered rate`,
      `Trials of each search and their confirmation. Trials whose ${percentile} falls on a failed request are not shown.`,
      {
        description: `${percentile} in milliseconds by offered requests per second`,
        x: { label: "offered requests/s", kind: "linear", format: formatRate },
        y: { label: `${percentile}, ms`, kind: "log", format: String },
        lines,
        rule: { y: limitMs, label: `SLO ${limitMs} ms` },
      },
    );
  });
}

function trialLine({ name, search }: SloRow, index: number): PlotLine {
  const { slo, imagesPerRequest, trials } = search;
  const points = trials.flatMap((trial) =>
    trial.percentileMs === undefined
      ? []
      : [
          {
            x: trial.ratePerSecond,
            y: trial.percentileMs,
            title: trialText(slo, trial),
            ...(trial.verdict === "client" ? { doubt: "crossed" as const } : {}),
            ring: trial.purpose === "confirmation" && trial.verdict === "met",
          },
        ],
  );
  return {
    name: `${name} b${imagesPerRequest}`,
    style: indexedStyle(index),
    points: points.sort((a, b) => a.x - b.x),
  };
}
