/**
 * What a report says, before it is HTML, Markdown or text: sections of sentences, tables and figures. The same sections
 * are rendered three times, so no report can say what another does not.
 *
 * Sentences may have `code` in backticks, and no other markup.
 */

/** How a figure stands: shown by a word or a mark as well, never by colour alone. */
export type Tone = "good" | "care" | "bad" | "quiet";

export interface TableCell {
  readonly text: string;
  /** What rows are sorted by, where that is not the text. */
  readonly sort?: number | string;
  readonly tone?: Tone;
  /** Said in full, where the text is short. */
  readonly title?: string;
}

export interface Column {
  readonly label: string;
  readonly kind: "text" | "number";
  readonly title?: string;
}

export interface DataTable {
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly TableCell[])[];
  /** Long, and for looking things up: folded away on a page, left out of Markdown. */
  readonly lookUp?: boolean;
}

export interface Swatch {
  readonly label: string;
  /** Written at the end of its line as well, where there is room. */
  readonly named?: boolean;
  /** Content of an SVG of 26 × 14. */
  readonly mark: string;
}

export interface Figure {
  readonly title: string;
  /** How to read it. */
  readonly caption?: string;
  readonly legend: readonly Swatch[];
  /** A whole SVG, for a column of so many pixels. */
  readonly draw: (width: number) => string;
}

export interface Section {
  readonly id: string;
  readonly title: string;
  /** What is asked, where the title does not say it. */
  readonly question?: string;
  /** What was found, in a sentence or two: the first thing that is read. */
  readonly answer: readonly string[];
  readonly figures: readonly Figure[];
  readonly tables: readonly DataTable[];
  /** How it was measured, and what to bear in mind. */
  readonly notes: readonly string[];
}

/** A cell of a table from a number; absent: a dash that sorts last. */
export function numberCell(
  value: number | undefined,
  format: (value: number) => string,
  more: Omit<TableCell, "text" | "sort"> = {},
): TableCell {
  return value === undefined || !Number.isFinite(value)
    ? { text: "–", tone: "quiet" }
    : { text: format(value), sort: value, ...more };
}

export const textCell = (text: string, more: Omit<TableCell, "text"> = {}): TableCell => ({
  text,
  ...more,
});

export const textColumn = (label: string, title?: string): Column => ({
  label,
  kind: "text",
  title,
});
export const numberColumn = (label: string, title?: string): Column => ({
  label,
  kind: "number",
  title,
});

/** `a, b and c`. */
export function listed(parts: readonly string[]): string {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}

/** `1 load`, `2 loads`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

/** With a thin gap between thousands. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Bytes with the unit that fits. */
export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${Math.round(bytes)} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1_000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
}

/** Dollars with three significant digits, small ones too. */
export function formatUsd(usd: number): string {
  if (usd === 0) return "$0";
  const digits = Math.max(2, 2 - Math.floor(Math.log10(usd)));
  return `$${usd.toFixed(Math.min(7, digits))}`;
}

/** `1.43 ×`. */
export function formatRatio(ratio: number): string {
  return `${ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)} ×`;
}

/** A part of a whole, without false precision. */
export function formatPercent(fraction: number): string {
  const percentage = fraction * 100;
  return `${percentage !== 0 && Math.abs(percentage) < 10 ? percentage.toFixed(1) : percentage.toFixed(0)} %`;
}

/** Milliseconds with three significant digits, at most two after the point. */
export function formatMs(ms: number): string {
  return ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2);
}

/** Images or requests per second. */
export function formatRate(perSecond: number): string {
  return perSecond >= 100 ? perSecond.toFixed(0) : perSecond.toFixed(1);
}

/** `45 s`, `2 min 5 s`. */
export function formatDuration(seconds: number): string {
  const rounded = Math.round(seconds);
  return rounded < 60 ? `${rounded} s` : `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
}

/** Fraction as a percentage with two significant digits; below 0.001 % as a power of ten. */
export function formatFraction(fraction: number): string {
  const percentage = fraction * 100;
  if (percentage === 0) return "0 %";
  return `${percentage >= 0.001 ? percentage.toPrecision(2) : percentage.toExponential(0)} %`;
}

/** p99 in milliseconds, marked with `*` if it comes from too few requests. */
export function formatP99(latency: {
  readonly p99: number;
  readonly p99Reliable: boolean;
}): string {
  return `${formatMs(latency.p99)}${latency.p99Reliable ? "" : " *"}`;
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
