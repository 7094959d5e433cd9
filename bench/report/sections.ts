import {
  errorsText,
  newSection,
  numberField,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import {
  counted,
  formatBytes,
  formatCount,
  formatMs,
  formatPercent,
  formatRate,
  listed,
} from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { batchSection } from "./batch-section.ts";
import { concurrencySection } from "./concurrency-section.ts";
import { smallestLoad } from "./contenders.ts";
import { costSection } from "./cost-section.ts";
import { rateFigures } from "./figures.ts";
import { importedSection } from "./imported-section.ts";
import {
  conditionsFields,
  environmentFields,
  intervalField,
  latencyFields,
  loadField,
  loadPointRows,
  measuredMetricFields,
  metricField,
  nameField,
  trustField,
} from "./load-point-table.ts";
import {
  endpointNamer,
  endpointOf,
  isUnmodified,
  minAchievedShare,
  openLoop,
  seriesOf,
  settingText,
  trustOf,
} from "./load-points.ts";
import { sloTrialsSection } from "./slo-section.ts";
import { studySections } from "./study-sections.ts";
import { roundsText } from "./subject.ts";
import { timeSection } from "./time-section.ts";

/** Sections with the evidence for the recommendations. */
export function sectionsOf(record: BenchRecord): readonly Section[] {
  return [
    latencySection(record),
    batchSection(record),
    concurrencySection(record),
    timeSection(record),
    costSection(record),
    openLoopSection(record),
    sloTrialsSection(record),
    ...studySections(record),
    importedSection(record),
    paritySection(record),
    loadsSection(record),
  ].filter((section) => section !== undefined);
}

function latencySection(record: BenchRecord): Section | undefined {
  const series = seriesOf(record.loadPoints.filter(isUnmodified));
  const contenders = smallestLoad(series);
  const [first] = contenders;
  if (first === undefined) return undefined;
  const sorted = [...contenders].sort(
    (a, b) => (a.point.latencyMs?.p50 ?? 0) - (b.point.latencyMs?.p50 ?? 0),
  );
  const [best, worst] = [sorted[0], sorted.at(-1)];
  const answer =
    best === undefined || worst === undefined || best === worst
      ? []
      : [
          `With ${settingText(first.point)}, the p50 ranges from ${formatMs(best.point.latencyMs?.p50 ?? 0)} ms (\`${best.name}\`) to ${formatMs(worst.point.latencyMs?.p50 ?? 0)} ms (\`${worst.name}\`).`,
        ];
  return newSection("paths", "Latency of each endpoint at low load", {
    answer,
    tables: [
      tableOf(`Latency with ${settingText(first.point)}`, sorted, [
        nameField,
        ...latencyFields,
        metricField("throughput"),
        numberField("request size", ({ point }) => point.requestBytes, formatBytes),
        numberField("requests measured", ({ point }) => point.samples, formatCount),
        trustField,
      ]),
    ],
  });
}

function openLoopSection(record: BenchRecord): Section | undefined {
  const lines = seriesOf(openLoop(record.loadPoints));
  if (lines.length === 0) return undefined;
  const rateOf = ({ load }: LoadPoint) => (load.kind === "open loop" ? load.ratePerSecond : 0);
  const isSustained = (point: LoadPoint) =>
    (point.achievedShare ?? 0) >= minAchievedShare && trustOf(point) === "good";
  const sorted = lines.map((line) => ({
    ...line,
    loadPoints: [...line.loadPoints].sort((a, b) => rateOf(a) - rateOf(b)),
  }));
  return {
    id: "rates",
    title: "Fixed request rates (open loop)",
    answer: sorted.map(({ name, loadPoints }) => {
      const highest = loadPoints.filter(isSustained).at(-1);
      return highest === undefined
        ? `\`${name}\` sustained none of the tested rates.`
        : `\`${name}\` sustains ${formatRate(rateOf(highest))} requests per second with a p95 of ${formatMs(highest.latencyMs?.p95 ?? 0)} ms${highest === loadPoints.at(-1) ? ", the highest tested rate" : ""}.`;
    }),
    figures: rateFigures(sorted, rateOf, isSustained),
    tables: [
      tableOf("Latency by request rate", loadPointRows(sorted), [
        nameField,
        textField("arrivals", ({ point: { load } }) =>
          load.kind === "open loop" ? load.arrivals : "",
        ),
        numberField("rate /s", ({ point }) => rateOf(point), formatRate),
        numberField(
          "succeeded",
          ({ point }) => point.achievedShare,
          formatPercent,
          "Fraction of the requests due in the measured windows",
          ({ point }) => ((point.achievedShare ?? 1) < minAchievedShare ? { tone: "bad" } : {}),
        ),
        ...latencyFields,
        numberField("requests measured", ({ point }) => point.samples, formatCount),
        trustField,
      ]),
    ],
    notes: [
      "Latency is measured from the time at which a request was due, so it includes the delay that a server stall causes to every queued request. A rate is sustained if 99 % of its requests succeed and the windows agree.",
    ],
  };
}

function paritySection({ parity }: BenchRecord): Section | undefined {
  if (parity.length === 0) return undefined;
  const wrong = parity.filter(({ passed }) => !passed);
  const name = endpointNamer(parity);
  return newSection("parity", "Embedding parity", {
    answer: [
      wrong.length === 0
        ? `${parity.length === 1 ? "The endpoint" : `All ${parity.length} endpoints`} returned the embeddings of the local reference.`
        : `Not measured, because their embeddings differ from the local reference: ${listed(wrong.map((row) => `\`${name(row)}\``))}.`,
    ],
    tables: [
      tableOf("Embeddings compared with the local reference", parity, [
        textField("endpoint", name),
        numberField("images", ({ images }) => images, formatCount),
        numberField(
          "minimum cosine",
          ({ minCosine }) => minCosine,
          (value) => value.toFixed(6),
        ),
        numberField(
          "maximum difference",
          (row) => row.maxRelativeDifference,
          (value) => (value === 0 ? "0" : value.toExponential(1)),
          "‖a − b‖ / ‖b‖",
        ),
        textField("result", ({ passed, message }) =>
          passed
            ? { text: "✓ pass", tone: "good", title: message }
            : { text: `✗ ${message}`, tone: "bad" },
        ),
      ]),
    ],
  });
}

function loadsSection({ loadPoints, settings }: BenchRecord): Section | undefined {
  if (loadPoints.length === 0) return undefined;
  const rows = loadPoints.map((point) => ({
    name: endpointOf(point),
    environment: point.environment,
    point,
  }));
  return newSection("loads", "All load points", {
    tables: [
      {
        isReference: true,
        ...tableOf(`All ${counted(loadPoints.length, "load point")}`, rows, [
          ...environmentFields(loadPoints),
          nameField,
          numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
          loadField,
          ...conditionsFields(loadPoints),
          ...measuredMetricFields(loadPoints, ["result", "server"]),
          intervalField,
          numberField("requests", ({ point }) => point.samples, formatCount),
          textField("errors", ({ point: { errors } }) => ({
            text: errorsText(errors),
            tone: Object.keys(errors).length > 0 ? "bad" : "quiet",
            sort: Object.values(errors).reduce((sum, count) => sum + count, 0),
          })),
          numberField("rounds", ({ point }) => point.rounds.length, formatCount),
          numberField(
            "generator CPU",
            ({ point }) => point.client.busiestWorkerCores,
            formatPercent,
            "CPU utilisation of the busiest load generator process",
            ({ point }) => (point.client.busiestWorkerCores > 0.9 ? { tone: "bad" } : {}),
          ),
          trustField,
        ]),
      },
    ],
    notes: [
      `${roundsText(settings)}. Rates are means of the rounds, percentiles those of all requests; intervals are computed by Student's t from the rounds.`,
    ],
  });
}
