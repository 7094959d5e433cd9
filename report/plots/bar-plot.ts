import { scaleLinear } from "d3-scale";
import { escapeHtml } from "../document/document.ts";
import { label, letterWidth, narrowWidth, round, type Scale, svg, truncate } from "./plot-svg.ts";

export interface BarRow {
  readonly label: string;
  readonly value: string;
  readonly title: string;
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

const rowHeight = 30;
const barHeight = 20;

/** Bars from zero on one horizontal axis; a bar may consist of several segments. */
export function barPlot({ description, rows, format, axis }: BarPlot, width: number): string {
  if (rows.length === 0) return "";
  const isNarrow = width < narrowWidth;
  const nameWidth = Math.min(
    isNarrow ? 130 : 240,
    Math.max(...rows.map((row) => row.label.length)) * letterWidth + 22,
  );
  const valueWidth = Math.max(...rows.map(({ value }) => value.length)) * letterWidth + 10;
  const largest = Math.max(
    ...rows.map(({ segments }) => segments.reduce((sum, { value }) => sum + value, 0)),
  );
  const scale = scaleLinear([0, largest > 0 ? largest : 1], [nameWidth, width - valueWidth]);
  const top = 38;
  const bottom = top + rows.length * rowHeight;
  const bars = rows.map((row, i) => {
    const y = top + i * rowHeight;
    const middle = y + rowHeight / 2;
    return [
      `<g><title>${escapeHtml(row.title)}</title>`,
      `<rect class="hit" x="0" y="${y}" width="${width}" height="${rowHeight}"/>`,
      label(0, middle + 4.5, "label", truncate(row.label, nameWidth)),
      barSegments(row.segments, scale, middle),
      label(width, middle + 4.5, "value", row.value, "end"),
      "</g>",
    ].join("\n");
  });
  const ticks = scale.ticks(isNarrow ? 3 : 6).map((tick, i) => {
    const x = round(scale(tick));
    return `<line class="grid" x1="${x}" x2="${x}" y1="${top - 8}" y2="${bottom}"/>${label(x, top - 14, "tick", format(tick), i === 0 ? "start" : "middle")}`;
  });
  const title = isNarrow ? [] : [label(0, top - 14, "axis-label", axis)];
  return svg(width, bottom + 6, description, [...title, ...ticks, ...bars]);
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
