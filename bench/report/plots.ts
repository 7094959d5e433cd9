import { scaleLinear, scaleLog } from "d3-scale";
import {
  line as lineShape,
  type SymbolType,
  symbol,
  symbolCircle,
  symbolDiamond,
  symbolSquare,
  symbolTimes,
  symbolTriangle,
} from "d3-shape";
import { escapeHtml, type Swatch } from "./document.ts";

/**
 * Plots as inline SVG: no script, no network. Colours come from the page's style sheet, so they follow its theme; a line is also
 * told by its mark and its dashes, never by its colour alone.
 */

export interface PlotPoint {
  readonly x: number;
  readonly y: number;
  readonly title: string;
  /** `open`: not to be relied on. `crossed`: invalid, and no line leads to it. */
  readonly doubt?: "open" | "crossed";
  readonly ring?: boolean;
}

export interface PlotLine {
  readonly name: string;
  readonly style: LineStyle;
  /** In the order in which they are joined. */
  readonly points: readonly PlotPoint[];
  /** Drawn in place of the line that joins the points. */
  readonly curve?: readonly (readonly [x: number, y: number])[];
}

export interface LineStyle {
  /** A class of the style sheet. */
  readonly colour: string;
  readonly dashed: boolean;
  readonly mark: SymbolType;
}

export interface Axis {
  readonly label: string;
  /** `steps`: each value as far from the next, whatever it is. */
  readonly kind: "linear" | "log" | "steps";
  readonly format: (value: number) => string;
}

export interface LinePlot {
  readonly description: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly lines: readonly PlotLine[];
  /** A line across, to compare with. */
  readonly rule?: { readonly y: number; readonly label: string };
}

/** How a path looks in every figure: its backend is a colour, its protocol dashes, its payload a mark. */
export function endpointStyle(path: string): LineStyle {
  const [protocol = "", variant] = path.split("_");
  return {
    colour: [protocol.split("-")[0] ?? "", ...(variant === undefined ? [] : [variant])].join(" "),
    dashed: protocol.endsWith("grpc"),
    mark: markOf(variant, protocol.endsWith("grpc")),
  };
}

function markOf(variant: string | undefined, grpc: boolean): SymbolType {
  switch (variant) {
    case "uint8":
      return symbolTriangle;
    case "jpeg":
      return symbolDiamond;
    case "json":
      return symbolTimes;
    default:
      return grpc ? symbolSquare : symbolCircle;
  }
}

const sequence = [symbolCircle, symbolSquare, symbolTriangle, symbolDiamond];

/** The n-th of lines that are not paths. */
export function countedStyle(index: number): LineStyle {
  return {
    colour: `k${index % 5}`,
    dashed: index % 2 === 1,
    mark: sequence[index % sequence.length] ?? symbolCircle,
  };
}

/** A line as a legend shows it. */
export function lineSwatch({ name, style }: Pick<PlotLine, "name" | "style">): Swatch {
  return {
    label: name,
    named: true,
    mark: `<g class="series ${style.colour}"><line class="line${style.dashed ? " dashed" : ""}" x1="0" x2="26" y1="7" y2="7"/>${markAt(style, 13, 7, "")}</g>`,
  };
}

export const openSwatch: Swatch = {
  label: "hollow: not stable",
  mark: `<g class="series plain"><path class="mark open" transform="translate(13 7)" d="${symbol(symbolCircle, 64)() ?? ""}"/></g>`,
};

export const crossedSwatch: Swatch = {
  label: "crossed: invalid",
  mark: `<g class="series plain"><path class="crossed" d="M8 2l10 10M18 2l-10 10"/></g>`,
};

export const ringSwatch: Swatch = {
  label: "ringed: 95 % of the most",
  mark: `<g class="series plain"><circle class="ring" cx="13" cy="7" r="6"/></g>`,
};

export function boxSwatch(label: string, colour: string): Swatch {
  return {
    label,
    mark: `<rect class="part ${colour}" x="5" y="1" width="16" height="12" rx="2"/>`,
  };
}

