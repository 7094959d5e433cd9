import type { Figure, Swatch } from "../../report/document/document.ts";
import { formatCount, formatMs, formatRate } from "../../report/document/number-format.ts";
import { type Axis, type LinePlot, linePlot } from "../../report/plots/line-plot.ts";
import {
  crossedSwatch,
  indexedStyle,
  lineSwatch,
  openSwatch,
  type PlotPoint,
} from "../../report/plots/plot-styles.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { settingText, trustOf } from "./load-points.ts";

export const milliseconds: Axis = { label: "ms", kind: "log", format: formatTick };

export function formatTick(value: number): string {
  return value >= 1_000 ? formatCount(value) : String(Number(value.toPrecision(2)));
}

/** Line figure, or none without points. */
export function lineFigure(
  title: string,
  caption: string | undefined,
  plot: LinePlot,
  marks: readonly Swatch[] = [],
): readonly Figure[] {
  if (plot.lines.every(({ points }) => points.length === 0)) return [];
  return [
    {
      title,
      ...(caption === undefined ? {} : { caption }),
      legend: [...plot.lines.map(lineSwatch), ...marks],
      draw: (width) => linePlot(plot, width),
    },
  ];
}

/** Series grouped by environment, because an endpoint has the same style in each. */
export function byEnvironment<T extends { readonly environment: string }>(
  list: readonly T[],
): readonly { readonly suffix: string; readonly own: readonly T[] }[] {
  const names = [...new Set(list.map(({ environment }) => environment))];
  return names.map((name) => ({
    suffix: names.length > 1 ? `, ${name}` : "",
    own: list.filter(({ environment }) => environment === name),
  }));
}

export function doubtOf(point: LoadPoint): Pick<PlotPoint, "doubt"> {
  const trust = trustOf(point);
  return trust === "good" ? {} : { doubt: trust === "unstable" ? "open" : "crossed" };
}

export function doubtMarks(loadPoints: readonly LoadPoint[]): readonly Swatch[] {
  return [
    ...(loadPoints.some((point) => trustOf(point) === "unstable") ? [openSwatch] : []),
    ...(loadPoints.some((point) => trustOf(point) === "invalid") ? [crossedSwatch] : []),
  ];
}

export function titleOf(name: string, point: LoadPoint): string {
  const latency = point.latencyMs;
  const times =
    latency === undefined
      ? "no response"
      : `p50 ${formatMs(latency.p50)} ms, p95 ${formatMs(latency.p95)} ms`;
  return `${name}, ${settingText(point)}: ${formatRate(point.imagesPerSecond)} images/s, ${times}`;
}

/** Line without the style of an endpoint. */
interface UnstyledLine {
  readonly name: string;
  readonly points: readonly PlotPoint[];
}

export function indexedLineFigure(
  title: string,
  caption: string | undefined,
  plot: Omit<LinePlot, "lines"> & { readonly lines: readonly UnstyledLine[] },
): readonly Figure[] {
  return lineFigure(title, caption, {
    ...plot,
    lines: plot.lines.map((line, i) => ({ ...line, style: indexedStyle(i) })),
  });
}
