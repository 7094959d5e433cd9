import { formatCount, formatDuration, formatMs } from "./number-format.ts";

/**
 * Document model of a report. A report of any kind is computed once from its record; `render-html.ts`, `render-md.ts` and
 * `render-text.ts` render it, so the three formats agree.
 *
 * Strings may contain `code` in backticks if documented as inline text, and no other markup.
 */

export interface Report {
  /** Kind of the report, as a heading: `Bench`. */
  readonly title: string;
  /** Result in one sentence without a full stop; inline text. */
  readonly verdict: string;
  readonly tone: "good" | "care" | "bad";
  /** Reason for caution, shown below the verdict. */
  readonly warning?: string;
  readonly facts: readonly Fact[];
  readonly failures: readonly Failure[];
  readonly caveats: readonly Caveat[];
  /** Sections in every format, before the evidence. */
  readonly summary: readonly Section[];
  /** Evidence: complete in HTML, as far as it fits in Markdown, omitted in text. */
  readonly sections: readonly Section[];
  /** Details of the subject: versions, hashes, settings. */
  readonly subject: readonly Fact[];
}

export type Fact = readonly [name: string, value: string];

export interface Failure {
  readonly title?: string;
  readonly text: string;
  /** Address and name of the resource that failed. */
  readonly resource?: string;
  /** End of the resource's log. */
  readonly log?: readonly string[];
}

export interface Caveat {
  readonly title: string;
  /** Whole sentences; inline text. */
  readonly text: string;
  /** `subject`: the figures are not those of the deployment. `figures`: some are unreliable. `know`: background. */
  readonly kind: "subject" | "figures" | "know";
}

/** Recommendation for one goal. */
export interface Card {
  readonly title: string;
  /** Absent if nothing can be recommended; `why` contains the reason. */
  readonly choice?: string;
  /** Alternatives within the noise. */
  readonly ties: readonly string[];
  readonly value: string;
  readonly unit: string;
  readonly setting: string;
  /** Whole sentences; inline text. */
  readonly why: readonly string[];
  /** Reasons not to rely on it. */
  readonly doubts: readonly string[];
}

/** Rating of a figure. A word or a mark expresses it as well, so it never depends on colour alone. */
export type Tone = "good" | "care" | "bad" | "quiet";

export interface TableCell {
  readonly text: string;
  /** Sort key, if not the text. */
  readonly sort?: number | string;
  readonly tone?: Tone;
  /** Full text of an abbreviation. */
  readonly title?: string;
}

export interface Column {
  readonly label: string;
  /** `long`: text that wraps. */
  readonly kind: "text" | "number" | "long";
  readonly title?: string;
}

export interface DataTable {
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly TableCell[])[];
  /** Long reference table: collapsed in HTML, omitted in Markdown. */
  readonly isReference?: boolean;
}

export interface Swatch {
  readonly label: string;
  /** The line is also labelled directly if the plot has room. */
  readonly named?: boolean;
  /** Content of an SVG of 26 × 14. */
  readonly mark: string;
}

export interface Figure {
  readonly title: string;
  /** Reading aid; inline text. */
  readonly caption?: string;
  readonly legend: readonly Swatch[];
  /** Draws the whole SVG, `width` pixels wide. */
  readonly draw: (width: number) => string;
}

export interface Section {
  readonly id: string;
  readonly title: string;
  /** Question, if the title does not imply it. */
  readonly question?: string;
  /** Findings in one or two sentences; inline text. */
  readonly answer: readonly string[];
  readonly cards?: readonly Card[];
  readonly figures: readonly Figure[];
  readonly tables: readonly DataTable[];
  /** Method and limitations; inline text. */
  readonly notes: readonly string[];
  /** Evidence that text renders as well. */
  readonly terminal?: boolean;
}

/** Column of a table with its cell in each row. */
export interface Field<Row> extends Column {
  readonly cell: (row: Row) => TableCell;
}

