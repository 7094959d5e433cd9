import type { BenchRecord, Cell } from "../record/bench-record.ts";
import { fitUsl, type Point, saturationOf, type UslFit } from "../stats/usl.ts";
import {
  type CellRow,
  cellRows,
  conditionsFields,
  environmentFields,
  executionField,
  latencyFields,
  loadField,
  nameField,
  trustField,
} from "./cell-table.ts";
import {
  clientsOf,
  closedLoop,
  costBasis,
  doubtsOf,
  fastest,
  heldShare,
  isPlain,
  meanGpuUse,
  openLoop,
  pathOf,
  preferTrusted,
  type Series,
  seriesOf,
  settingText,
  timeParts,
  trustOf,
  usdPerThousand,
} from "./cells.ts";
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
  const series = seriesOf(record.cells.filter(isPlain));
  const contenders = smallestLoad(series);
  const [first] = contenders;
  if (first === undefined) return undefined;
  const sorted = [...contenders].sort(
    (a, b) => (a.cell.latencyMs?.p50 ?? 0) - (b.cell.latencyMs?.p50 ?? 0),
  );
  const [best, worst] = [sorted[0], sorted.at(-1)];
  const answer =
    best === undefined || worst === undefined || best === worst
      ? []
      : [
          `With ${settingText(first.cell)}, \`${best.name}\` answers in ${formatMs(best.cell.latencyMs?.p50 ?? 0)} ms (p50) and \`${worst.name}\` in ${formatMs(worst.cell.latencyMs?.p50 ?? 0)} ms.`,
        ];
  return {
    id: "paths",
    title: "Latency of each path, alone",
    answer,
    figures: pathsFigure(sorted),
    tables: [
      tableOf(`Latency with ${settingText(first.cell)}`, sorted, [
        nameField,
        ...latencyFields,
        numberField("images/s", ({ cell }) => cell.imagesPerSecond, formatRate),
        numberField("request", ({ cell }) => cell.requestBytes, formatBytes),
        numberField("requests measured", ({ cell }) => cell.samples, formatCount),
        trustField,
      ]),
    ],
    notes: [],
  };
}

/** Of the loads of a series, those with as many clients as most batches were measured with. */
export function batchCells(cells: readonly Cell[]): readonly Cell[] {
  return widest(closedLoop(cells), clientsOf, ({ imagesPerRequest }) => imagesPerRequest).sort(
    (a, b) => a.imagesPerRequest - b.imagesPerRequest,
  );
}

/** Of the loads of a series, those with the batch that most numbers of clients were measured with. */
export function concurrencyCells(cells: readonly Cell[]): readonly Cell[] {
  return widest(closedLoop(cells), ({ imagesPerRequest }) => imagesPerRequest, clientsOf).sort(
    (a, b) => (clientsOf(a) ?? 0) - (clientsOf(b) ?? 0),
  );
}

/** The cells that agree in `fixed` and have the most different values of `varied`; the smallest `fixed` of equals. */
function widest(
  cells: readonly Cell[],
  fixed: (cell: Cell) => number | undefined,
  varied: (cell: Cell) => number | undefined,
): Cell[] {
  const groups = new Map<number, Cell[]>();
  for (const cell of cells) {
    const key = fixed(cell) ?? 0;
    groups.set(key, [...(groups.get(key) ?? []), cell]);
  }
  const size = (list: readonly Cell[]) => new Set(list.map(varied)).size;
  const [best] = [...groups].sort(([a, x], [b, y]) => size(y) - size(x) || a - b);
  return [...(best?.[1] ?? [])];
}

