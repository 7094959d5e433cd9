import { scaleLinear } from "d3-scale";
import { escapeHtml, type Swatch } from "../document/document.ts";
import { label, letterWidth, narrowWidth, round, type Scale, svg, truncate } from "./plot-svg.ts";

interface ChartRow {
  readonly group?: string;
  readonly label: string;
  readonly value: string;
  readonly title: string;
  /** Draws the row's marks around the height `y`. */
  readonly marks: (at: Scale, y: number) => string;
}

interface RowChart {
  readonly description: string;
  readonly axis: string;
  readonly rows: readonly ChartRow[];
  readonly domain: readonly [number, number];
  readonly format: (value: number) => string;
}

const rowHeight = 30;

/** Rows of marks on one horizontal axis, below the headings of their groups. */
function rowChart(chart: RowChart, width: number): string {
  const { rows, domain, format } = chart;
  if (rows.length === 0) return "";
  const isNarrow = width < narrowWidth;
  const nameWidth = Math.min(
    isNarrow ? 130 : 240,
    Math.max(...rows.map((row) => row.label.length)) * letterWidth + 22,
  );
  const valueWidth = Math.max(...rows.map(({ value }) => value.length)) * letterWidth + 10;
  const scale = scaleLinear(domain, [nameWidth, width - valueWidth]);
  const top = 38;
  const parts: string[] = [];
  let y = top;
  let group: string | undefined;
  for (const row of rows) {
    if (row.group !== undefined && row.group !== group) {
      y += group === undefined ? 16 : 28;
      parts.push(label(0, y - 6, "group", row.group));
      group = row.group;
    }
    const middle = y + rowHeight / 2;
    parts.push(
      `<g><title>${escapeHtml(row.title)}</title>`,
      `<rect class="hit" x="0" y="${y}" width="${width}" height="${rowHeight}"/>`,
      label(
        row.group === undefined ? 0 : 10,
        middle + 4.5,
        "label",
        truncate(row.label, nameWidth),
      ),
      row.marks(scale, middle),
      label(width, middle + 4.5, "value", row.value, "end"),
      "</g>",
    );
    y += rowHeight;
  }
  const ticks = scale.ticks(isNarrow ? 3 : 6).map((tick, i) => {
    const x = round(scale(tick));
    return `<line class="grid" x1="${x}" x2="${x}" y1="${top - 8}" y2="${y}"/>${label(x, top - 14, "tick", format(tick), i === 0 ? "start" : "middle")}`;
  });
  const title = isNarrow ? [] : [label(0, top - 14, "axis-label", chart.axis)];
  return svg(width, y + 6, chart.description, [...title, ...ticks, ...parts]);
}

export interface BarRow extends Omit<ChartRow, "marks"> {
  readonly segments: readonly BarSegment[];
}

interface BarSegment {
  /** Class of the style sheet. */
  readonly colour: string;
  readonly value: number;
  /** Label inside the segment, if it fits. */
  readonly text?: string;
}

interface BarPlot {
  readonly description: string;
  readonly rows: readonly BarRow[];
  readonly format: (value: number) => string;
  readonly axis: string;
}

const barHeight = 20;

/** Bars from zero; a bar may consist of several segments. */
export function barPlot({ rows, ...plot }: BarPlot, width: number): string {
  const largest = Math.max(
    ...rows.map(({ segments }) => segments.reduce((sum, { value }) => sum + value, 0)),
  );
  return rowChart(
    {
      ...plot,
      domain: [0, largest > 0 ? largest : 1],
      rows: rows.map(({ segments, ...row }) => ({
        ...row,
        marks: (at, y) => barSegments(segments, at, y),
      })),
    },
    width,
  );
}

function barSegments(segments: readonly BarSegment[], at: Scale, y: number): string {
  let from = 0;
  const parts = segments.flatMap(({ colour, value, text }) => {
    if (!(value > 0)) return [];
    const [x1, x2] = [at(from), at(from + value)];
    from += value;
    const segmentWidth = Math.max(0.8, x2 - x1 - 1.5);
    const inside =
      text === undefined || segmentWidth < text.length * letterWidth + 10
        ? ""
        : label(x1 + segmentWidth / 2, y + 4.5, "inside", text, "middle");
    return [
      `<rect class="part ${colour}" x="${round(x1)}" y="${y - barHeight / 2}" width="${round(segmentWidth)}" height="${barHeight}" rx="2"/>${inside}`,
    ];
  });
  return parts.join("");
}

interface RangeRow extends Omit<ChartRow, "marks"> {
  readonly colour: string;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  /** p99 comes from too few requests. */
  readonly isP99Unreliable: boolean;
}

/** p50 as a dot, p95 as a tick and p99 as the end of a line. */
export function rangePlot(
  {
    rows,
    ...plot
  }: { readonly description: string; readonly rows: readonly RangeRow[]; readonly axis: string },
  width: number,
): string {
  return rowChart(
    {
      ...plot,
      format: String,
      domain: [0, Math.max(...rows.map(({ p99 }) => p99)) * 1.04],
      rows: rows.map((row) => ({ ...row, marks: (at, y) => rangeMarks(row, at, y) })),
    },
    width,
  );
}

function rangeMarks(row: RangeRow, at: Scale, y: number): string {
  const [p50, p95, p99] = [row.p50, row.p95, row.p99].map((value) => round(at(value)));
  return [
    `<g class="series ${row.colour}"><line class="range" x1="${p50}" x2="${p99}" y1="${y}" y2="${y}"/>`,
    `<line class="p95" x1="${p95}" x2="${p95}" y1="${y - 7}" y2="${y + 7}"/>`,
    `<circle class="mark${row.isP99Unreliable ? " open" : ""}" cx="${p99}" cy="${y}" r="4"/>`,
    `<circle class="mark" cx="${p50}" cy="${y}" r="6.5"/></g>`,
  ].join("");
}

export const rangeLegend: readonly Swatch[] = [
  { label: "p50", mark: `<g class="series plain"><circle class="mark" cx="13" cy="7" r="6"/></g>` },
  {
    label: "p95",
    mark: `<g class="series plain"><line class="p95" x1="13" x2="13" y1="0" y2="14"/></g>`,
  },
  { label: "p99", mark: `<g class="series plain"><circle class="mark" cx="13" cy="7" r="4"/></g>` },
  {
    label: "p99 from too few requests",
    mark: `<g class="series plain"><circle class="mark open" cx="13" cy="7" r="4"/></g>`,
  },
];
