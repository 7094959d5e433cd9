import {
  commitText,
  type DataTable,
  type Field,
  longField,
  machineText,
  type Report,
  type Fact as ReportFact,
  type TableCell,
  tableOf,
  tableSection,
  textField,
  whenText,
} from "../../report/document/document.ts";
import { formatMs } from "../../report/document/number-format.ts";
import { compare, type Fact, type Figure, type Judged, type LoadRow } from "./compare.ts";
import { type SubjectName, subjectNames } from "./loads.ts";
import type { ServerRecord } from "./record.ts";

/** Report of the server benchmark: ratios to the ceiling and the baseline, then the figures behind them. */
export function serverReport(record: ServerRecord): Report {
  const { rows, facts, missedTargets } = compare(record);
  return {
    title: "Server bench",
    verdict: targetsText(rows, facts),
    tone: missedTargets.length === 0 ? "good" : "bad",
    facts: [
      ["Machine", machineText(record.subject.machine)],
      ["Commit", commitText(record.subject)],
      ["When", whenText(record)],
    ],
    failures: missedTargets.map((text) => ({ title: "Target missed", text })),
    caveats: disturbances(rows),
    summary: [
      tableSection("ratios", "Against the ceiling and the baseline", ratioTable(rows), {
        notes: ["Median of the rounds' ratios, each round's in parentheses, then the target."],
      }),
      tableSection("rates", "Images per second", ratesTable(rows, "imagesPerSecond")),
      tableSection("latency", "Latency, p50 and p95 in ms", latencyTable(rows)),
      tableSection("cpu", "Processor time per image, ms", ratesTable(rows, "cpuMsPerImage")),
      tableSection("figures", "Other figures", factTable(facts)),
    ].filter(({ tables }) => (tables[0]?.rows.length ?? 0) > 0),
    sections: [],
    subject: subjectFacts(record),
  };
}

function subjectFacts({ subject }: ServerRecord): readonly ReportFact[] {
  const { machine, settings, baseline, ceiling, versions, images, models, optimisedModels } =
    subject;
  const pairs = (values: Readonly<Record<string, string>>, between: string) =>
    Object.entries(values).map(([name, value]) => `${name}${between}${value}`);
  return [
    ["System", `${machine.os}, Node ${machine.node}`],
    ["Server", pairs(versions, " ").join(", ")],
    ...Object.entries(models).flatMap(([name, model]): readonly ReportFact[] =>
      model === undefined
        ? []
        : [
            [
              `Model, ${name}`,
              `${model.file}, ${(model.bytes / 1e6).toFixed(1)} MB, ${model.weights} weights`,
            ],
          ],
    ),
    [
      "Ceiling",
      `ONNX Runtime alone on ${ceiling.file} (${ceiling.precision}), session options ${JSON.stringify(ceiling.sessionOptions)}; the best of the batch sizes up to the load's concurrency`,
    ],
    ...optimisedModels.map(
      ({ model, precision, parts, minCosine, images: count }): ReportFact => [
        `Optimised model, ${[model, precision].filter(Boolean).join(", ")}`,
        `${parts.join(", ")}; lowest cosine similarity to the original file ${minCosine.toFixed(6)} on ${count} images`,
      ],
    ),
    [
      "Baseline",
      baseline.measured
        ? `${baseline.packages.join(", ")}; ${pairs(baseline.settings, "=").join(" ")}`
        : `not measured: ${baseline.reason}`,
    ],
    [
      "Load",
      `${settings.loadGenerator}, closed loop, base64 JPEG or text, ${settings.rounds} rounds of ${settings.seconds} s after ${settings.warmupSeconds} s`,
    ],
    ...images.map(
      ({ kind, width, height, bytes }): ReportFact => [
        `Images, ${kind}`,
        `${bytes.length} of ${width} × ${height}, ${kilobytes(Math.min(...bytes))}-${kilobytes(Math.max(...bytes))} KB`,
      ],
    ),
  ];
}

const kilobytes = (bytes: number) => Math.round(bytes / 1_000);

function targetsText(rows: readonly LoadRow[], facts: readonly Fact[]): string {
  const judged = [
    ...rows.flatMap(({ ofCeiling, againstBaseline, p95AgainstBaseline, addedMs }) => [
      ofCeiling,
      againstBaseline,
      p95AgainstBaseline,
      addedMs,
    ]),
    ...facts,
  ].filter((value) => value?.passed !== undefined);
  return `${judged.filter((value) => value?.passed).length} of ${judged.length} targets met`;
}