const narrow = 500;
const textHeight = 16;
const letter = 7.1;

type Scale = (value: number) => number;

/** Lines over two axes, each with its name at its end where there is room. */
export function linePlot(plot: LinePlot, width: number): string {
  const all = plot.lines.flatMap(({ points, curve = [] }) => [
    ...points.map(({ x, y }) => [x, y] as const),
    ...curve,
  ]);
  if (all.length === 0) return "";
  const small = width < narrow;
  const height = small ? 290 : 400;
  const longest = Math.max(...plot.lines.map(({ name }) => name.length));
  const top = 34;
  const bottom = height - 44;
  const left =
    10 + letter * Math.max(...yTicks(plot, all).map((tick) => plot.y.format(tick).length));
  const right = width - (small ? 12 : longest * letter + 26);
  const x = xScale(
    plot.x,
    all.map(([value]) => value),
    left + 14,
    right - 10,
  );
  const y = yScale(plot, all, bottom, top);
  return svg(width, height, plot.description, [
    ...grid(plot, all, { x, y, left, right, bottom, top }),
    ...ruleOf(plot, { y, left, right }),
    ...plot.lines.map((line) => seriesOf(line, x, y, small)),
    ...(small ? [] : endLabels(plot.lines, x, y, right, [top, bottom])),
  ]);
}

function xScale(axis: Axis, values: readonly number[], from: number, to: number): Scale {
  if (axis.kind === "steps") {
    const steps = [...new Set(values)].sort((a, b) => a - b);
    const scale = scaleLinear([0, Math.max(1, steps.length - 1)], [from, to]);
    return (value) => scale(steps.indexOf(value));
  }
  const domain = [Math.min(...values), Math.max(...values)];
  if (axis.kind === "linear") {
    const scale = scaleLinear([0, domain[1] ?? 1], [from, to]);
    return (value) => scale(value);
  }
  const scale = scaleLog(domain[0] === domain[1] ? [domain[0]! / 2, domain[1]! * 2] : domain, [
    from,
    to,
  ]);
  return (value) => scale(value);
}

function yDomain({ y, rule }: LinePlot, all: readonly (readonly [number, number])[]) {
  const values = [...all.map(([, value]) => value), ...(rule === undefined ? [] : [rule.y])];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (y.kind !== "log")
    return scaleLinear([0, most * 1.02], [0, 1])
      .nice(5)
      .domain();
  const steps = stepsOf(most / least);
  const power = (value: number) => 10 ** Math.floor(Math.log10(value));
  const below = [...steps].reverse().find((step) => step * power(least) <= least) ?? 1;
  const above = [...steps, 10].find((step) => step * power(most) >= most) ?? 10;
  return [below * power(least), above * power(most)];
}

/** Steps of each decade of a logarithmic axis, the more the fewer decades there are. */
function stepsOf(span: number): readonly number[] {
  if (span < 12) return [1, 1.5, 2, 3, 4, 5, 7];
  return span < 1_000 ? [1, 2, 5] : span < 20_000 ? [1, 3] : [1];
}

function yScale(
  plot: LinePlot,
  all: readonly (readonly [number, number])[],
  bottom: number,
  top: number,
): Scale {
  const domain = yDomain(plot, all);
  const scale =
    plot.y.kind === "log"
      ? scaleLog(domain, [bottom, top]).clamp(true)
      : scaleLinear(domain, [bottom, top]);
  return (value) => scale(value);
}

