import {
  commitText,
  type DataTable,
  dateText,
  type Figure,
  newSection,
  numberField,
  type Report,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import { counted, formatRate } from "../../report/document/number-format.ts";
import { endpointStyle, type PlotLine } from "../../report/plots/plot-styles.ts";
import { metricOf } from "../record/metrics.ts";
import { ratioText } from "./compare.ts";
import { lineFigure } from "./figure-parts.ts";
import type { HistoryChange, HistoryRun, HistorySeries, HistorySubject } from "./history.ts";
import { grouped } from "./load-points.ts";

/** File that is not part of a history. */
export interface SkippedFile {
  readonly file: string;
  readonly reason: string;
}

/** Report of several records: what changed, when and at which commit. */
export function historyReport(
  subjects: readonly HistorySubject[],
  skipped: readonly SkippedFile[] = [],
): Report {
  const runs = subjects.flatMap((subject) => subject.runs);
  const changes = subjects.flatMap(({ series }) => series.flatMap((one) => one.changes));
  const worse = changes.filter(({ isBetter }) => !isBetter).length;
  const comparable = subjects.some((subject) => subject.runs.length > 1);
  return {
    title: "History",
    verdict: verdictText(changes.length, worse, runs.length, comparable),
    tone: worse > 0 || !comparable ? "care" : "good",
    facts: [
      ["Records", String(runs.length)],
      ["First", runs.length === 0 ? "none" : runText(oldest(runs))],
      ["Last", runs.length === 0 ? "none" : runText(newest(runs))],
    ],
    failures: [],
    caveats: [
      {
        kind: "know",
        title: "Significance",
        text: "A change is listed if its confidence interval excludes no change; the comparisons of a metric share a level of 95 % (Bonferroni). Runs of one round have no interval. Drift of the machine between two runs is in no interval.",
      },
    ],
    summary: [
      ...subjects.map((subject, i) => changesSection(subject, i + 1, subjects.length)),
      ...(skipped.length === 0 ? [] : [skippedSection(skipped)]),
    ],
    sections: subjects
      .filter((subject) => subject.runs.length > 1)
      .map((subject, i) => seriesSection(subject, i + 1)),
    subject: [],
  };
}

function verdictText(changes: number, worse: number, runs: number, comparable: boolean): string {
  const over = `over ${counted(runs, "record")}`;
  if (!comparable) return `Nothing to compare ${over}: no two have the same subject`;
  if (changes === 0) return `No significant change ${over}`;
  return `${counted(changes, "significant change")} ${over}: ${worse} worse, ${changes - worse} better`;
}

const byTime = (a: HistoryRun, b: HistoryRun) => Date.parse(a.startedAt) - Date.parse(b.startedAt);
const oldest = (runs: readonly HistoryRun[]) => [...runs].sort(byTime)[0]!;
const newest = (runs: readonly HistoryRun[]) => [...runs].sort(byTime).at(-1)!;

/** `2026-11-21 10:30, 0123456789ab`. */
const runText = (run: HistoryRun) => `${dateText(run.startedAt)}, ${commitText(run)}`;

function subjectText({ environment, hardware, model, runs }: HistorySubject): string {
  return `${environment}; ${hardware}; ${model}: ${counted(runs.length, "record")}.`;
}

function changesSection(subject: HistorySubject, number: number, subjects: number): Section {
  const rows = subject.series
    .flatMap((series) => series.changes.map((change) => ({ series, change })))
    .sort((a, b) => byTime(a.change.to.run, b.change.to.run));
  const values = (series: HistorySeries, value: number) => metricOf(series.metric).format(value);
  const table = tableOf<{ series: HistorySeries; change: HistoryChange }>(
    "Significant changes, in order of time",
    rows,
    [
      textField("when", ({ change }) => dateText(change.to.run.startedAt)),
      textField("commit", ({ change }) => commitText(change.to.run)),
      textField("endpoint", ({ series }) => series.endpoint),
      textField("load", ({ series }) => series.setting),
      textField("metric", ({ series }) => metricOf(series.metric).label),
      textField(
        "change",
        ({ series, change }) =>
          `${values(series, change.from.value)} → ${values(series, change.to.value)}`,
      ),
      textField("ratio", ({ change: { interval, isBetter } }) => ({
        text: `${isBetter ? "✓" : "✗"} ${ratioText(interval)}`,
        tone: isBetter ? "good" : "bad",
      })),
      textField("last before", ({ change }) => runText(change.from.run)),
    ],
  );
  const answer =
    subject.runs.length < 2
      ? "Only one record, so nothing is compared."
      : rows.length === 0
        ? "No significant change."
        : "";
  return newSection(
    `changes-${number}`,
    subjects === 1 ? "Changes" : `Changes, subject ${number}`,
    {
      answer: [subjectText(subject), ...(answer === "" ? [] : [answer])],
      tables: rows.length === 0 ? [] : [table],
    },
  );
}

function skippedSection(skipped: readonly SkippedFile[]): Section {
  return newSection("skipped", "Files that are not in the history", {
    answer: skipped.map(({ file, reason }) =>
      reason.startsWith(file) ? reason : `${file}: ${reason}`,
    ),
  });
}

function seriesSection(subject: HistorySubject, number: number): Section {
  return newSection(`series-${number}`, "First and last values", {
    answer: [subjectText(subject)],
    figures: throughputFigures(subject),
    tables: [seriesTable(subject.series)],
    notes: [
      "Only reliable load points that several records share can change: unstable and invalid ones, and those with more than 1 % failed requests, are left out. Each run is compared with the first run since the last change.",
    ],
    terminal: true,
  });
}

function seriesTable(series: readonly HistorySeries[]): DataTable {
  const text = ({ metric, values }: HistorySeries, index: number) => {
    const value = values.at(index)?.value;
    return value === undefined ? "–" : metricOf(metric).format(value);
  };
  const ratio = ({ values }: HistorySeries) => {
    const [first, last] = [values[0]?.value, values.at(-1)?.value];
    return first === undefined || last === undefined || values.length < 2
      ? undefined
      : last / first;
  };
  return tableOf("Each metric in the first and last record that has it", series, [
    textField("endpoint", (row) => row.endpoint),
    textField("load", (row) => row.setting),
    textField("metric", (row) => metricOf(row.metric).label),
    numberField("records", (row) => row.values.length, String),
    textField("first", (row) => text(row, 0)),
    textField("last", (row) => text(row, -1)),
    numberField(
      "last ÷ first",
      ratio,
      (value) => value.toFixed(2),
      "Without regard to significance",
    ),
    numberField(
      "changes",
      (row) => row.changes.length,
      String,
      undefined,
      ({ changes }) =>
        changes.length === 0
          ? { tone: "quiet" }
          : { tone: changes.at(-1)?.isBetter ? "good" : "bad" },
    ),
  ]);
}

/** Plots of the throughput over time: one plot for each load, with one line for each endpoint. */
function throughputFigures({ series }: HistorySubject): readonly Figure[] {
  const plotted = series.filter(
    ({ metric, values }) => metric === "throughput" && values.length > 1,
  );
  return grouped(plotted, ({ setting }) => setting).flatMap((own) =>
    lineFigure(
      `Throughput over time, ${own[0].setting}`,
      "Ringed: a significant change from the runs before.",
      {
        description: `Images per second of each record with ${own[0].setting}`,
        x: {
          label: "record",
          kind: "steps",
          format: (time) => dateText(new Date(time).toISOString()),
        },
        y: { label: "images/s", kind: "linear", format: formatRate },
        lines: own.map(throughputLine),
      },
    ),
  );
}

function throughputLine({ endpoint, values, changes }: HistorySeries): PlotLine {
  const changed = new Set(changes.map(({ to }) => to.run.file));
  return {
    name: endpoint,
    style: endpointStyle(endpoint),
    points: values.map(({ run, value }) => ({
      x: Date.parse(run.startedAt),
      y: value,
      title: `${endpoint}: ${formatRate(value)} images/s, ${runText(run)}`,
      ring: changed.has(run.file),
    })),
  };
}
