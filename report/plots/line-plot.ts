import { scaleLinear, scaleLog } from "d3-scale";
import { line as lineShape } from "d3-shape";
import { escapeHtml } from "../document/document.ts";
import { markAt, type PlotLine } from "./plot-styles.ts";
import {
  crossAt,
  type Frame,
  label,
  letterWidth,
  narrowWidth,
  round,
  type Scale,
  svg,
  textHeight,
} from "./plot-svg.ts";

export interface Axis {
  readonly label: string;
  /** `steps`: equal distances between values. */
  readonly kind: "linear" | "log" | "steps";
  readonly format: (value: number) => string;
}

export interface LinePlot {
  readonly description: string;
  readonly x: Axis;
  readonly y: Axis;
  readonly lines: readonly PlotLine[];
  /** Horizontal reference line. */
  readonly rule?: { readonly y: number; readonly label: string };
}

/** Lines on two axes; wide plots have the name at the end of each line. */
export function linePlot(plot: LinePlot, width: number): string {
  const all = plot.lines.flatMap(({ points, curve = [] }) => [
    ...points.map(({ x, y }) => [x, y] as const),
    ...curve,
  ]);
  if (all.length === 0) return "";
  const isNarrow = width < narrowWidth;
  const height = isNarrow ? 290 : 400;
  const longestName = Math.max(...plot.lines.map(({ name }) => name.length));
  const top = 34;
  const bottom = height - 44;
  const left =
    10 + letterWidth * Math.max(...yTicks(plot, all).map((tick) => plot.y.format(tick).length));
  const right = width - (isNarrow ? 12 : longestName * letterWidth + 26);
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
    ...plot.lines.map((line) => seriesOf(line, x, y, isNarrow)),
    ...(isNarrow ? [] : endLabels(plot.lines, x, y, right, [top, bottom])),
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
  const [min, max] = [Math.min(...values), Math.max(...values)];
  if (y.kind !== "log")
    return scaleLinear([0, max * 1.02], [0, 1])
      .nice(5)
      .domain();
  const steps = stepsOf(max / min);
  const power = (value: number) => 10 ** Math.floor(Math.log10(value));
  const below = [...steps].reverse().find((step) => step * power(min) <= min) ?? 1;
  const above = [...steps, 10].find((step) => step * power(max) >= max) ?? 10;
  return [below * power(min), above * power(max)];
}

/** Ticks within each decade of a logarithmic axis; more for a smaller span. */
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
      // leave out labels that would overlap
      if (at - last < text.length * letterWidth + 8) return [];
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

function seriesOf(
  { style, points, curve }: PlotLine,
  x: Scale,
  y: Scale,
  isNarrow: boolean,
): string {
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
        : markAt(style, at, up, point.doubt === "open" ? " open" : "", isNarrow ? 38 : 52);
    return `<g><title>${escapeHtml(point.title)}</title><circle class="hit" cx="${at}" cy="${up}" r="11"/>${ring}${mark}</g>`;
  });
  return `<g class="series ${style.colour}"><path class="line${style.dashed ? " dashed" : ""}" d="${path(joined) ?? ""}"/>${marks.join("")}</g>`;
}

/** Names at the ends of lines, moved apart if they overlap. */
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
