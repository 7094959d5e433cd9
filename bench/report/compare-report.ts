import type { BenchRecord } from "../src/bench-record.ts";
import {
  type CellChange,
  type Comparison,
  comparedMetrics,
  type Judgement,
  type MetricChange,
  ratioText,
} from "./compare.ts";
import {
  commitText,
  counted,
  type DataTable,
  dateText,
  formatMs,
  formatRate,
  listed,
  longColumn,
  numberColumn,
  type Report,
  type Section,
  type TableCell,
  type Tone,
  tableSection,
  textCell,
  textColumn,
} from "./document.ts";
import type { Metric } from "./intervals.ts";
import { placeText } from "./subject.ts";

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
  const { regressions, suspects, broken, cells, onlyFrom, onlyTo, warnings } = comparison;
  const doubts = cells.filter(({ notJudged }) => notJudged.length > 0);
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
      tableSection("loads", "Load points", cellTable(comparison)),
      listSection("drift", "Possible drift", suspects, [
        "One load point of several: the machine may have drifted between the runs.",
      ]),
      listSection(
        "doubts",
        "Not judged",
        doubts.map(({ name, notJudged }) => `${name}: ${notJudged.join(" ")}`),
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
  const { regressions, broken, cells, paths, judged, limit } = comparison;
  const percent = `${Number((limit * 100).toPrecision(3))} %`;
  if (regressions.length + broken.length > 0) {
    return listed([
      ...(broken.length === 0 ? [] : [`${counted(broken.length, "thing")} failed or missing`]),
      ...(regressions.length === 0
        ? []
        : [`${counted(regressions.length, "regression")} of more than ${percent}`]),
    ]);
  }
  if (cells.length === 0) return "no load is in both records";
  if (judged === 0) {
    return cells.every(({ notJudged }) => notJudged.length > 0)
      ? "no load could be judged"
      : "no load has windows enough to be sure of";
  }
  const better = paths.filter(({ changes }) =>
    changes.some(({ metric, judgement }) => metric === "throughput" && judgement === "better"),
  );
  const gain =
    better.length === 0 ? "" : `; more throughput: ${listed(better.map(({ name }) => name))}`;
  return `no regression of more than ${percent} in ${counted(judged, "load")}${gain}`;
}

function subjectText(record: BenchRecord): string {
  return `${placeText(record)}, ${commitText(record.subject)}, ${dateText(record.startedAt)} UTC`;
}

const shown = 6;

function missingLine(which: string, names: readonly string[]): readonly string[] {
  if (names.length === 0) return [];
  const rest = names.length > shown ? ` and ${counted(names.length - shown, "other")}` : "";
  return [`${which}: ${names.slice(0, shown).join("; ")}${rest}`];
}

function pathTable({ paths }: Comparison): DataTable {
  return {
    caption: "Each endpoint, all its load points together",
    columns: [
      textColumn("path"),
      numberColumn("loads"),
      ...comparedMetrics.map((metric) => numberColumn(metric)),
      textColumn("throughput is"),
    ],
    rows: paths.map(({ name, loads, changes }) => [
      textCell(name),
      { text: String(loads), sort: loads },
      ...comparedMetrics.map((metric) => ratioCell(changes.find((it) => it.metric === metric))),
      judgementCell(changes.find(({ metric }) => metric === "throughput")?.judgement),
    ]),
  };
}

function cellTable({ cells }: Comparison): DataTable {
  return {
    caption: "Each load point",
    columns: [
      longColumn("load"),
      numberColumn("images/s"),
      numberColumn("then"),
      ...comparedMetrics.map((metric) => numberColumn(metric)),
      textColumn("outcome"),
    ],
    rows: cells.map((change) => {
      const throughput = change.changes.find(({ metric }) => metric === "throughput");
      return [
        textCell(change.name),
        figureCell(throughput?.from, "throughput"),
        figureCell(throughput?.to, "throughput"),
        ...comparedMetrics.map((metric) =>
          ratioCell(change.changes.find((it) => it.metric === metric)),
        ),
        outcomeCell(change),
      ];
    }),
  };
}

function figureCell(value: number | undefined, metric: Metric): TableCell {
  if (value === undefined) return { text: "–", tone: "quiet" };
  return { text: metric === "throughput" ? formatRate(value) : formatMs(value), sort: value };
}

function ratioCell(change: Omit<MetricChange, "from" | "to"> | undefined): TableCell {
  if (change?.interval === undefined) return { text: "–", tone: "quiet" };
  return {
    text: ratioText(change.interval),
    sort: change.interval.ratio,
    tone: tones[change.judgement],
  };
}

function judgementCell(judgement: Judgement | undefined): TableCell {
  return judgement === undefined
    ? { text: "–", tone: "quiet" }
    : { text: marks[judgement], tone: tones[judgement] };
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
function outcomeCell({ changes, notJudged }: CellChange): TableCell {
  if (notJudged.length > 0) {
    return { text: "not judged", tone: "care", title: notJudged.join(" ") };
  }
  const [gravest] = [...changes].sort(
    (a, b) => order.indexOf(a.judgement) - order.indexOf(b.judgement),
  );
  return judgementCell(gravest?.judgement);
}
