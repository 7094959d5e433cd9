import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { fitUsl, type Point, saturationOf, type UslFit } from "../stats/usl.ts";
import {
  counted,
  type DataTable,
  errorsText,
  type Field,
  formatBytes,
  formatCount,
  formatMs,
  formatPercent,
  formatRate,
  formatRatio,
  formatUsd,
  listed,
  numberCell,
  numberField,
  type Section,
  type TableCell,
  tableOf,
  textField,
} from "./document.ts";
import {
  batchFigures,
  concurrencyFigures,
  costFigure,
  pathsFigure,
  rateFigures,
  timeFigures,
} from "./figures.ts";
import { importedSection } from "./imported-section.ts";
import {
  conditionsFields,
  environmentFields,
  executionField,
  type LoadPointRow,
  latencyFields,
  loadField,
  loadPointRows,
  nameField,
  trustField,
} from "./load-point-table.ts";
import {
  clientsOf,
  closedLoop,
  costBasis,
  doubtsOf,
  endpointOf,
  fastest,
  heldShare,
  isPlain,
  meanGpuUse,
  openLoop,
  preferTrusted,
  type Series,
  seriesOf,
  settingText,
  timeParts,
  trustOf,
  usdPerThousand,
} from "./load-points.ts";
import { notesOf, studySections } from "./study-sections.ts";
import { smallestLoad } from "./verdict.ts";

/** The evidence behind the verdict, as sections that every report renders. Pure. */

export function sectionsOf(record: BenchRecord): readonly Section[] {
  return [
    pathsSection(record),
    batchSection(record),
    concurrencySection(record),
    timeSection(record),
    costSection(record),
    openLoopSection(record),
    ...studySections(record),
    importedSection(record),
    paritySection(record),
    loadsSection(record),
  ].filter((section) => section !== undefined);
}

function pathsSection(record: BenchRecord): Section | undefined {
  const series = seriesOf(record.loadPoints.filter(isPlain));
  const contenders = smallestLoad(series);
  const [first] = contenders;
  if (first === undefined) return undefined;
  const sorted = [...contenders].sort(
    (a, b) => (a.point.latencyMs?.p50 ?? 0) - (b.point.latencyMs?.p50 ?? 0),
  );
  const [best, worst] = [sorted[0], sorted.at(-1)];
  const answer =
    best === undefined || worst === undefined || best === worst
      ? []
      : [
          `With ${settingText(first.point)}, \`${best.name}\` answers in ${formatMs(best.point.latencyMs?.p50 ?? 0)} ms (p50) and \`${worst.name}\` in ${formatMs(worst.point.latencyMs?.p50 ?? 0)} ms.`,
        ];
  return {
    id: "paths",
    title: "Latency of each path, alone",
    answer,
    figures: pathsFigure(sorted),
    tables: [
      tableOf(`Latency with ${settingText(first.point)}`, sorted, [
        nameField,
        ...latencyFields,
        numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
        numberField("request", ({ point }) => point.requestBytes, formatBytes),
        numberField("requests measured", ({ point }) => point.samples, formatCount),
        trustField,
      ]),
    ],
    notes: [],
  };
}

/** Of the loads of a series, those with as many clients as most batches were measured with. */
export function batchPoints(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return widest(closedLoop(loadPoints), clientsOf, ({ imagesPerRequest }) => imagesPerRequest).sort(
    (a, b) => a.imagesPerRequest - b.imagesPerRequest,
  );
}

/** Of the loads of a series, those with the batch that most numbers of clients were measured with. */
export function concurrencyPoints(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return widest(closedLoop(loadPoints), ({ imagesPerRequest }) => imagesPerRequest, clientsOf).sort(
    (a, b) => (clientsOf(a) ?? 0) - (clientsOf(b) ?? 0),
  );
}

/** The cells that agree in `fixed` and have the most different values of `varied`; the smallest `fixed` of equals. */
function widest(
  loadPoints: readonly LoadPoint[],
  fixed: (point: LoadPoint) => number | undefined,
  varied: (point: LoadPoint) => number | undefined,
): LoadPoint[] {
  const groups = new Map<number, LoadPoint[]>();
  for (const point of loadPoints) {
    const key = fixed(point) ?? 0;
    groups.set(key, [...(groups.get(key) ?? []), point]);
  }
  const size = (list: readonly LoadPoint[]) => new Set(list.map(varied)).size;
  const [best] = [...groups].sort(([a, x], [b, y]) => size(y) - size(x) || a - b);
  return [...(best?.[1] ?? [])];
}