function yTicks(plot: LinePlot, all: readonly (readonly [number, number])[]): readonly number[] {
  const [low = 0, high = 1] = yDomain(plot, all);
  if (plot.y.kind !== "log") return scaleLinear([low, high], [0, 1]).ticks(5);
  const steps = stepsOf(high / low);
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const step of steps) {
      const tick = step * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

interface Frame {
  readonly x: Scale;
  readonly y: Scale;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

function grid(
  plot: LinePlot,
  all: readonly (readonly [number, number])[],
  { x, y, left, right, bottom, top }: Frame,
): readonly string[] {
  const rows = yTicks(plot, all).map(
    (tick) =>
      `<line class="grid" x1="${round(left)}" x2="${round(right)}" y1="${round(y(tick))}" y2="${round(y(tick))}"/>${label(left - 8, y(tick) + 4, "tick", plot.y.format(tick), "end")}`,
  );
  const ticks =
    plot.x.kind === "linear"
      ? linearTicks(all)
      : [...new Set(plot.lines.flatMap(({ points }) => points.map((point) => point.x)))];
  let last = Number.NEGATIVE_INFINITY;
  const columns = ticks
    .sort((a, b) => a - b)
    .flatMap((tick) => {
      const text = plot.x.format(tick);
      const at = x(tick);
      // numbers that would touch are left out
      if (at - last < text.length * letter + 8) return [];
      last = at;
      return [
        `<line class="tickmark" x1="${round(at)}" x2="${round(at)}" y1="${bottom}" y2="${bottom + 5}"/>${label(at, bottom + 20, "tick", text, "middle")}`,
      ];
    });
  return [
    ...rows,
    `<line class="axis" x1="${round(left)}" x2="${round(right)}" y1="${bottom}" y2="${bottom}"/>`,
    ...columns,
    label(0, top - 18, "axis-label", plot.y.label),
    label(right, bottom + 38, "axis-label", plot.x.label, "end"),
  ];
}

function linearTicks(all: readonly (readonly [number, number])[]): number[] {
  return scaleLinear([0, Math.max(...all.map(([value]) => value))], [0, 1]).ticks(6);
}

function ruleOf(
  { rule }: LinePlot,
  { y, left, right }: Pick<Frame, "y" | "left" | "right">,
): readonly string[] {
  if (rule === undefined) return [];
  const at = round(y(rule.y));
  return [
    `<line class="rule" x1="${round(left)}" x2="${round(right)}" y1="${at}" y2="${at}"/>`,
    label(right - 6, at + 16, "tick", rule.label, "end"),
  ];
}

function seriesOf({ style, points, curve }: PlotLine, x: Scale, y: Scale, small: boolean): string {
  const path = lineShape<readonly [number, number]>(
    ([value]) => round(x(value)),
    ([, value]) => round(y(value)),
  );
  const joined =
    curve ??
    points.flatMap((point) => (point.doubt === "crossed" ? [] : [[point.x, point.y] as const]));
  const marks = points.map((point) => {
    const [at, up] = [round(x(point.x)), round(y(point.y))];
    const ring = point.ring === true ? `<circle class="ring" cx="${at}" cy="${up}" r="9"/>` : "";
    const mark =
      point.doubt === "crossed"
        ? crossAt(at, up)
        : markAt(style, at, up, point.doubt === "open" ? " open" : "", small ? 38 : 52);
    return `<g><title>${escapeHtml(point.title)}</title><circle class="hit" cx="${at}" cy="${up}" r="11"/>${ring}${mark}</g>`;
  });
  return `<g class="series ${style.colour}"><path class="line${style.dashed ? " dashed" : ""}" d="${path(joined) ?? ""}"/>${marks.join("")}</g>`;
}

function markAt({ mark }: LineStyle, x: number, y: number, more: string, size = 52): string {
  const times = mark === symbolTimes;
  return `<path class="mark${times ? " thin" : ""}${more}" transform="translate(${x} ${y})" d="${(symbol(mark, times ? 30 : size)() ?? "").replace(/\d+\.\d+/g, (number) => String(round(Number(number))))}"/>`;
}

/** Names at the ends of lines, moved apart where they would overlap. */
function endLabels(
  lines: readonly PlotLine[],
  x: Scale,
  y: Scale,
  right: number,
  [top, bottom]: readonly [number, number],
): readonly string[] {
  const ends = lines.flatMap(({ name, style, points, curve }) => {
    const last = points.filter(({ doubt }) => doubt !== "crossed").at(-1) ?? points.at(-1);
    if (last === undefined) return [];
    const [endX, endY] = curve?.at(-1) ?? [last.x, last.y];
    return [{ name, colour: style.colour, x: x(endX), want: y(endY), y: y(endY) }];
  });
  ends.sort((a, b) => a.want - b.want);
  for (let round = 0; round < 40; round++) {
    for (let i = 1; i < ends.length; i++) {
      const [above, below] = [ends[i - 1]!, ends[i]!];
      const overlap = textHeight - (below.y - above.y);
      if (overlap <= 0) continue;
      above.y -= overlap / 2;
      below.y += overlap / 2;
    }
    for (const end of ends) end.y = Math.min(bottom, Math.max(top, end.y));
  }
  return ends.map(
    (end) =>
      `<g class="series ${end.colour}"><path class="leader" d="M${round(end.x + 7)} ${round(end.want)}L${round(right + 6)} ${round(end.y)}"/>${label(right + 10, end.y + 4, "name", end.name)}</g>`,
  );
}

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
  readonly kind?: "linear" | "log";
  readonly format: (value: number) => string;
  /** A vertical line to compare with. */
  readonly limit?: { readonly x: number; readonly label: string };
}

const rowHeight = 30;

/** Rows of marks on one horizontal axis, below the headings of their groups. */
function rowChart(chart: RowChart, width: number): string {
  const { rows, domain, kind = "linear", format, limit } = chart;
  if (rows.length === 0) return "";
  const small = width < narrow;
  const nameWidth = Math.min(
    small ? 130 : 240,
    Math.max(...rows.map((row) => row.label.length)) * letter + 22,
  );
  const valueWidth = Math.max(...rows.map(({ value }) => value.length)) * letter + 10;
  const range = [nameWidth, width - valueWidth];
  const scale = kind === "log" ? scaleLog(domain, range).clamp(true) : scaleLinear(domain, range);
  const top = 38;
  const parts: string[] = [];
  let y = limit === undefined ? top : top + 16;
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
      label(row.group === undefined ? 0 : 10, middle + 4.5, "label", fitted(row.label, nameWidth)),
      row.marks(scale, middle),
      label(width, middle + 4.5, "value", row.value, "end"),
      "</g>",
    );
    y += rowHeight;
  }
  const values = kind === "log" ? decades(domain, small ? 3 : 6) : scale.ticks(small ? 3 : 6);
  const ticks = values.map((tick, i) => {
    const x = round(scale(tick));
    return `<line class="grid" x1="${x}" x2="${x}" y1="${top - 8}" y2="${y}"/>${label(x, top - 14, "tick", format(tick), i === 0 ? "start" : "middle")}`;
  });
  const title = small ? [] : [label(0, top - 14, "axis-label", chart.axis)];
  return svg(width, y + 6, chart.description, [
    ...title,
    ...ticks,
    ...(limit === undefined ? [] : [limitLine(limit, round(scale(limit.x)), top, y)]),
    ...parts,
  ]);
}

