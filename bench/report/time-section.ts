import { type Section, tableOf, textField } from "../../report/document/document.ts";
import { formatPercent, listed } from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { timePartNames, timeParts } from "../record/time-parts.ts";
import { smallestLoad } from "./contenders.ts";
import { measuredMetricFields, nameField } from "./load-point-table.ts";
import { closedLoop, fastest, isUnmodified, seriesOf, settingText } from "./load-points.ts";
import { type TimeRow, timeFigures } from "./time-figures.ts";

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
  return {
    id: "time",
    title: "Latency by part",
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
  };
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