function batchSection(record: BenchRecord): Section | undefined {
  const lines = seriesOf(record.loadPoints.filter(isPlain)).flatMap((series) => {
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
            `\`${most.name}\` gains most: ${counted(most.large.imagesPerRequest, "image")} a request give ${formatRatio(most.gain)} the images a second of ${most.small.imagesPerRequest}, for ${formatRatio(most.wait)} the latency.`,
          ],
    figures: batchFigures(lines),
    tables: [
      pivot(`p50 by batch size, ms, ${counted(clients, "client")}`, lines, (point) =>
        numberCell(point.latencyMs?.p50, formatMs),
      ),
      pivot(`Images a second by batch size, ${counted(clients, "client")}`, lines, (point) =>
        numberCell(point.imagesPerSecond, formatRate),
      ),
      {
        lookUp: true,
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
            numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
            numberField(
              "ms an image",
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
      ...notesOf(record, "batch"),
    ],
  };
}

/** A row for each path, a column for each batch size. */
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
            title: doubtsOf(point).join(" "),
          };
        },
      }),
    ),
  ]);
}

/** One path's throughput by clients, with the law that fits it. */
export interface ConcurrencyLine extends Series {
  readonly fit?: UslFit;
  readonly points: readonly Point[];
}

export function concurrencyLines(loadPoints: readonly LoadPoint[]): readonly ConcurrencyLine[] {
  return seriesOf(loadPoints.filter(isPlain)).flatMap((series): readonly ConcurrencyLine[] => {
    const measured = concurrencyPoints(series.loadPoints).filter(
      (point) => trustOf(point) !== "empty",
    );
    if (measured.length < 2) return [];
    const points = measured
      .filter((point) => trustOf(point) !== "invalid")
      .map((point) => ({ clients: clientsOf(point) ?? 1, throughput: point.imagesPerSecond }));
    const fit = fitUsl(points);
    return [{ ...series, loadPoints: measured, points, ...(fit === undefined ? {} : { fit }) }];
  });
}

function concurrencySection(record: BenchRecord): Section | undefined {
  const lines = concurrencyLines(record.loadPoints);
  if (lines.length === 0) return undefined;
  const batch = lines[0]?.loadPoints[0]?.imagesPerRequest ?? 1;
  const saturated = lines.map((line) => ({ line, saturation: saturationOf(line.points) }));
  const answer = saturated.map(({ line: { name, loadPoints, points }, saturation }) => {
    if (saturation === undefined) return `\`${name}\`: nothing to go by.`;
    const { most, enough, reached } = saturation;
    const tried = Math.max(...loadPoints.map((point) => clientsOf(point) ?? 0));
    const trusted = Math.max(...points.map(({ clients }) => clients));
    if (trusted < tried && !reached) {
      return `\`${name}\` can be trusted up to ${counted(trusted, "client")} only, ${formatRate(most.throughput)} images/s: its loads with more are invalid.`;
    }
    return reached
      ? `\`${name}\` has nearly all of its ${formatRate(most.throughput)} images/s with ${counted(enough.clients, "client")}; more only wait longer.`
      : `\`${name}\` still grows at ${counted(most.clients, "client")}, ${formatRate(most.throughput)} images/s: its limit is further on.`;
  });
  return {
    id: "concurrency",
    title: "Concurrency, and where it saturates",
    answer,
    figures: concurrencyFigures(lines),
    tables: [
      saturationTable(saturated),
      {
        lookUp: true,
        ...tableOf(
          `Throughput and latency by clients, ${counted(batch, "image")} a request`,
          loadPointRows(lines),
          [
            nameField,
            numberField("clients", ({ point }) => clientsOf(point), formatCount),
            numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
            ...latencyFields,
            executionField,
            trustField,
          ],
        ),
      },
    ],
    notes: [
      "Fitted: the Universal Scalability Law, X(N) = λN / (1 + σ(N − 1) + κN(N − 1)). λ is the rate of one client, σ the part that is done one at a time, κ what clients cost each other; off by is the root mean square of its relative difference from the points. Beyond the measured clients the peak is a guess; the measured most is not.",
      ...notesOf(record, "concurrency"),
    ],
  };
}

