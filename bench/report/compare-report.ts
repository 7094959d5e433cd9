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
  counted,
  type DataTable,
  formatMs,
  formatRate,
  listed,
  numberColumn,
  type TableCell,
  type Tone,
  textCell,
  textColumn,
} from "./document.ts";
import type { Metric } from "./intervals.ts";
import { markdownTable, plain } from "./markdown.ts";
import { commitText, dateText, placeText } from "./subject.ts";
import { textTable } from "./text-table.ts";

/** A comparison as text for a terminal, and as Markdown for a pull request. Pure. */

const marks: Readonly<Record<Judgement, string>> = {
  worse: "✗ worse",
  better: "✓ better",
  "slightly worse": "slightly worse",
  "slightly better": "slightly better",
  same: "same",
  unsure: "unsure",
};

const tones: Readonly<Partial<Record<Judgement, Tone>>> = { worse: "bad", better: "good" };

export function compareText(from: BenchRecord, to: BenchRecord, comparison: Comparison): string {
  const { regressions, suspects, broken, cells, paths, onlyFrom, onlyTo, warnings } = comparison;
  const doubts = cells.filter(({ notJudged }) => notJudged.length > 0);
  return [
    `${subjectLine("from", from)}\n${subjectLine("to", to)}`,
    warnings.map((line) => `! ${line}`).join("\n"),
    paths.length === 0 ? "" : textTable(pathTable(comparison)),
    cells.length === 0 ? "" : textTable(cellTable(comparison)),
    doubts.length === 0
      ? ""
      : `Not judged:\n${doubts.map(({ name, notJudged }) => `  ${name}: ${notJudged.join(" ")}`).join("\n")}`,
    [missingLine("first", onlyFrom), missingLine("second", onlyTo)]
      .filter((line) => line !== "")
      .join("\n"),
    suspects.length === 0
      ? ""
      : `To look at, one load of several (it may be drift between the runs):\n${suspects.map((line) => `  ${line}`).join("\n")}`,
    [...broken, ...regressions].map((line) => `✗ ${line}`).join("\n"),
    `${verdictText(comparison)}.`,
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

export function compareMarkdown(
  from: BenchRecord,
  to: BenchRecord,
  comparison: Comparison,
): string {
  const { regressions, suspects, broken, cells, onlyFrom, onlyTo, warnings } = comparison;
  const doubts = cells.filter(({ notJudged }) => notJudged.length > 0);
  const bullets = (lines: readonly string[]) => lines.map((line) => `- ${plain(line)}`).join("\n");
  return `${[
    `## Bench compared: ${verdictText(comparison)}`,
    bullets([subjectLine("from", from), subjectLine("to", to)]),
    warnings.length === 0
      ? ""
      : `> [!WARNING]\n${warnings.map((line) => `> ${plain(line)}`).join("\n")}`,
    broken.length === 0 ? "" : `### Failed or missing\n\n${bullets(broken)}`,
    regressions.length === 0 ? "" : `### Worse\n\n${bullets(regressions)}`,
    suspects.length === 0
      ? ""
      : `### To look at\n\nOne load of several: it may be drift between the runs.\n\n${bullets(suspects)}`,
    markdownTable(pathTable(comparison)),
    cells.length === 0
      ? ""
      : `<details><summary>${counted(cells.length, "load")}</summary>\n\n${markdownTable(cellTable(comparison))}\n\n</details>`,
    doubts.length === 0
      ? ""
      : `### Not judged\n\n${bullets(doubts.map(({ name, notJudged }) => `${name}: ${notJudged.join(" ")}`))}`,
    bullets(
      [missingLine("first", onlyFrom), missingLine("second", onlyTo)].filter((it) => it !== ""),
    ),
    "Ratios are the second record's figures divided by the first's, with the interval that holds them with 95 % confidence: throughput above 1 and latency below 1 is better.",
  ]
    .filter((part) => part !== "")
    .join("\n\n")}\n`;
}

/** What came of it, in a few words. */
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

function subjectLine(which: string, record: BenchRecord): string {
  return `${which}: ${placeText(record)}, ${commitText(record)}, ${dateText(record.startedAt)} UTC`;
}

const shown = 6;

function missingLine(which: string, names: readonly string[]): string {
  if (names.length === 0) return "";
  const rest = names.length > shown ? ` and ${counted(names.length - shown, "other")}` : "";
  return `Only in the ${which} record: ${names.slice(0, shown).join("; ")}${rest}`;
}

export function pathTable({ paths }: Comparison): DataTable {
  return {
    caption: "Each path, all its loads together",
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

export function cellTable({ cells }: Comparison): DataTable {
  return {
    caption: "Each load",
    columns: [
      textColumn("load"),
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
