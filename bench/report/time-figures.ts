import type { Figure } from "../../report/document/document.ts";
import { formatMs } from "../../report/document/number-format.ts";
import { type BarRow, barPlot } from "../../report/plots/bar-plot.ts";
import { boxSwatch } from "../../report/plots/plot-styles.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { type TimePartId, timePartNames, timeParts } from "../record/time-parts.ts";
import { formatTick } from "./figure-parts.ts";
import { clientsOf, settingText } from "./load-points.ts";

/** Load point of an endpoint whose latency is divided into parts. */
export interface TimeRow {
  readonly name: string;
  readonly load: "lowest load" | "highest throughput";
  readonly point: LoadPoint;
}

const partIds = Object.keys(timePartNames) as TimePartId[];

const titles = {
  "lowest load": "Mean latency by part, at the lowest load",
  "highest throughput": "Mean latency by part, at each endpoint's highest throughput",
} as const;

/** Bar plots of the parts of the mean latency. */
export function timeFigures(rows: readonly TimeRow[]): readonly Figure[] {
  return (["lowest load", "highest throughput"] as const).flatMap((load) => {
    const drawn = rows.filter((row) => row.load === load && row.point.serialization !== "json");
    if (drawn.length === 0) return [];
    const used = new Set(drawn.flatMap(({ point }) => timeParts(point).map(({ id }) => id)));
    const bars = drawn.map(timeBar);
    return [
      {
        title: titles[load],
        caption: "Milliseconds.",
        legend: partIds
          .filter((id) => used.has(id))
          .map((id) => boxSwatch(timePartNames[id].label, id)),
        draw: (width) =>
          barPlot({ description: titles[load], rows: bars, format: formatTick, axis: "ms" }, width),
      },
    ];
  });
}

function timeBar({ name, load, point }: TimeRow): BarRow {
  const parts = timeParts(point);
  const times = parts.map(({ id, ms }) => `${timePartNames[id].label} ${formatMs(ms)} ms`);
  return {
    label: load === "lowest load" ? name : `${name}, ${loadShort(point)}`,
    value: `${formatMs(point.latencyMs?.mean ?? 0)} ms`,
    title: `${name}, ${settingText(point)}: ${times.join(", ")}`,
    segments: parts.map(({ id, ms }) => ({
      colour: id,
      value: ms,
      // too light a colour for text
      ...(id === "server" ? {} : { text: formatMs(ms) }),
    })),
  };
}

function loadShort(point: LoadPoint): string {
  return `b${point.imagesPerRequest} c${clientsOf(point) ?? "–"}`;
}
