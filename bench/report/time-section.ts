import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { smallestLoad } from "./contenders.ts";
import { numberField, type Section, tableOf, textField } from "./document.ts";
import { type LoadPointRow, metricField, nameField } from "./load-point-table.ts";
import { closedLoop, fastest, isPlain, seriesOf, settingText, timeParts } from "./load-points.ts";
import { formatMs, formatPercent, listed } from "./number-format.ts";
import { timeFigures } from "./time-figures.ts";

/** The loads whose time is taken apart: each path alone, and at its most. */
export function timeRows(loadPoints: readonly LoadPoint[]): readonly {
  readonly name: string;
  readonly what: "alone" | "at its most";
  readonly point: LoadPoint;
}[] {
  const plain = loadPoints.filter(isPlain);
  const series = seriesOf(plain);
  const alone = smallestLoad(series);
  return series.flatMap(({ name, loadPoints: own }) => {
    const small = alone.find((contender) => contender.name === name)?.point;
    const most = fastest(closedLoop(own));
    return [
      ...(small === undefined ? [] : [{ name, what: "alone" as const, point: small }]),
      ...(most === undefined || most === small
        ? []
        : [{ name, what: "at its most" as const, point: most }]),
    ];
  });
}

export function timeSection(record: BenchRecord): Section | undefined {
  const rows = timeRows(record.loadPoints).filter(({ point }) => point.server !== undefined);
  if (rows.length === 0) return undefined;
  const part = (point: LoadPoint, id: string) => timeParts(point).find((it) => it.id === id)?.ms;
  const alone = rows.filter(({ what }) => what === "alone");
  const bound = alone.flatMap(({ name, point }) => {
    const mean = point.latencyMs?.mean ?? 0;
    const network = part(point, "network") ?? 0;
    const decode = part(point, "decode") ?? 0;
    if (network > mean / 2)
      return [{ name, by: "transfer and the network", share: network / mean }];
    if (decode > mean / 2) return [{ name, by: "decoding, on the CPU", share: decode / mean }];
    return [];
  });
  return {
    id: "time",
    title: "Where the time goes",
    answer:
      bound.length === 0
        ? ["Alone, no path spends more than half of its time outside the model and its server."]
        : [...new Set(bound.map(({ by }) => by))].map((by) => {
            const own = bound.filter((row) => row.by === by);
            const names = own.map(({ name, share }) => `\`${name}\` (${formatPercent(share)})`);
            return `${listed(names)} ${own.length === 1 ? "spends most of its" : "spend most of their"} time on ${by}: a faster GPU does not help there.`;
          }),
    figures: timeFigures(rows),
    tables: [
      tableOf("Mean time of a request in parts, ms", rows, [
        nameField,
        textField("load", ({ point }) => settingText(point)),
        numberField(
          "whole",
          ({ point }) => point.latencyMs?.mean,
          formatMs,
          "Mean latency at the client",
        ),
        ...timeColumns.map(([id, label, title]) =>
          numberField(label, ({ point }: LoadPointRow) => part(point, id), formatMs, title),
        ),
        metricField("averageBatch"),
        metricField("gpuUtilization"),
        metricField("gpuPower"),
      ]),
    ],
    notes: [
      "Times of the server are means from its own counters over the measured windows: `nv_inference_*` of Triton, the histograms of the embed server. Network is the rest of what the client waited.",
    ],
  };
}

const timeColumns = [
  [
    "network",
    "network",
    "Transfer and both systems' network stacks: what the client waited and the server did not work",
  ],
  ["decode", "decode"],
  ["queue", "queue"],
  ["input", "input"],
  ["infer", "model"],
  ["output", "output"],
  ["server", "other", "Of the server's own total, what its parts do not name"],
] as const;
