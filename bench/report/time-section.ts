import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { smallestLoad } from "./contenders.ts";
import { numberField, type Section, tableOf, textField } from "./document.ts";
import { type LoadPointRow, metricField, nameField } from "./load-point-table.ts";
import {
  closedLoop,
  fastest,
  isUnmodified,
  seriesOf,
  settingText,
  timeParts,
} from "./load-points.ts";
import { formatMs, formatPercent, listed } from "./number-format.ts";
import { timeFigures } from "./time-figures.ts";

/** The loads whose time is taken apart: each endpoint alone, and at its most. */
export function timeRows(loadPoints: readonly LoadPoint[]): readonly {
  readonly name: string;
  readonly what: "alone" | "at its most";
  readonly point: LoadPoint;
}[] {
  const plain = loadPoints.filter(isUnmodified);
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
    if (network > mean / 2) return [{ name, by: "transfer and network", share: network / mean }];
    if (decode > mean / 2) return [{ name, by: "decoding, on the CPU", share: decode / mean }];
    return [];
  });
  return {
    id: "time",
    title: "Where the time goes",
    answer:
      bound.length === 0
        ? [
            "At low load, no endpoint spends more than half of its time outside the model and its server.",
          ]
        : [...new Set(bound.map(({ by }) => by))].map((by) => {
            const own = bound.filter((row) => row.by === by);
            const names = own.map(({ name, share }) => `\`${name}\` (${formatPercent(share)})`);
            return `${listed(names)} ${own.length === 1 ? "spends most of its" : "spend most of their"} time on ${by}: a faster GPU does not help.`;
          }),
    figures: timeFigures(rows),
    tables: [
      tableOf("Mean time of a request in parts, ms", rows, [
        nameField,
        textField("load", ({ point }) => settingText(point)),
        numberField(
          "total",
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
      "Server times are means from its own counters over the measured windows: `nv_inference_*` of Triton, the histograms of the embed server. Network is the remaining time at the client.",
    ],
  };
}

const timeColumns = [
  [
    "network",
    "network",
    "Transfer and network stacks: latency at the client minus time in the server",
  ],
  ["decode", "decode"],
  ["queue", "queue"],
  ["input", "input"],
  ["infer", "model"],
  ["output", "output"],
  ["server", "other", "Total time in the server minus the other columns"],
] as const;