/** At most `count` powers of ten within the domain. */
function decades([low, high]: readonly [number, number], count: number): readonly number[] {
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first + 1) / count));
  const ticks: number[] = [];
  for (let power = first; power <= last; power += every) ticks.push(10 ** power);
  return ticks;
}

function limitLine({ label: text }: { readonly label: string }, x: number, y1: number, y2: number) {
  return `<line class="limit" x1="${x}" x2="${x}" y1="${y1}" y2="${y2}"/>${label(x - 6, y1 + 10, "tick", text, "end")}`;
}

function fitted(text: string, width: number): string {
  const room = Math.floor((width - 8) / letter);
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}

export interface BarRow extends Omit<ChartRow, "marks"> {
  readonly segments: readonly BarSegment[];
}

export interface BarSegment {
  /** A class of the style sheet. */
  readonly colour: string;
  readonly value: number;
  /** Label inside the segment, if it fits. */
  readonly text?: string;
}

export interface BarPlot {
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
    const shown = Math.max(0.8, x2 - x1 - 1.5);
    const inside =
      text === undefined || shown < text.length * letter + 10
        ? ""
        : label(x1 + shown / 2, y + 4.5, "inside", text, "middle");
    return [
      `<rect class="part ${colour}" x="${round(x1)}" y="${y - barHeight / 2}" width="${round(shown)}" height="${barHeight}" rx="2"/>${inside}`,
    ];
  });
  return parts.join("");
}