/** Table with a row for each item. */
export function tableOf<Row>(
  caption: string,
  rows: readonly Row[],
  fields: readonly Field<Row>[],
): DataTable {
  return {
    caption,
    columns: fields.map(({ label, kind, title }) => ({ label, kind, title })),
    rows: rows.map((row) => fields.map(({ cell }) => cell(row))),
  };
}

export function textField<Row>(
  label: string,
  text: (row: Row) => string | TableCell,
  title?: string,
): Field<Row> {
  const cell = (row: Row) => {
    const content = text(row);
    return typeof content === "string" ? { text: content } : content;
  };
  return { label, kind: "text", title, cell };
}

/** Column of text that wraps. */
export const longField = <Row>(
  label: string,
  text: (row: Row) => string | TableCell,
): Field<Row> => ({
  ...textField(label, text),
  kind: "long",
});

/** @param more - Tone and title of the cell. */
export function numberField<Row>(
  label: string,
  value: (row: Row) => number | undefined,
  format: (value: number) => string,
  title?: string,
  more: (row: Row) => Omit<TableCell, "text" | "sort"> = () => ({}),
): Field<Row> {
  const cell = (row: Row) => numberCell(value(row), format, more(row));
  return { label, kind: "number", title, cell };
}

/** p99 of a latency, marked with `*` if it comes from too few requests. */
export function p99Field<Row>(latencyOf: (row: Row) => Latency | undefined): Field<Row> {
  const cell = (row: Row): TableCell => {
    const latency = latencyOf(row);
    if (latency === undefined) return { text: "–", tone: "quiet" };
    const few = "from too few requests; close to the maximum";
    return {
      text: `${formatMs(latency.p99)}${latency.p99Reliable ? "" : " *"}`,
      sort: latency.p99,
      title: latency.p99Reliable ? undefined : few,
    };
  };
  return { label: "p99 ms", kind: "number", cell };
}

/** `2 × 503, 1 × connection refused`, or `none`. */
export function errorsText(errors: Readonly<Record<string, number>> = {}): string {
  const parts = Object.entries(errors).map(([code, count]) => `${formatCount(count)} × ${code}`);
  return parts.join(", ") || "none";
}

/** Section with these contents and no others. */
export function newSection(
  id: string,
  title: string,
  contents: Partial<Omit<Section, "id" | "title">>,
): Section {
  return { id, title, answer: [], figures: [], tables: [], notes: [], ...contents };
}

/** `2026-11-21 10:30` of an ISO 8601 time. */
export const dateText = (iso: string): string => iso.replace("T", " ").slice(0, 16);

export function whenText({ startedAt, finishedAt }: RunTimes): string {
  const seconds = (Date.parse(finishedAt) - Date.parse(startedAt)) / 1_000;
  return `${dateText(startedAt)} UTC, ${formatDuration(seconds)}`;
}

interface RunTimes {
  /** UTC, ISO 8601. */
  readonly startedAt: string;
  readonly finishedAt: string;
}

/** Short commit and whether files differed from it. */
export function commitText({ commit, dirty }: { commit?: string; dirty?: boolean }): string {
  if (commit === undefined) return "no commit";
  return `${commit.slice(0, 12)}${dirty === true ? " with changes" : ""}`;
}

export function machineText(machine: { cpu: string; cores: number; memoryMiB: number }): string {
  return `${machine.cpu}, ${machine.cores} cores, ${Math.round(machine.memoryMiB / 1_024)} GiB`;
}

/** Table cell of a number; a dash that sorts last if absent. */
export function numberCell(
  value: number | undefined,
  format: (value: number) => string,
  more: Omit<TableCell, "text" | "sort"> = {},
): TableCell {
  return value === undefined || !Number.isFinite(value)
    ? { text: "–", tone: "quiet" }
    : { text: format(value), sort: value, ...more };
}

export interface Latency {
  readonly p99: number;
  readonly p99Reliable: boolean;
}

/** Escapes text for HTML content and attributes. */
export function escapeHtml(text: string): string {
  const entities: Readonly<Record<string, string>> = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "'": "&#39;",
  };
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? character);
}
