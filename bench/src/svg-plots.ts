import { escapeHtml, formatFraction, formatMs, formatRate } from "../report/document.ts";
import type { PathRow } from "./summary.ts";

/** Plots as inline SVG: no script, no network. Colours come from the page's style sheet, so they follow its theme. */

const width = 760;
const labelIndent = 16;
const labelWidth = 130;
const valueWidth = 92;
const rowHeight = 30;
const top = 34;
const plotLeft = labelWidth + 10;
const plotRight = width - valueWidth - 10;

interface Axis {
  readonly at: (value: number) => number;
  readonly ticks: readonly { readonly value: number; readonly text: string }[];
}

/** From 0 to a round number at or above `largest`. */
function linearAxis(largest: number, format: (value: number) => string): Axis {
  const step = niceStep(largest / 5);
  const end = Math.max(step, Math.ceil(largest / step) * step);
  const count = Math.round(end / step);
  return {
    at: (value) => plotLeft + (value / end) * (plotRight - plotLeft),
    ticks: Array.from({ length: count + 1 }, (_, i) => ({
      value: i * step,
      text: format(i * step),
    })),
  };
}

/** 1, 2 or 5 times a power of ten. */
function niceStep(rough: number): number {
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough) ?? power * 10;
}

function logAxis(from: number, to: number, format: (value: number) => string): Axis {
  const [low, high] = [Math.floor(Math.log10(from)), Math.ceil(Math.log10(to))];
  const span = Math.max(1, high - low);
  const every = Math.ceil(span / 6);
  const clamp = (value: number) => Math.min(high, Math.max(low, Math.log10(value)));
  return {
    at: (value) => plotLeft + ((clamp(value) - low) / span) * (plotRight - plotLeft),
    ticks: Array.from({ length: Math.floor(span / every) + 1 }, (_, i) => {
      const value = 10 ** (low + i * every);
      return { value, text: format(value) };
    }),
  };
}

interface Row {
  readonly group: string;
  readonly label: string;
  readonly value: string;
  readonly title: string;
  readonly marks: (y: number) => string;
}

/** Rows under headings of their group, on one axis. */
function chart(title: string, axis: Axis, rows: readonly Row[], extra = ""): string {
  const parts: string[] = [];
  let y = top;
  let group: string | undefined;
  for (const row of rows) {
    if (row.group !== group) {
      group = row.group;
      y += 26;
      parts.push(text(0, y - 6, "group", escapeHtml(group)));
    }
    const middle = y + rowHeight / 2;
    parts.push(
      `<g><title>${escapeHtml(row.title)}</title>`,
      `<rect class="hit" x="0" y="${y}" width="${width}" height="${rowHeight}"/>`,
      text(labelIndent, middle + 4, "label", escapeHtml(row.label)),
      row.marks(middle),
      text(width, middle + 4, "value", escapeHtml(row.value), "end"),
      "</g>",
    );
    y += rowHeight;
  }
  const bottom = y + 4;
  const grid = axis.ticks.map(({ value, text: caption }) => {
    const x = round(axis.at(value));
    return `<line class="grid" x1="${x}" x2="${x}" y1="${top - 6}" y2="${bottom}"/>${text(x, top - 14, "tick", escapeHtml(caption), "middle")}`;
  });
  const height = bottom + 6;
  return [
    `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(title)}">`,
    ...grid,
    extra.replaceAll("$bottom", String(bottom)),
    ...parts,
    "</svg>",
  ].join("\n");
}

function text(x: number, y: number, style: string, content: string, anchor = "start"): string {
  return `<text class="${style}" x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${content}</text>`;
}

const round = (value: number) => Math.round(value * 10) / 10;