export interface RangeRow extends Omit<ChartRow, "marks"> {
  readonly colour: string;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  /** p99 comes from too few requests. */
  readonly weak: boolean;
}

/** p50 to p99: a dot, a tick and the end of a line. */
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
    `<circle class="mark${row.weak ? " open" : ""}" cx="${p99}" cy="${y}" r="4"/>`,
    `<circle class="mark" cx="${p50}" cy="${y}" r="6.5"/></g>`,
  ].join("");
}

export interface DotRow extends Omit<ChartRow, "marks"> {
  readonly colour: string;
  readonly dots: readonly { readonly value: number; readonly title: string }[];
}

/** Values at or below this are drawn at the start of a logarithmic axis. */
const smallestDot = 1e-9;

/** Dots on a logarithmic axis with a limit; dots beyond the limit are crossed. */
export function dotPlot(
  plot: {
    readonly description: string;
    readonly axis: string;
    readonly rows: readonly DotRow[];
    readonly format: (value: number) => string;
    readonly limit: { readonly x: number; readonly label: string };
  },
  width: number,
): string {
  const { rows, limit, format } = plot;
  const all = rows.flatMap(({ dots }) => dots.map(({ value }) => value)).filter(Number.isFinite);
  const power = (value: number, whole: (value: number) => number) => 10 ** whole(Math.log10(value));
  const least = Math.min(limit.x, ...all.filter((value) => value > 0)) / 10;
  const low = power(Math.max(smallestDot, least), Math.floor);
  return rowChart(
    {
      ...plot,
      kind: "log",
      domain: [low, power(Math.max(limit.x * 10, ...all), Math.ceil)],
      // a logarithmic axis has no zero
      format: (value) => (value <= low * 1.01 && all.includes(0) ? "0" : format(value)),
      rows: rows.map(({ dots, colour, ...row }) => ({
        ...row,
        marks: (at, y) => {
          const marks = dots.map(({ value, title }) => {
            const x = round(at(Number.isFinite(value) ? Math.max(low, value) : limit.x * 10));
            const mark =
              value <= limit.x
                ? `<circle class="mark dot" cx="${x}" cy="${y}" r="4.5"/>`
                : crossAt(x, y);
            return `<g><title>${escapeHtml(title)}</title>${mark}</g>`;
          });
          return `<g class="series ${colour}">${marks.join("")}</g>`;
        },
      })),
    },
    width,
  );
}

const crossAt = (x: number, y: number) =>
  `<path class="crossed" d="M${x - 5} ${y - 5}l10 10M${x + 5} ${y - 5}l-10 10"/>`;

export const rangeLegend: readonly Swatch[] = [
  { label: "p50", mark: `<g class="series plain"><circle class="mark" cx="13" cy="7" r="6"/></g>` },
  {
    label: "p95",
    mark: `<g class="series plain"><line class="p95" x1="13" x2="13" y1="0" y2="14"/></g>`,
  },
  { label: "p99", mark: `<g class="series plain"><circle class="mark" cx="13" cy="7" r="4"/></g>` },
  {
    label: "p99 of too few requests",
    mark: `<g class="series plain"><circle class="mark open" cx="13" cy="7" r="4"/></g>`,
  },
];

function svg(
  width: number,
  height: number,
  description: string,
  content: readonly string[],
): string {
  return `<svg viewBox="0 0 ${width} ${round(height)}" width="${width}" height="${round(height)}" role="img" aria-label="${escapeHtml(description)}">\n${content.join("\n")}\n</svg>`;
}

function label(x: number, y: number, style: string, text: string, anchor = "start"): string {
  return `<text class="${style}" x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escapeHtml(text)}</text>`;
}

const round = (value: number) => Math.round(value * 10) / 10;