function saturationTable(
  lines: readonly {
    readonly line: ConcurrencyLine;
    readonly saturation: ReturnType<typeof saturationOf>;
  }[],
): DataTable {
  const rows = lines.map(({ line: { name, fit, points }, saturation }) => {
    const largest = Math.max(...points.map(({ clients }) => clients));
    return { name, fit, saturation, isBeyond: (fit?.peak?.clients ?? largest + 1) > largest };
  });
  return tableOf("Saturation: measured, and by the fitted law", rows, [
    nameField,
    numberField("most images/s", ({ saturation }) => saturation?.most.throughput, formatRate),
    numberField("at clients", ({ saturation }) => saturation?.most.clients, formatCount),
    numberField(
      "95 % of it from clients",
      ({ saturation }) => (saturation?.reached === true ? saturation.enough.clients : undefined),
      formatCount,
    ),
    numberField(
      "fitted peak images/s",
      ({ fit }) => fit?.peak?.throughput ?? fit?.ceiling,
      formatRate,
      undefined,
      ({ isBeyond }) => (isBeyond ? { tone: "quiet", title: "beyond what was measured" } : {}),
    ),
    numberField(
      "at clients",
      ({ fit }) => fit?.peak?.clients,
      formatCount,
      undefined,
      (row) => (row.isBeyond ? { tone: "quiet" } : {}),
    ),
    numberField("λ", ({ fit }) => fit?.lambda, formatRate, "Images a second of one client"),
    numberField(
      "σ",
      ({ fit }) => fit?.sigma,
      (value) => value.toPrecision(2),
      "Part that is done one at a time",
    ),
    numberField(
      "κ",
      ({ fit }) => fit?.kappa,
      (value) => (value === 0 ? "0" : value.toExponential(1)),
      "What clients cost each other",
    ),
    numberField(
      "off by",
      ({ fit }) => fit?.residual,
      formatPercent,
      "Root mean square of the relative difference",
      ({ fit }) => ((fit?.residual ?? 0) > 0.15 ? { tone: "care" } : {}),
    ),
  ]);
}

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

function timeSection(record: BenchRecord): Section | undefined {
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
        executionField,
        numberField("GPU in use", ({ point }) => meanGpuUse(point), formatPercent),
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

/** Each path's cheapest load. */
export function costRows(
  record: BenchRecord,
): readonly { readonly name: string; readonly point: LoadPoint; readonly usd: number }[] {
  const basis = costBasis(record);
  if (typeof basis === "string") return [];
  return seriesOf(record.loadPoints.filter(isPlain))
    .flatMap(({ name, loadPoints }) => {
      const point = fastest(loadPoints);
      return point === undefined
        ? []
        : [{ name, point, usd: usdPerThousand(basis, point.imagesPerSecond) }];
    })
    .sort((a, b) => a.usd - b.usd);
}

function costSection(record: BenchRecord): Section | undefined {
  const basis = costBasis(record);
  if (typeof basis === "string") {
    return record.loadPoints.length === 0
      ? undefined
      : { id: "cost", title: "Cost", answer: [basis], figures: [], tables: [], notes: [] };
  }
  const rows = costRows(record);
  const [first] = rows;
  if (first === undefined) return undefined;
  return {
    id: "cost",
    title: "Cost",
    answer: [
      `A million images cost $${(first.usd * 1_000).toFixed(2)} with \`${first.name}\`, in ${duration(1e6 / first.point.imagesPerSecond)}.`,
    ],
    figures: costFigure(rows),
    tables: [
      tableOf("Cost at each path's highest throughput", rows, [
        nameField,
        textField("load", ({ point }) => settingText(point)),
        numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
        numberField("1,000 images", ({ usd }) => usd, formatUsd),
        numberField(
          "a million images",
          ({ usd }) => usd * 1_000,
          (value) => `$${value.toFixed(2)}`,
        ),
        numberField("time for a million", ({ point }) => 1e6 / point.imagesPerSecond, duration),
        trustField,
      ]),
    ],
    notes: [
      `Price: $${basis.usdPerHour} an hour, from ${basis.source}, seen ${basis.date}. Prices move: look again. Cost = price ÷ 3600 ÷ images a second × 1000, while it is kept that busy.`,
    ],
  };
}

function duration(seconds: number): string {
  if (seconds < 5_400) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3_600).toFixed(1)} h`;
}

function openLoopSection(record: BenchRecord): Section | undefined {
  const lines = seriesOf(openLoop(record.loadPoints));
  if (lines.length === 0) return undefined;
  const rateOf = ({ load }: LoadPoint) => (load.kind === "open loop" ? load.ratePerSecond : 0);
  const isHeld = (point: LoadPoint) =>
    (point.achievedShare ?? 0) >= heldShare && trustOf(point) === "good";
  const sorted = lines.map((line) => ({
    ...line,
    loadPoints: [...line.loadPoints].sort((a, b) => rateOf(a) - rateOf(b)),
  }));
  return {
    id: "rates",
    title: "At a given rate",
    answer: sorted.map(({ name, loadPoints }) => {
      const most = loadPoints.filter(isHeld).at(-1);
      return most === undefined
        ? `\`${name}\` held none of the rates that were tried.`
        : `\`${name}\` holds ${formatRate(rateOf(most))} requests a second with a p95 of ${formatMs(most.latencyMs?.p95 ?? 0)} ms${most === loadPoints.at(-1) ? ", the highest that was tried" : ""}.`;
    }),
    figures: rateFigures(sorted, rateOf, isHeld),
    tables: [
      tableOf("Open loop: requests sent at a rate, answered or not", loadPointRows(sorted), [
        nameField,
        textField("arrivals", ({ point: { load } }) =>
          load.kind === "open loop" ? load.arrivals : "",
        ),
        numberField("rate /s", ({ point }) => rateOf(point), formatRate),
        numberField(
          "answered",
          ({ point }) => point.achievedShare,
          formatPercent,
          "Part of the requests that were due in the measured windows",
          ({ point }) => ((point.achievedShare ?? 1) < heldShare ? { tone: "bad" } : {}),
        ),
        ...latencyFields,
        numberField("requests measured", ({ point }) => point.samples, formatCount),
        trustField,
      ]),
    ],
    notes: [
      "Latency is counted from when a request was due, so a stall of the server is in the figures of every request that it kept waiting. A rate is held where 99 % of its requests were answered and the windows agree.",
    ],
  };
}