/** p50 to p99 of every path: a dot, a tick and the end of a line. */
export function latencyPlot(rows: readonly PathRow[]): string {
  const measured = rows.flatMap((row) => {
    const latency = row.measurement?.latencyMs;
    return latency === undefined ? [] : [{ row, latency }];
  });
  const axis = linearAxis(Math.max(...measured.map(({ latency }) => latency.p99)), trimMs);
  return chart(
    "Latency of each protocol path: p50, p95 and p99 in milliseconds",
    axis,
    measured.map(({ row, latency }) => ({
      group: row.environment,
      label: row.path,
      value: `${formatMs(latency.p50)} ms`,
      title: `${row.environment}, ${row.path}: p50 ${formatMs(latency.p50)} ms, p95 ${formatMs(latency.p95)} ms, p99 ${formatMs(latency.p99)} ms, ${row.measurement?.samples ?? 0} requests`,
      marks: (y) => {
        const [p50, p95, p99] = [latency.p50, latency.p95, latency.p99].map((v) =>
          round(axis.at(v)),
        );
        return [
          `<line class="range" x1="${p50}" x2="${p99}" y1="${y}" y2="${y}"/>`,
          `<line class="p95" x1="${p95}" x2="${p95}" y1="${y - 7}" y2="${y + 7}"/>`,
          `<circle class="${latency.p99Reliable ? "p99" : "p99 weak"}" cx="${p99}" cy="${y}" r="4.5"/>`,
          `<circle class="p50" cx="${p50}" cy="${y}" r="6"/>`,
        ].join("");
      },
    })),
  );
}

/** Images per second of every path, from zero. */
export function throughputPlot(rows: readonly PathRow[]): string {
  const measured = rows.flatMap((row) =>
    row.measurement === undefined ? [] : [{ row, rate: row.measurement.imagesPerSecond }],
  );
  const axis = linearAxis(Math.max(...measured.map(({ rate }) => rate)), String);
  return chart(
    "Throughput of each protocol path in images per second",
    axis,
    measured.map(({ row, rate }) => ({
      group: row.environment,
      label: row.path,
      value: `${formatRate(rate)} /s`,
      title: `${row.environment}, ${row.path}: ${formatRate(rate)} images per second`,
      marks: (y) => {
        const end = round(axis.at(rate));
        const corner = Math.min(4, round(end - plotLeft));
        return `<path class="bar" d="M${plotLeft} ${y - 8}H${end - corner}q${corner} 0 ${corner} 4v8q0 4 -${corner} 4H${plotLeft}z"/>`;
      },
    })),
  );
}

/** Smallest difference that is drawn: below it two vectors are the same float32 numbers, or nearly. */
const smallestDifference = 1e-9;

/** How far every image's embedding is from the reference, on every path; the limit is a line. */
export function parityPlot(rows: readonly PathRow[], limit: number): string {
  const compared = rows.flatMap((row) =>
    row.parity?.images === undefined || row.parity.images.length === 0
      ? []
      : [{ row, images: row.parity.images }],
  );
  const all = compared.flatMap(({ images }) => images.map((image) => image.relativeDifference));
  const finite = all.filter(Number.isFinite);
  const low = Math.max(smallestDifference, Math.min(limit, ...finite.filter((d) => d > 0)) / 10);
  const marked = logAxis(low, Math.max(limit * 10, ...finite), formatFraction);
  // a logarithmic axis has no 0: equal vectors are drawn at its beginning
  const [first, ...others] = marked.ticks;
  const axis =
    all.includes(0) && first !== undefined
      ? { ...marked, ticks: [{ ...first, text: "0" }, ...others] }
      : marked;
  const x = round(axis.at(limit));
  return chart(
    "Relative difference of each sample image from the local reference, on each protocol path",
    axis,
    compared.map(({ row, images }) => {
      const worst = Math.max(...images.map((image) => image.relativeDifference));
      return {
        group: row.environment,
        label: row.path,
        value: formatFraction(worst),
        title: `${row.environment}, ${row.path}: at most ${formatFraction(worst)} of ${images.length} images`,
        marks: (y) =>
          images
            .map((image) => {
              const wrong = !(image.relativeDifference <= limit);
              const at = round(axis.at(Math.max(smallestDifference, image.relativeDifference)));
              return `<circle class="${wrong ? "dot wrong" : "dot"}" cx="${at}" cy="${y}" r="4"><title>${escapeHtml(image.image)}: ${formatFraction(image.relativeDifference)}, cosine ${image.cosine.toFixed(7)}</title></circle>`;
            })
            .join(""),
      };
    }),
    `<line class="limit" x1="${x}" x2="${x}" y1="${top - 6}" y2="$bottom"/>${text(x + 5, top + 8, "limit-label", `limit ${formatFraction(limit)}`)}`,
  );
}

function trimMs(value: number): string {
  return String(Number(value.toPrecision(3)));
}
