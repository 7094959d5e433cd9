import type { LoadPoint } from "../record/bench-record.ts";
import type { Figure } from "./document.ts";
import { formatTick, titleOf } from "./figure-parts.ts";
import { clientsOf, endpointOf, settingText, type TimePart, timeParts } from "./load-points.ts";
import { formatMs, formatUsd } from "./number-format.ts";
import { boxSwatch, endpointStyle } from "./plot-styles.ts";
import { type BarRow, barPlot } from "./row-plots.ts";

/** Legend labels of the parts of a request's time. */
const partNames: Readonly<Record<TimePart["id"], string>> = {
  network: "network and transfer",
  decode: "decode",
  queue: "queue",
  input: "input",
  infer: "model",
  output: "output",
  server: "rest of the server",
  unknown: "not known",
};

const partIds = Object.keys(partNames) as TimePart["id"][];

/** Bar plot of the parts of a request's time. */
export function timeFigures(
  rows: readonly {
    readonly name: string;
    readonly what: "alone" | "at its most";
    readonly point: LoadPoint;
  }[],
): readonly Figure[] {
  const titles = {
    alone: "Where a request's time goes, alone",
    "at its most": "Where a request's time goes, at each endpoint's highest throughput",
  } as const;
  return (["alone", "at its most"] as const).flatMap((what) => {
    const drawn = rows.filter((row) => row.what === what && row.point.serialization !== "json");
    if (drawn.length === 0) return [];
    const used = new Set(drawn.flatMap(({ point }) => timeParts(point).map(({ id }) => id)));
    const bars = drawn.map(({ name, point }): BarRow => {
      const parts = timeParts(point);
      return {
        label: what === "alone" ? name : `${name}, ${loadShort(point)}`,
        value: `${formatMs(point.latencyMs?.mean ?? 0)} ms`,
        title: `${name}, ${settingText(point)}: ${parts.map(({ id, ms }) => `${partNames[id]} ${formatMs(ms)} ms`).join(", ")}`,
        segments: parts.map(({ id, ms }) => ({
          colour: id,
          value: ms,
          // its colour is too light to write on
          ...(id === "server" ? {} : { text: formatMs(ms) }),
        })),
      };
    });
    return [
      {
        title: titles[what],
        caption: "Mean of a request, ms.",
        legend: partIds.filter((id) => used.has(id)).map((id) => boxSwatch(partNames[id], id)),
        draw: (width) =>
          barPlot({ description: titles[what], rows: bars, format: formatTick, axis: "ms" }, width),
      },
    ];
  });
}

function loadShort(point: LoadPoint): string {
  return `b${point.imagesPerRequest} c${clientsOf(point) ?? "–"}`;
}

/** Dollars for 1,000 images of each path. */
export function costFigure(
  rows: readonly { readonly name: string; readonly point: LoadPoint; readonly usd: number }[],
): readonly Figure[] {
  const least = rows[0]?.usd ?? 0;
  const near = rows.filter(({ usd }) => rows.length < 3 || usd <= 12 * least);
  const far = rows.filter((row) => !near.includes(row));
  if (near.length === 0) return [];
  return [
    {
      title: "Cost of 1,000 images",
      caption: `At each endpoint's highest throughput.${far.length === 0 ? "" : ` Not drawn, for it would be far to the right: ${far.map(({ name, usd }) => `\`${name}\` at ${formatUsd(usd)}`).join(", ")}.`}`,
      legend: [],
      draw: (width) =>
        barPlot(
          {
            description: "Dollars for 1,000 images, one bar for each endpoint",
            axis: "US dollars",
            format: (value) => (value === 0 ? "0" : `$${Number(value.toPrecision(2))}`),
            rows: near.map(({ name, point, usd }) => ({
              label: name,
              value: formatUsd(usd),
              title: `${titleOf(name, point)}: ${formatUsd(usd)} for 1,000 images`,
              segments: [{ colour: endpointStyle(endpointOf(point)).colour, value: usd }],
            })),
          },
          width,
        ),
    },
  ];
}
