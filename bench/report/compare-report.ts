import type { BenchRecord } from "../record/bench-record.ts";
import { type ComparedMetric, comparedMetrics } from "../record/metrics.ts";
import {
  type Comparison,
  type EndpointChange,
  type Judgement,
  type LoadPointChange,
  ratioText,
} from "./compare.ts";
import {
  commitText,
  type DataTable,
  dateText,
  type Field,
  longField,
  numberField,
  type Report,
  type Section,
  type TableCell,
  type Tone,
  tableOf,
  tableSection,
  textField,
} from "./document.ts";
import { counted, formatRate, listed } from "./number-format.ts";
import { environmentText } from "./subject.ts";

const marks: Readonly<Record<Judgement, string>> = {
  worse: "✗ worse",
  better: "✓ better",
  "slightly worse": "slightly worse",
  "slightly better": "slightly better",
  same: "same",
  unsure: "unsure",
};

const tones: Readonly<Partial<Record<Judgement, Tone>>> = { worse: "bad", better: "good" };

/** Report of two compared benchmarks. */
export function compareReport(from: BenchRecord, to: BenchRecord, comparison: Comparison): Report {
  const { regressions, suspects, broken, loadPoints, onlyFrom, onlyTo, warnings } = comparison;
  const doubts = loadPoints.filter(({ exclusionReasons }) => exclusionReasons.length > 0);
  const isBad = regressions.length + broken.length > 0;
  return {
    title: "Bench compared",
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
      tableSection("paths", "Endpoints", pathTable(comparison), {
        notes: [
          "Ratios are the second record's figures divided by the first's, with their 95 % confidence intervals: throughput above 1 and latency below 1 is better.",
        ],
      }),
      tableSection("loads", "Load points", loadPointTable(comparison)),
      listSection("drift", "Possible drift", suspects, [
        "One load point of several: the machine may have drifted between the runs.",
      ]),
      listSection(
        "doubts",
        "Not judged",
        doubts.map(({ name, exclusionReasons }) => `${name}: ${exclusionReasons.join(" ")}`),
      ),
      listSection("missing", "Only in one record", [
        ...missingLine("first", onlyFrom),
        ...missingLine("second", onlyTo),
      ]),
    ].filter(({ answer, tables }) => answer.length + (tables[0]?.rows.length ?? 0) > 0),
    sections: [],
    subject: [],
  };
}

const bare = (line: string) => line.replace(/\.$/, "");

function listSection(
  id: string,
  title: string,
  answer: readonly string[],
  notes: readonly string[] = [],
): Section {
  return { id, title, answer, figures: [], tables: [], notes };
}

/** Result in a few words. */
export function verdictText(comparison: Comparison): string {
  const { regressions, broken, loadPoints, endpoints, judged, limit } = comparison;
  const percent = `${Number((limit * 100).toPrecision(3))} %`;
  if (regressions.length + broken.length > 0) {
    return listed([
      ...(broken.length === 0 ? [] : [`${counted(broken.length, "thing")} failed or missing`]),
      ...(regressions.length === 0
        ? []
        : [`${counted(regressions.length, "regression")} of more than ${percent}`]),
    ]);
  }
  if (loadPoints.length === 0) return "no load is in both records";
  if (judged === 0) {
    return loadPoints.every(({ exclusionReasons }) => exclusionReasons.length > 0)
      ? "no load could be judged"
      : "no load has windows enough to be sure of";
  }
  const better = endpoints.filter(({ changes }) =>
    changes.some(({ metric, judgement }) => metric === "throughput" && judgement === "better"),
  );
  const gain =
    better.length === 0 ? "" : `; more throughput: ${listed(better.map(({ name }) => name))}`;
  return `no regression of more than ${percent} in ${counted(judged, "load")}${gain}`;
}

function subjectText(record: BenchRecord): string {
  return `${environmentText(record)}, ${commitText(record.subject)}, ${dateText(record.startedAt)} UTC`;
}

const shown = 6;

function missingLine(which: string, names: readonly string[]): readonly string[] {
  if (names.length === 0) return [];
  const rest = names.length > shown ? ` and ${counted(names.length - shown, "other")}` : "";
  return [`${which}: ${names.slice(0, shown).join("; ")}${rest}`];
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

function pathTable({ endpoints }: Comparison): DataTable {
  return tableOf("Each endpoint, all its load points together", endpoints, [
    textField("endpoint", ({ name }) => name),
    numberField("loads", ({ loads }) => loads, String),
    ...ratioFields,
    textField("throughput is", (path) => judgementCell(throughputOf(path)?.judgement)),
  ]);
}

function loadPointTable({ loadPoints }: Comparison): DataTable {
  return tableOf("Each load point", loadPoints, [
    longField("load", ({ name }) => name),
    numberField("images/s", (change) => throughputOf(change)?.from, formatRate),
    numberField("then", (change) => throughputOf(change)?.to, formatRate),
    ...ratioFields,
    textField("outcome", outcomeCell),
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

/** The gravest of what became of a load. */
function outcomeCell({ changes, exclusionReasons }: LoadPointChange): TableCell {
  if (exclusionReasons.length > 0) {
    return { text: "not judged", tone: "care", title: exclusionReasons.join(" ") };
  }
  const [gravest] = [...changes].sort(
    (a, b) => order.indexOf(a.judgement) - order.indexOf(b.judgement),
  );
  return judgementCell(gravest?.judgement);
}