function paritySection({ parity }: BenchRecord): Section | undefined {
  if (parity.length === 0) return undefined;
  const wrong = parity.filter(({ passed }) => !passed);
  const many = new Set(parity.map(({ environment }) => environment)).size > 1;
  const name = (row: (typeof parity)[number]) =>
    `${many ? `${row.environment} ` : ""}${endpointOf(row)}`;
  return {
    id: "parity",
    title: "The same embeddings on every path",
    answer: [
      wrong.length === 0
        ? `Before anything was timed, ${parity.length === 1 ? "the path" : `all ${parity.length} paths`} gave the embeddings of the local reference.`
        : `Not timed, for their embeddings are not those of the local reference: ${listed(wrong.map((row) => `\`${name(row)}\``))}.`,
    ],
    figures: [],
    tables: [
      tableOf("Answers against the local reference", parity, [
        textField("path", name),
        numberField("images", ({ images }) => images, formatCount),
        numberField(
          "least cosine",
          ({ minCosine }) => minCosine,
          (value) => value.toFixed(6),
        ),
        numberField(
          "largest difference",
          (row) => row.maxRelativeDifference,
          (value) => value.toExponential(1),
          "‖a − b‖ / ‖b‖",
        ),
        textField("outcome", ({ passed, message }) =>
          passed
            ? { text: "✓ the same", tone: "good", title: message }
            : { text: `✗ ${message}`, tone: "bad" },
        ),
      ]),
    ],
    notes: [],
  };
}

function loadsSection({ loadPoints, settings }: BenchRecord): Section | undefined {
  if (loadPoints.length === 0) return undefined;
  const rows = loadPoints.map((point) => ({
    name: endpointOf(point),
    environment: point.environment,
    point,
  }));
  return {
    id: "loads",
    title: "Every load",
    answer: [],
    figures: [],
    tables: [
      {
        lookUp: true,
        ...tableOf(`All ${counted(loadPoints.length, "load")}`, rows, [
          ...environmentFields(loadPoints),
          nameField,
          numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
          loadField,
          ...conditionsFields(loadPoints),
          numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
          ...latencyFields,
          numberField("max ms", ({ point }) => point.latencyMs?.max, formatMs),
          numberField("requests", ({ point }) => point.samples, formatCount),
          textField("errors", ({ point: { errors } }) => ({
            text: errorsText(errors),
            tone: Object.keys(errors).length > 0 ? "bad" : "quiet",
            sort: Object.values(errors).reduce((sum, count) => sum + count, 0),
          })),
          {
            label: "windows",
            kind: "number",
            title: "Measured, of all",
            cell: ({ point: { measuredWindows, windows } }) => ({
              text: `${measuredWindows}/${windows.length}`,
              sort: windows.length,
            }),
          },
          numberField(
            "generator",
            ({ point }) => point.client.busiestWorkerCores,
            formatPercent,
            "Part of a core that its busiest process used",
            ({ point }) => (point.client.busiestWorkerCores > 0.9 ? { tone: "bad" } : {}),
          ),
          trustField,
        ]),
      },
    ],
    notes: [
      `Windows of ${settings.windowSeconds} s, until ${settings.stableWindows} in a row agree within ${Math.round(settings.tolerance * 100)} % on throughput and p99, at most ${settings.maxWindows}; the figures are of the last ones. The warm-up before them is not in any figure.`,
    ],
  };
}