function ratioTable(rows: readonly LoadRow[]): DataTable {
  return tableOf("Ratios of images per second and of p95", rows, [
    longField("load", ({ load }) => load.title),
    longField("of the ceiling", ({ ofCeiling }) => judgedCell(ofCeiling)),
    longField("to the baseline", ({ againstBaseline }) => judgedCell(againstBaseline)),
    longField("p95 to the baseline", ({ p95AgainstBaseline }) => judgedCell(p95AgainstBaseline)),
    ...(rows.some(({ addedMs }) => addedMs !== undefined)
      ? [
          longField<LoadRow>("p50 above the ceiling, ms", ({ addedMs }) => judgedCell(addedMs)),
          longField<LoadRow>("outside decoding and inference, ms", ({ outsideMs }) => ({
            text: figureText(outsideMs),
          })),
        ]
      : []),
  ]);
}

type SubjectFigures = "imagesPerSecond" | "cpuMsPerImage" | "p50Ms";

/** One column for each subject with a figure. */
function subjectTable(
  caption: string,
  rows: readonly LoadRow[],
  what: SubjectFigures,
  cell: (row: LoadRow, subject: SubjectName) => string,
): DataTable {
  const subjects = subjectNames.filter((subject) =>
    rows.some((row) => row[what][subject] !== undefined),
  );
  return tableOf(caption, rows, [
    longField("load", ({ load }) => load.title),
    ...subjects.map(
      (subject): Field<LoadRow> => ({
        label: subject,
        kind: "number",
        cell: (row) => ({ text: cell(row, subject), sort: row[what][subject]?.value }),
      }),
    ),
  ]);
}

const ratesTable = (rows: readonly LoadRow[], what: "imagesPerSecond" | "cpuMsPerImage") =>
  subjectTable("Median, and the rounds or their range in parentheses", rows, what, (row, subject) =>
    figureText(row[what][subject]),
  );

const latencyTable = (rows: readonly LoadRow[]) =>
  subjectTable("Medians of the rounds: p50 / p95", rows, "p50Ms", (row, subject) => {
    const [p50, p95] = [row.p50Ms[subject], row.p95Ms[subject]];
    return p50 === undefined || p95 === undefined
      ? ""
      : `${formatMs(p50.value)} / ${formatMs(p95.value)}`;
  });

function factTable(facts: readonly Fact[]): DataTable {
  return tableOf("Figures that do not belong to one load", facts, [
    textField("figure", ({ name }) => name),
    textField("median", valueText),
    textField("rounds", roundsText),
    textField("target", (fact) => ({ text: targetText(fact), ...toneOf(fact) })),
  ]);
}

/** Maximum share of the machine used by other processes that is not reported. */
const quietShare = 0.05;

function disturbances(rows: readonly LoadRow[]): Report["caveats"] {
  const loud = rows.filter(({ othersShare = 0 }) => othersShare > quietShare);
  if (loud.length === 0) return [];
  const list = loud.map(
    ({ load, othersShare = 0 }) => `${load.id} ${Math.round(100 * othersShare)} %`,
  );
  return [
    {
      kind: "figures",
      title: "Other processes used the machine",
      text: `At most: ${list.join(", ")}. These figures are rough.`,
    },
  ];
}

const toneOf = ({ passed }: Judged): Partial<TableCell> =>
  passed === undefined ? {} : { tone: passed ? "good" : "bad" };

function judgedCell(value: Judged | undefined): TableCell {
  if (value === undefined) return { text: "" };
  const rounds = value.rounds.map((one) => one.toFixed(2)).join(", ");
  const { passed, target } = value;
  const verdict =
    target === undefined ? "" : ` ${passed ? "✓" : "✗"} ${target.bound} ${target.value}`;
  return {
    text: `${value.value.toFixed(2)} (${rounds})${verdict}`,
    sort: value.value,
    ...toneOf(value),
  };
}

function figureText(value: Figure | undefined): string {
  return value === undefined ? "" : `${formatMs(value.value)} (${spread(value.rounds, formatMs)})`;
}

/** The rounds, or their range if there are more than three. */
function spread(rounds: readonly number[], format: (value: number) => string): string {
  return rounds.length > 3
    ? `${format(Math.min(...rounds))} to ${format(Math.max(...rounds))}`
    : rounds.map(format).join(", ");
}

function valueText({ value, unit }: Fact): string {
  if (unit === "cosine") return value.toFixed(6);
  return unit === "ratio" ? value.toFixed(2) : `${formatMs(value)} ${unit}`;
}

function roundsText({ rounds, unit }: Fact): string {
  if (rounds.length < 2) return "";
  const text = spread(rounds, unit === "cosine" ? (value) => value.toFixed(6) : formatMs);
  return rounds.length > 3 ? `${text} in ${rounds.length} runs` : text;
}

function targetText({ target, passed, unit }: Fact): string {
  if (target === undefined) return "";
  const suffix = unit === "MB" || unit === "ms" ? ` ${unit}` : "";
  return `${passed ? "✓" : "✗"} ${target.bound} ${target.value}${suffix}`;
}
