import {
  commitText,
  type DataTable,
  type Field,
  longField,
  machineText,
  type Report,
  tableOf,
  tableSection,
  textField,
  whenText,
} from "../../report/document/document.ts";
import {
  compareGateway,
  type GatewayFigure,
  type GatewayResult,
  type GatewayRow,
  gatewayResults,
} from "./compare.ts";
import { gatewayMeasures, gatewaySubjects } from "./loads.ts";
import type { GatewayRecord } from "./record.ts";

/** Report of the gateway benchmark: targets, then processor time and rates of all subjects. */
export function gatewayReport(record: GatewayRecord): Report {
  const rows = compareGateway(record);
  const results = gatewayResults(rows);
  const missed = results.filter(({ passed }) => !passed);
  return {
    title: "Gateway bench",
    verdict: `${results.length - missed.length} of ${results.length} targets met`,
    tone: missed.length === 0 ? "good" : "bad",
    facts: [
      ["Machine", machineText(record.subject.machine)],
      ["Commit", commitText(record.subject)],
      ["When", whenText(record)],
    ],
    failures: missed.map((result) => ({ title: "Target missed", text: resultText(result) })),
    caveats: caveatsOf(rows, record),
    summary: [
      tableSection("targets", "Targets", targetTable(results), {
        notes: [
          "Ratios are of processor time per image between runs of the same round: the median, then each round.",
        ],
      }),
      tableSection(
        "cpu",
        "Processor time per image, ms",
        subjectTable(rows, "Median, and the rounds in parentheses", (row) => row.cpuMsPerImage, 2),
      ),
      tableSection(
        "rates",
        "Images per second and core",
        subjectTable(rows, "1,000 divided by the processor time per image", perCore, 0),
      ),
      tableSection(
        "measured-rates",
        "Measured images per second",
        subjectTable(
          rows,
          "On the cores of each subject, which other processes of the machine share",
          (row) => row.imagesPerSecond,
          0,
        ),
      ),
    ],
    sections: [],
    subject: subjectFacts(record),
  };
}

function perCore({ cpuMsPerImage }: GatewayRow) {
  return Object.fromEntries(
    Object.entries(cpuMsPerImage).map(([subject, { value, rounds }]) => [
      subject,
      { value: 1_000 / value, rounds: rounds.map((ms) => 1_000 / ms) },
    ]),
  );
}

function subjectFacts({ subject }: GatewayRecord): Report["subject"] {
  const { machine, baseline, images, settings, pinned, model } = subject;
  return [
    ["System", `${machine.os}, Node ${machine.node}`],
    ["Model", `${model}; the Triton computes nothing and responds with constant embeddings`],
    [
      "Baseline and ceiling",
      "packages" in baseline ? baseline.packages.join(", ") : `not measured: ${baseline.reason}`,
    ],
    [
      "Load",
      `POST /embed with one JPEG, closed loop, ${settings.rounds} rounds of ${settings.seconds} s after ${settings.warmupSeconds} s`,
    ],
    ["Cores", pinned ? "each subject bound to core 0, or to two cores" : "not bound"],
    ...images.map(
      ({ kind, bytes }) =>
        [
          `Images, ${kind}`,
          `${bytes.length} of ${Math.round(Math.min(...bytes) / 1_000)}-${Math.round(Math.max(...bytes) / 1_000)} KB`,
        ] as const,
    ),
  ];
}

function targetTable(results: readonly GatewayResult[]): DataTable {
  return tableOf("Figures with a target", results, [
    longField("load", ({ load }) => load.title),
    longField("figure", ({ measure }) => gatewayMeasures[measure]),
    longField("median (rounds)", (result) => ({
      text: figureText(result, 2),
      sort: result.value,
      tone: result.passed ? "good" : "bad",
    })),
    textField(
      "target",
      ({ target, passed }) => `${passed ? "✓" : "✗"} ${target.bound} ${target.value}`,
    ),
  ]);
}

/** One column per subject with a figure. */
function subjectTable(
  rows: readonly GatewayRow[],
  caption: string,
  figuresOf: (row: GatewayRow) => Readonly<Record<string, GatewayFigure>>,
  decimals: number,
): DataTable {
  const subjects = gatewaySubjects.filter((subject) => rows.some((row) => figuresOf(row)[subject]));
  return tableOf(caption, rows, [
    longField("load", ({ load }) => load.title),
    ...subjects.map(
      (subject): Field<GatewayRow> => ({
        label: subject,
        kind: "number",
        cell: (row) => {
          const figure = figuresOf(row)[subject];
          return { text: figure ? figureText(figure, decimals) : "", sort: figure?.value };
        },
      }),
    ),
  ]);
}

function figureText({ value, rounds }: GatewayFigure, decimals: number): string {
  const texts = rounds.map((round) => round.toFixed(decimals));
  return `${value.toFixed(decimals)} (${texts.join(", ")})`;
}

/** One missed target as a sentence. */
export function resultText(result: GatewayResult): string {
  const { load, measure, target } = result;
  return `${load.title}: ${gatewayMeasures[measure]} must be ${target.bound} ${target.value}, got ${figureText(result, 2)}`;
}

/** Share of the machine used by other processes that is not reported. */
const quietShare = 0.05;

function caveatsOf(rows: readonly GatewayRow[], { subject }: GatewayRecord): Report["caveats"] {
  const loud = rows.filter(({ othersShare }) => othersShare > quietShare);
  const failed = rows.filter(({ failures }) => failures > 0);
  const list = (found: readonly GatewayRow[], value: (row: GatewayRow) => string) =>
    found.map((row) => `${row.load.id} ${value(row)}`).join(", ");
  return [
    ...(loud.length === 0
      ? []
      : [
          {
            kind: "figures" as const,
            title: "Other processes used the machine",
            text: `At most: ${list(loud, ({ othersShare }) => `${Math.round(100 * othersShare)} %`)}. Processor times are comparable; rates and latencies are not.`,
          },
        ]),
    ...(failed.length === 0
      ? []
      : [
          {
            kind: "figures" as const,
            title: "Requests failed",
            text: list(failed, ({ failures }) => `${failures}`),
          },
        ]),
    ...(subject.pinned
      ? []
      : [
          {
            kind: "figures" as const,
            title: "Subjects were not bound to cores",
            text: "taskset or a second core is missing; all subjects used all cores.",
          },
        ]),
  ];
}
