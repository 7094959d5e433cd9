import {
  commitText,
  type DataTable,
  dateText,
  type Field,
  longField,
  newSection,
  numberField,
  type Report,
  type TableCell,
  type Tone,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import { counted, formatRate, listed } from "../../report/document/number-format.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { type ComparedMetric, comparedMetrics } from "../record/metrics.ts";
import {
  type Comparison,
  type EndpointChange,
  type Judgement,
  type LoadPointChange,
  ratioText,
} from "./compare.ts";
import { environmentText } from "./subject.ts";

const marks: Readonly<Record<Judgement, string>> = {
  worse: "✗ worse",
  better: "✓ better",
  "slightly worse": "slightly worse",
  "slightly better": "slightly better",
  same: "same",
  unsure: "unknown",
};

const tones: Readonly<Partial<Record<Judgement, Tone>>> = { worse: "bad", better: "good" };

/** Report of two compared benchmarks. */
export function compareReport(from: BenchRecord, to: BenchRecord, comparison: Comparison): Report {
  const { regressions, suspects, broken, loadPoints, onlyFrom, onlyTo, warnings } = comparison;
  const doubts = loadPoints.filter(({ exclusionReasons }) => exclusionReasons.length > 0);
  const isBad = regressions.length + broken.length > 0;
  return {
    title: "Comparison",
    verdict: verdictText(comparison),
    tone: isBad ? "bad" : comparison.judged === 0 ? "care" : "good",
    ...(warnings.length === 0 ? {} : { warning: warnings.map(bare).join("; ") }),
    facts: [
      ["From", subjectText(from)],
      ["To", subjectText(to)],
    ],
    failures: [
      ...broken.map((text) => ({ title: "Failed or missing", text })),
      ...regressions.map((text) => ({ title: "Worse", text })),
    ],
    caveats: warnings.map((text) => ({ kind: "figures", title: "The runs differ", text })),
    summary: [
      newSection("endpoints", "Endpoints", {
        tables: [endpointTable(comparison)],
        notes: [
          "Ratios are the second record's figures divided by the first's, with their 95 % confidence intervals: throughput above 1 and latency below 1 is better.",
          "Intervals are computed from the rounds (Welch's t). Drift of the machine between the two runs is in no interval: repeat both in alternating order before relying on a small difference.",
        ],
      }),
      newSection("loads", "Load points", { tables: [loadPointTable(comparison)] }),
      newSection("drift", "Possible drift", {
        answer: suspects,
        notes: [
          "A single load point of several is worse: the machine may have drifted between the runs.",
        ],
      }),
      newSection("doubts", "Not compared", {
        answer: doubts.map(
          ({ name, exclusionReasons }) => `${name}: ${exclusionReasons.join(" ")}`,
        ),
      }),
      newSection("missing", "Only in one record", {
        answer: [...missingLine("first", onlyFrom), ...missingLine("second", onlyTo)],
      }),
    ].filter(({ answer, tables }) => answer.length + (tables[0]?.rows.length ?? 0) > 0),
    sections: [],
    subject: [],
  };
}

const bare = (line: string) => line.replace(/\.$/, "");

/** Result in a few words. */
export function verdictText(comparison: Comparison): string {
  const { regressions, broken, loadPoints, endpoints, judged, limit } = comparison;
  const percent = `${Number((limit * 100).toPrecision(3))} %`;
  if (regressions.length + broken.length > 0) {
    return listed([
      ...(broken.length === 0
        ? []
        : [
            `${counted(broken.length, "failed run or missing load point", "failed runs or missing load points")}`,
          ]),
      ...(regressions.length === 0
        ? []
        : [`${counted(regressions.length, "regression")} of more than ${percent}`]),
    ]);
  }
  if (loadPoints.length === 0) return "no common load point";
  if (judged === 0) {
    return loadPoints.every(({ exclusionReasons }) => exclusionReasons.length > 0)
      ? "no reliable load point to compare"
      : "no load point has enough rounds to compare";
  }
  const better = endpoints.filter(({ changes }) =>
    changes.some(({ metric, judgement }) => metric === "throughput" && judgement === "better"),
  );
  const gain =
    better.length === 0 ? "" : `; higher throughput: ${listed(better.map(({ name }) => name))}`;
  return `no regression of more than ${percent} in ${counted(judged, "load point")}${gain}`;
}

function subjectText(record: BenchRecord): string {
  return `${environmentText(record)}, ${commitText(record.subject)}, ${dateText(record.startedAt)} UTC`;
}

const maxListed = 6;

function missingLine(which: string, names: readonly string[]): readonly string[] {
  if (names.length === 0) return [];
  const rest = names.length > maxListed ? ` and ${counted(names.length - maxListed, "other")}` : "";
  return [`${which}: ${names.slice(0, maxListed).join("; ")}${rest}`];
}

const throughputOf = <Change extends { readonly metric: ComparedMetric }>({
  changes,
}: {
  readonly changes: readonly Change[];
}) => changes.find(({ metric }) => metric === "throughput");

const ratioFields = comparedMetrics.map(
  (metric): Field<{ readonly changes: EndpointChange["changes"] }> => ({
    label: metric,
    kind: "number",
    cell: ({ changes }) => ratioCell(changes.find((it) => it.metric === metric)),
  }),
);

function endpointTable({ endpoints }: Comparison): DataTable {
  return tableOf("Mean over the load points of each endpoint", endpoints, [
    textField("endpoint", ({ name }) => name),
    numberField("load points", ({ loads }) => loads, String),
    ...ratioFields,
    textField("throughput", (endpoint) => judgementCell(throughputOf(endpoint)?.judgement)),
  ]);
}

function loadPointTable({ loadPoints }: Comparison): DataTable {
  return tableOf("Each load point", loadPoints, [
    longField("load point", ({ name }) => name),
    numberField("images/s from", (change) => throughputOf(change)?.from, formatRate),
    numberField("images/s to", (change) => throughputOf(change)?.to, formatRate),
    ...ratioFields,
    textField("result", outcomeCell),
  ]);
}

const absent: TableCell = { text: "–", tone: "quiet" };

function ratioCell(change: EndpointChange["changes"][number] | undefined): TableCell {
  if (change?.interval === undefined) return absent;
  return {
    text: ratioText(change.interval),
    sort: change.interval.ratio,
    tone: tones[change.judgement],
  };
}

function judgementCell(judgement: Judgement | undefined): TableCell {
  return judgement === undefined ? absent : { text: marks[judgement], tone: tones[judgement] };
}

const order: readonly Judgement[] = [
  "worse",
  "better",
  "slightly worse",
  "slightly better",
  "same",
  "unsure",
];

/** Most severe judgement of a load point. */
function outcomeCell({ changes, exclusionReasons }: LoadPointChange): TableCell {
  if (exclusionReasons.length > 0) {
    return { text: "not compared", tone: "care", title: exclusionReasons.join(" ") };
  }
  const [mostSevere] = [...changes].sort(
    (a, b) => order.indexOf(a.judgement) - order.indexOf(b.judgement),
  );
  return judgementCell(mostSevere?.judgement);
}
