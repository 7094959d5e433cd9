import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import {
  type DataTable,
  type Field,
  numberCell,
  numberField,
  type Section,
  type TableCell,
  tableOf,
} from "./document.ts";
import { batchFigures } from "./figures.ts";
import { batchPoints } from "./load-point-grid.ts";
import { latencyFields, metricField, nameField, trustField } from "./load-point-table.ts";
import {
  clientsOf,
  isUnmodified,
  preferTrusted,
  reliabilityIssues,
  type Series,
  seriesOf,
  trustOf,
} from "./load-points.ts";
import { counted, formatCount, formatMs, formatRate, formatRatio } from "./number-format.ts";
import { studyNotes } from "./study-section.ts";

export function batchSection(record: BenchRecord): Section | undefined {
  const lines = seriesOf(record.loadPoints.filter(isUnmodified)).flatMap((series) => {
    const loadPoints = batchPoints(series.loadPoints).filter(
      ({ latencyMs }) => latencyMs !== undefined,
    );
    return loadPoints.length < 2 ? [] : [{ ...series, loadPoints }];
  });
  if (lines.length === 0) return undefined;
  const clients = clientsOf(lines[0]!.loadPoints[0]!) ?? 1;
  const gains = lines.flatMap(({ name, loadPoints }) => {
    const trusted = preferTrusted(loadPoints);
    const [small, large] = [trusted[0], trusted.at(-1)];
    return small === undefined || large === undefined || small === large
      ? []
      : [
          {
            name,
            small,
            large,
            gain: large.imagesPerSecond / small.imagesPerSecond,
            wait: (large.latencyMs?.p50 ?? 0) / (small.latencyMs?.p50 ?? 1),
          },
        ];
  });
  const [most] = [...gains].sort((a, b) => b.gain - a.gain);
  return {
    id: "batch",
    title: "Batch size",
    answer:
      most === undefined
        ? []
        : [
            `\`${most.name}\` gains most: ${counted(most.large.imagesPerRequest, "image")} per request give ${formatRatio(most.gain)} the images per second of ${most.small.imagesPerRequest}, for ${formatRatio(most.wait)} the latency.`,
          ],
    figures: batchFigures(lines),
    tables: [
      pivot(`p50 by batch size, ms, ${counted(clients, "client")}`, lines, (point) =>
        numberCell(point.latencyMs?.p50, formatMs),
      ),
      pivot(`Images per second by batch size, ${counted(clients, "client")}`, lines, (point) =>
        numberCell(point.imagesPerSecond, formatRate),
      ),
      {
        isReference: true,
        ...tableOf(
          `Latency and throughput by batch size, ${counted(clients, "client")}`,
          lines.flatMap(({ name, loadPoints }) =>
            loadPoints.map((point) => ({
              name,
              point,
              smallest: loadPoints[0]?.imagesPerSecond ?? 1,
            })),
          ),
          [
            nameField,
            numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
            ...latencyFields,
            metricField("throughput"),
            numberField(
              "ms per image",
              ({ point }) => (point.latencyMs?.p50 ?? 0) / point.imagesPerRequest,
              formatMs,
            ),
            numberField(
              "against the smallest",
              ({ point, smallest }) => point.imagesPerSecond / smallest,
              formatRatio,
            ),
            trustField,
          ],
        ),
      },
    ],
    notes: [
      ...(lines.some(({ loadPoints }) => loadPoints.some((point) => trustOf(point) !== "good"))
        ? ["~ not stable, ✗ invalid: such figures are not to be relied on."]
        : []),
      ...studyNotes(record, "batch"),
    ],
  };
}

/** A row for each endpoint, a column for each batch size. */
function pivot(
  caption: string,
  lines: readonly Series[],
  figure: (point: LoadPoint) => TableCell,
): DataTable {
  const sizes = [
    ...new Set(
      lines.flatMap(({ loadPoints }) => loadPoints.map(({ imagesPerRequest }) => imagesPerRequest)),
    ),
  ].sort((a, b) => a - b);
  return tableOf(caption, lines, [
    nameField,
    ...sizes.map(
      (size): Field<Series> => ({
        label: counted(size, "image"),
        kind: "number",
        cell: ({ loadPoints }) => {
          const point = loadPoints.find(({ imagesPerRequest }) => imagesPerRequest === size);
          if (point === undefined) return numberCell(undefined, String);
          const shown = figure(point);
          const trust = trustOf(point);
          if (trust === "good") return shown;
          const invalid = trust === "invalid" || trust === "empty";
          return {
            ...shown,
            text: `${shown.text} ${invalid ? "✗" : "~"}`,
            tone: invalid ? "bad" : "care",
            title: reliabilityIssues(point).join(" "),
          };
        },
      }),
    ),
  ]);
}