function batchSection(record: BenchRecord): Section | undefined {
  const lines = seriesOf(record.cells.filter(isPlain)).flatMap((series) => {
    const cells = batchCells(series.cells).filter(({ latencyMs }) => latencyMs !== undefined);
    return cells.length < 2 ? [] : [{ ...series, cells }];
  });
  if (lines.length === 0) return undefined;
  const clients = clientsOf(lines[0]!.cells[0]!) ?? 1;
  const gains = lines.flatMap(({ name, cells }) => {
    const trusted = preferTrusted(cells);
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
      pivot(`p50 by batch size, ms, ${counted(clients, "client")}`, lines, (cell) =>
        numberCell(cell.latencyMs?.p50, formatMs),
      ),
      pivot(`Images a second by batch size, ${counted(clients, "client")}`, lines, (cell) =>
        numberCell(cell.imagesPerSecond, formatRate),
      ),
      {
        lookUp: true,
        ...tableOf(
          `Latency and throughput by batch size, ${counted(clients, "client")}`,
          lines.flatMap(({ name, cells }) =>
            cells.map((cell) => ({ name, cell, smallest: cells[0]?.imagesPerSecond ?? 1 })),
          ),
          [
            nameField,
            numberField("batch", ({ cell }) => cell.imagesPerRequest, formatCount),
            ...latencyFields,
            numberField("images/s", ({ cell }) => cell.imagesPerSecond, formatRate),
            numberField(
              "ms an image",
              ({ cell }) => (cell.latencyMs?.p50 ?? 0) / cell.imagesPerRequest,
              formatMs,
            ),
            numberField(
              "against the smallest",
              ({ cell, smallest }) => cell.imagesPerSecond / smallest,
              formatRatio,
            ),
            trustField,
          ],
        ),
      },
    ],
    notes: [
      ...(lines.some(({ cells }) => cells.some((cell) => trustOf(cell) !== "good"))
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
  figure: (cell: Cell) => TableCell,
): DataTable {
  const sizes = [
    ...new Set(lines.flatMap(({ cells }) => cells.map(({ imagesPerRequest }) => imagesPerRequest))),
  ].sort((a, b) => a - b);
  return tableOf(caption, lines, [
    nameField,
    ...sizes.map(
      (size): Field<Series> => ({
        label: counted(size, "image"),
        kind: "number",
        cell: ({ cells }) => {
          const cell = cells.find(({ imagesPerRequest }) => imagesPerRequest === size);
          if (cell === undefined) return numberCell(undefined, String);
          const shown = figure(cell);
          const trust = trustOf(cell);
          if (trust === "good") return shown;
          const invalid = trust === "invalid" || trust === "empty";
          return {
            ...shown,
            text: `${shown.text} ${invalid ? "✗" : "~"}`,
            tone: invalid ? "bad" : "care",
            title: doubtsOf(cell).join(" "),
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

export function concurrencyLines(cells: readonly Cell[]): readonly ConcurrencyLine[] {
  return seriesOf(cells.filter(isPlain)).flatMap((series): readonly ConcurrencyLine[] => {
    const measured = concurrencyCells(series.cells).filter((cell) => trustOf(cell) !== "empty");
    if (measured.length < 2) return [];
    const points = measured
      .filter((cell) => trustOf(cell) !== "invalid")
      .map((cell) => ({ clients: clientsOf(cell) ?? 1, throughput: cell.imagesPerSecond }));
    const fit = fitUsl(points);
    return [{ ...series, cells: measured, points, ...(fit === undefined ? {} : { fit }) }];
  });
}

function concurrencySection(record: BenchRecord): Section | undefined {
  const lines = concurrencyLines(record.cells);
  if (lines.length === 0) return undefined;
  const batch = lines[0]?.cells[0]?.imagesPerRequest ?? 1;
  const saturated = lines.map((line) => ({ line, saturation: saturationOf(line.points) }));
  const answer = saturated.map(({ line: { name, cells, points }, saturation }) => {
    if (saturation === undefined) return `\`${name}\`: nothing to go by.`;
    const { most, enough, reached } = saturation;
    const tried = Math.max(...cells.map((cell) => clientsOf(cell) ?? 0));
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
          cellRows(lines),
          [
            nameField,
            numberField("clients", ({ cell }) => clientsOf(cell), formatCount),
            numberField("images/s", ({ cell }) => cell.imagesPerSecond, formatRate),
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
export function timeRows(cells: readonly Cell[]): readonly {
  readonly name: string;
  readonly what: "alone" | "at its most";
  readonly cell: Cell;
}[] {
  const plain = cells.filter(isPlain);
  const series = seriesOf(plain);
  const alone = smallestLoad(series);
  return series.flatMap(({ name, cells: own }) => {
    const small = alone.find((contender) => contender.name === name)?.cell;
    const most = fastest(closedLoop(own));
    return [
      ...(small === undefined ? [] : [{ name, what: "alone" as const, cell: small }]),
      ...(most === undefined || most === small
        ? []
        : [{ name, what: "at its most" as const, cell: most }]),
    ];
  });
}

function timeSection(record: BenchRecord): Section | undefined {
  const rows = timeRows(record.cells).filter(({ cell }) => cell.server !== undefined);
  if (rows.length === 0) return undefined;
  const part = (cell: Cell, id: string) => timeParts(cell).find((it) => it.id === id)?.ms;
  const alone = rows.filter(({ what }) => what === "alone");
  const bound = alone.flatMap(({ name, cell }) => {
    const mean = cell.latencyMs?.mean ?? 0;
    const network = part(cell, "network") ?? 0;
    const decode = part(cell, "decode") ?? 0;
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
        textField("load", ({ cell }) => settingText(cell)),
        numberField(
          "whole",
          ({ cell }) => cell.latencyMs?.mean,
          formatMs,
          "Mean latency at the client",
        ),
        ...timeColumns.map(([id, label, title]) =>
          numberField(label, ({ cell }: CellRow) => part(cell, id), formatMs, title),
        ),
        executionField,
        numberField("GPU in use", ({ cell }) => meanGpuUse(cell), formatPercent),
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
): readonly { readonly name: string; readonly cell: Cell; readonly usd: number }[] {
  const basis = costBasis(record);
  if (typeof basis === "string") return [];
  return seriesOf(record.cells.filter(isPlain))
    .flatMap(({ name, cells }) => {
      const cell = fastest(cells);
      return cell === undefined
        ? []
        : [{ name, cell, usd: usdPerThousand(basis, cell.imagesPerSecond) }];
    })
    .sort((a, b) => a.usd - b.usd);
}

function costSection(record: BenchRecord): Section | undefined {
  const basis = costBasis(record);
  if (typeof basis === "string") {
    return record.cells.length === 0
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
      `A million images cost $${(first.usd * 1_000).toFixed(2)} with \`${first.name}\`, in ${duration(1e6 / first.cell.imagesPerSecond)}.`,
    ],
    figures: costFigure(rows),
    tables: [
      tableOf("Cost at each path's highest throughput", rows, [
        nameField,
        textField("load", ({ cell }) => settingText(cell)),
        numberField("images/s", ({ cell }) => cell.imagesPerSecond, formatRate),
        numberField("1,000 images", ({ usd }) => usd, formatUsd),
        numberField(
          "a million images",
          ({ usd }) => usd * 1_000,
          (value) => `$${value.toFixed(2)}`,
        ),
        numberField("time for a million", ({ cell }) => 1e6 / cell.imagesPerSecond, duration),
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
  const lines = seriesOf(openLoop(record.cells));
  if (lines.length === 0) return undefined;
  const rateOf = ({ load }: Cell) => (load.kind === "open loop" ? load.ratePerSecond : 0);
  const isHeld = (cell: Cell) => (cell.achievedShare ?? 0) >= heldShare && trustOf(cell) === "good";
  const sorted = lines.map((line) => ({
    ...line,
    cells: [...line.cells].sort((a, b) => rateOf(a) - rateOf(b)),
  }));
  return {
    id: "rates",
    title: "At a given rate",
    answer: sorted.map(({ name, cells }) => {
      const most = cells.filter(isHeld).at(-1);
      return most === undefined
        ? `\`${name}\` held none of the rates that were tried.`
        : `\`${name}\` holds ${formatRate(rateOf(most))} requests a second with a p95 of ${formatMs(most.latencyMs?.p95 ?? 0)} ms${most === cells.at(-1) ? ", the highest that was tried" : ""}.`;
    }),
    figures: rateFigures(sorted, rateOf, isHeld),
    tables: [
      tableOf("Open loop: requests sent at a rate, answered or not", cellRows(sorted), [
        nameField,
        textField("arrivals", ({ cell: { load } }) =>
          load.kind === "open loop" ? load.arrivals : "",
        ),
        numberField("rate /s", ({ cell }) => rateOf(cell), formatRate),
        numberField(
          "answered",
          ({ cell }) => cell.achievedShare,
          formatPercent,
          "Part of the requests that were due in the measured windows",
          ({ cell }) => ((cell.achievedShare ?? 1) < heldShare ? { tone: "bad" } : {}),
        ),
        ...latencyFields,
        numberField("requests measured", ({ cell }) => cell.samples, formatCount),
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
    `${many ? `${row.environment} ` : ""}${pathOf(row)}`;
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

function loadsSection({ cells, settings }: BenchRecord): Section | undefined {
  if (cells.length === 0) return undefined;
  const rows = cells.map((cell) => ({
    name: pathOf(cell),
    environment: cell.environment,
    cell,
  }));
  return {
    id: "loads",
    title: "Every load",
    answer: [],
    figures: [],
    tables: [
      {
        lookUp: true,
        ...tableOf(`All ${counted(cells.length, "load")}`, rows, [
          ...environmentFields(cells),
          nameField,
          numberField("batch", ({ cell }) => cell.imagesPerRequest, formatCount),
          loadField,
          ...conditionsFields(cells),
          numberField("images/s", ({ cell }) => cell.imagesPerSecond, formatRate),
          ...latencyFields,
          numberField("max ms", ({ cell }) => cell.latencyMs?.max, formatMs),
          numberField("requests", ({ cell }) => cell.samples, formatCount),
          textField("errors", ({ cell: { errors } }) => ({
            text: errorsText(errors),
            tone: Object.keys(errors).length > 0 ? "bad" : "quiet",
            sort: Object.values(errors).reduce((sum, count) => sum + count, 0),
          })),
          {
            label: "windows",
            kind: "number",
            title: "Measured, of all",
            cell: ({ cell: { measuredWindows, windows } }) => ({
              text: `${measuredWindows}/${windows.length}`,
              sort: windows.length,
            }),
          },
          numberField(
            "generator",
            ({ cell }) => cell.client.busiestWorkerCores,
            formatPercent,
            "Part of a core that its busiest process used",
            ({ cell }) => (cell.client.busiestWorkerCores > 0.9 ? { tone: "bad" } : {}),
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
