import {
  type Figure,
  newSection,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import { formatMs, formatPercent, listed } from "../../report/document/number-format.ts";
import { type BarRow, barPlot } from "../../report/plots/bar-plot.ts";
import { boxSwatch } from "../../report/plots/plot-styles.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type TimePartId, timePartNames, timeParts } from "../record/time-parts.ts";
import { smallestLoad } from "./contenders.ts";
import { formatTick } from "./figure-parts.ts";
import { measuredMetricFields, nameField } from "./load-point-table.ts";
import {
  clientsOf,
  closedLoop,
  fastest,
  isUnmodified,
  seriesOf,
  settingText,
} from "./load-points.ts";

/** Load point of an endpoint whose latency is divided into parts. */
interface TimeRow {
  readonly name: string;
  readonly load: "lowest load" | "highest throughput";
  readonly point: LoadPoint;
}

/**
 * Returns up to two rows per endpoint: its load point at the smallest load that most endpoints share,
 * and its load point with the highest throughput.
 */
function latencyPartRows(loadPoints: readonly LoadPoint[]): readonly TimeRow[] {
  const series = seriesOf(loadPoints.filter(isUnmodified));
  const contenders = smallestLoad(series);
  return series.flatMap(({ name, loadPoints: own }): readonly TimeRow[] => {
    const lowest = contenders.find((contender) => contender.name === name)?.point;
    const highest = fastest(closedLoop(own));
    return [
      ...(lowest === undefined ? [] : [{ name, load: "lowest load" as const, point: lowest }]),
      ...(highest === undefined || highest === lowest
        ? []
        : [{ name, load: "highest throughput" as const, point: highest }]),
    ];
  });
}

export function timeSection(record: BenchRecord): Section | undefined {
  const rows = latencyPartRows(record.loadPoints).filter(({ point }) => point.server !== undefined);
  if (rows.length === 0) return undefined;
  return newSection("time", "Latency by part", {
    answer: bottleneckSentences(rows.filter(({ load }) => load === "lowest load")),
    figures: timeFigures(rows),
    tables: [
      tableOf("Mean latency by part", rows, [
        nameField,
        textField("load", ({ point }) => settingText(point)),
        ...measuredMetricFields(
          rows.map(({ point }) => point),
          ["time", "server"],
        ),
      ]),
    ],
    notes: [
      "Server times are means over the measured windows from the server's counters: `nv_inference_*` of Triton, the histograms of the embed server. Network is the latency at the client minus the time in the server.",
    ],
  });
}

/** Endpoints that spend more than half of their latency on the network or on decoding. */
function bottleneckSentences(rows: readonly TimeRow[]): readonly string[] {
  const bounds = (["network", "decode"] as const).flatMap((id) => {
    const bound = rows.flatMap(({ name, point }) => {
      const ms = timeParts(point).find((part) => part.id === id)?.ms ?? 0;
      const share = ms / (point.latencyMs?.mean ?? Number.POSITIVE_INFINITY);
      // rounded as printed, so that 50.3 % is not called most
      return Math.round(share * 100) > 50 ? [`\`${name}\` (${formatPercent(share)})`] : [];
    });
    if (bound.length === 0) return [];
    const verb = bound.length === 1 ? "spends most of its" : "spend most of their";
    return [
      `${listed(bound)} ${verb} latency on ${timePartNames[id].phrase}: a faster GPU does not help.`,
    ];
  });
  return bounds.length > 0
    ? bounds
    : [
        "At low load, no endpoint spends more than half of its latency on the network or on decoding.",
      ];
}

const partIds = Object.keys(timePartNames) as TimePartId[];

const titles = {
  "lowest load": "Mean latency by part, at the lowest load",
  "highest throughput": "Mean latency by part, at each endpoint's highest throughput",
} as const;

/** Bar plots of the parts of the mean latency. */
function timeFigures(rows: readonly TimeRow[]): readonly Figure[] {
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
