import {
  type BenchRecord,
  type LoadPoint,
  type StudyId,
  type StudyResult,
  studyQuestions,
} from "../record/bench-record.ts";
import { median } from "../stats/statistics.ts";
import {
  counted,
  type DataTable,
  type Figure,
  formatBytes,
  formatCount,
  formatMs,
  formatPercent,
  formatRate,
  formatRatio,
  listed,
  numberField,
  type Section,
  tableOf,
  textField,
} from "./document.ts";
import { barFigure, plainFigure, protocolFigure } from "./figures.ts";
import {
  conditionsFields,
  environmentFields,
  executionField,
  latencyFields,
  loadField,
  loadPointRows,
  nameField,
  trustField,
} from "./load-point-table.ts";
import {
  clientsOf,
  closedLoop,
  conditionsText,
  endpointOf,
  environmentsOf,
  fastest,
  isPlain,
  ofStudy,
  type Series,
  seriesOf,
  trustOf,
} from "./load-points.ts";
import { boxSwatch, endpointStyle } from "./plots.ts";

/** A section for each study that a record has. Pure. */

type Found<Id extends StudyId> = Extract<StudyResult, { readonly study: Id }>;

/** What a study adds to its frame: its title, question and notes come from the record. */
type Body = Pick<Section, "answer" | "tables"> & Partial<Pick<Section, "figures" | "notes">>;

const bodies: Readonly<
  Partial<Record<StudyId, (record: BenchRecord, study: StudyId) => Body | undefined>>
> = {
  "cold-start": coldStart,
  "queue-delay": queueDelay,
  protocol,
  serialization,
  link,
  operators,
  memory,
  scaling,
  topology,
};

const titles: Readonly<Partial<Record<StudyId, string>>> = {
  "cold-start": "Cold start",
  "queue-delay": "Queue delay of the batcher",
  protocol: "HTTP against gRPC",
  serialization: "JSON against binary tensors",
  link: "Through a slower link",
  operators: "Operators of the model",
  memory: "Memory",
  scaling: "Several GPUs",
  topology: "One Triton over all GPUs, or one for each",
};

export function studySections(record: BenchRecord): readonly Section[] {
  return (Object.keys(bodies) as StudyId[]).flatMap((study) => {
    const notes = notesOf(record, study);
    const asked = record.studies.some((it) => it.study === study);
    const body =
      bodies[study]?.(record, study) ??
      (asked ? { answer: ["Nothing was measured that answers it."], tables: [] } : undefined);
    if (body === undefined) return [];
    return [
      {
        id: study,
        title: titles[study] ?? study,
        question: studyQuestions[study],
        answer: body.answer,
        figures: body.figures ?? [],
        tables: body.tables,
        notes: [...(body.notes ?? []), ...notes],
      },
    ];
  });
}

/** What a study says besides its figures. */
export function notesOf(record: BenchRecord, study: StudyId): readonly string[] {
  return [...new Set(record.studies.flatMap((it) => (it.study === study ? it.notes : [])))];
}

function results<Id extends StudyId>(record: BenchRecord, study: Id): readonly Found<Id>[] {
  return record.studies.filter((it): it is Found<Id> => it.study === study);
}

const seconds = (ms: number) =>
  ms >= 1_000 ? `${(ms / 1_000).toFixed(ms >= 10_000 ? 0 : 1)} s` : `${formatMs(ms)} ms`;

function coldStart(record: BenchRecord): Body | undefined {
  const found = results(record, "cold-start");
  const starts = found.flatMap(({ environment, starts: list }) =>
    list.map((start) => ({ environment, ...start })),
  );
  if (starts.length === 0) return undefined;
  const services = [...new Set(starts.map(({ service }) => service))];
  const medians = services.map((service) => {
    const own = starts.filter((start) => start.service === service);
    const over = (ms: (start: (typeof own)[number]) => number) => median(own.map(ms)) ?? 0;
    return {
      service,
      live: over(({ liveMs, readyMs }) => liveMs ?? readyMs),
      ready: over(({ readyMs }) => readyMs),
      first: over(({ firstRequestMs }) => firstRequestMs),
      warm: over(({ warmRequestMs }) => warmRequestMs),
    };
  });
  return {
    answer: medians.map(({ service, ready, first, warm }) => {
      const slow =
        first > 2 * warm
          ? `; its first answer takes ${seconds(first)}, a warm one ${seconds(warm)}`
          : "";
      return `\`${service}\` is ready after ${seconds(ready)}${slow}.`;
    }),
    figures: barFigure(
      "From nothing to the first embedding",
      "Median of the rounds, s.",
      medians.map(({ service, live, ready, first }) => {
        return {
          label: service,
          value: seconds(ready + first),
          title: `${service}: live after ${seconds(live)}, ready after ${seconds(ready)}, first answer in ${seconds(first)}`,
          segments: [
            { colour: "server", value: live / 1_000 },
            { colour: "infer", value: (ready - live) / 1_000 },
            { colour: "queue", value: first / 1_000 },
          ],
        };
      }),
      "s",
      [
        boxSwatch("until live", "server"),
        boxSwatch("until ready", "infer"),
        boxSwatch("first answer", "queue"),
      ],
    ),
    tables: [
      tableOf("Each start", starts, [
        ...environmentFields(starts),
        textField("service", ({ service }) => service),
        numberField("round", ({ round }) => round, formatCount),
        numberField("live", ({ liveMs }) => liveMs, seconds),
        numberField("ready", ({ readyMs }) => readyMs, seconds),
        numberField("first answer", ({ firstRequestMs }) => firstRequestMs, seconds),
        numberField("warm answer", ({ warmRequestMs }) => warmRequestMs, seconds),
      ]),
    ],
  };
}

/** A table of a study's loads: what it changed, then the figures. */
function loadTable(caption: string, loadPoints: readonly LoadPoint[]): DataTable {
  return tableOf(caption, loadPointRows(seriesOf(loadPoints)), [
    nameField,
    ...conditionsFields(loadPoints),
    numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
    loadField,
    numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
    ...latencyFields,
    executionField,
    trustField,
  ]);
}

const usable = (loadPoints: readonly LoadPoint[]) =>
  loadPoints.filter((point) => trustOf(point) === "good" || trustOf(point) === "unstable");

/** Returns whether two cells send the same requests with as many clients. */
const isSameLoad = (a: LoadPoint, b: LoadPoint) =>
  a.environment === b.environment &&
  a.payload === b.payload &&
  a.imagesPerRequest === b.imagesPerRequest &&
  clientsOf(a) === clientsOf(b);

function queueDelay(record: BenchRecord): Body | undefined {
  const loadPoints = ofStudy(record, "queue-delay");
  if (loadPoints.length === 0) return undefined;
  const answer = seriesOf(usable(loadPoints)).flatMap(({ name, loadPoints: own }) => {
    const clients = own.map((point) => clientsOf(point) ?? 1);
    const [few, many] = [Math.min(...clients), Math.max(...clients)];
    const at = (count: number) =>
      own.filter((point) => clientsOf(point) === count).sort((a, b) => delayOf(a) - delayOf(b));
    const [least, most] = [at(many)[0], fastest(at(many))];
    if (least === undefined || most === undefined) return [];
    const best = delayOf(most);
    const low = delayOf(least);
    if (best === low) {
      return [
        `\`${name}\`: ${counted(many, "client")} get no more with a delay longer than ${low / 1_000} ms.`,
      ];
    }
    const alone = (delay: number) =>
      at(few).find((point) => delayOf(point) === delay)?.latencyMs?.p50 ?? Number.NaN;
    const cost = alone(best) - alone(low);
    const price =
      few === many || !(cost > 0)
        ? ""
        : `, and costs ${counted(few, "client")} ${formatMs(cost)} ms of latency`;
    return [
      `\`${name}\`: a delay of ${best / 1_000} ms gives ${counted(many, "client")} most, ${formatRatio(most.imagesPerSecond / least.imagesPerSecond)} the throughput of ${low / 1_000} ms${price}.`,
    ];
  });
  return {
    answer,
    figures: delayFigures(loadPoints),
    tables: [loadTable("Latency and throughput by queue delay", loadPoints)],
  };
}

function delayFigures(loadPoints: readonly LoadPoint[]): readonly Figure[] {
  const groups = seriesOf(usable(loadPoints)).flatMap(({ name, loadPoints: own }) =>
    [...new Set(own.map((point) => clientsOf(point) ?? 0))]
      .sort((a, b) => a - b)
      .map((clients) => ({
        name: `${seriesOf(loadPoints).length > 1 ? `${name}, ` : ""}${counted(clients, "client")}`,
        own: own
          .filter((point) => clientsOf(point) === clients)
          .sort((a, b) => delayOf(a) - delayOf(b)),
      })),
  );
  const x = {
    label: "queue delay, ms",
    kind: "steps",
    format: (us: number) => String(us / 1_000),
  } as const;
  const lines = (y: (point: LoadPoint) => number, unit: string) =>
    groups.map(({ name, own }) => ({
      name,
      points: own.map((point) => ({
        x: delayOf(point),
        y: y(point),
        title: `${name}, ${conditionsText(point.conditions)}: ${formatMs(y(point))} ${unit}`,
      })),
    }));
  return [
    ...plainFigure("Latency by queue delay", "p50, logarithmic.", {
      description: "Latency (p50) by queue delay, one line for each number of clients",
      x,
      y: { label: "p50, ms", kind: "log", format: String },
      lines: lines((point) => point.latencyMs?.p50 ?? 0, "ms"),
    }),
    ...plainFigure("Throughput by queue delay", undefined, {
      description: "Images a second by queue delay, one line for each number of clients",
      x,
      y: { label: "images/s", kind: "linear", format: formatCount },
      lines: lines((point) => point.imagesPerSecond, "images/s"),
    }),
  ];
}

const delayOf = ({ conditions }: LoadPoint) => conditions.queueDelayUs ?? 0;

/** The same backend, payload, batch and clients, once over HTTP and once over gRPC. */
export interface ProtocolPair {
  readonly name: string;
  readonly http: LoadPoint;
  readonly grpc: LoadPoint;
}

export function protocolPairs(loadPoints: readonly LoadPoint[]): readonly ProtocolPair[] {
  const plain = closedLoop(usable(loadPoints));
  return plain.flatMap((http) => {
    if (!http.endpoint.endsWith("-http") || http.endpoint === "embed-http") return [];
    const grpc = plain.find(
      (point) =>
        point.endpoint === http.endpoint.replace("-http", "-grpc") &&
        point.serialization === http.serialization &&
        isSameLoad(point, http),
    );
    const environment = environmentsOf(loadPoints).length > 1 ? `${http.environment} ` : "";
    const name = `${environment}${endpointOf(http).replace("-http", "")}`;
    return grpc === undefined ? [] : [{ name, http, grpc }];
  });
}

function protocol(record: BenchRecord, study: StudyId): Body | undefined {
  const loadPoints = record.loadPoints.filter(
    (point) => point.study === study || (isPlain(point) && point.study === undefined),
  );
  const pairs = protocolPairs(loadPoints);
  if (pairs.length === 0) return undefined;
  const rate = ({ http, grpc }: ProtocolPair) => grpc.imagesPerSecond / http.imagesPerSecond;
  const better = pairs.filter((pair) => rate(pair) > 1);
  const least = Math.min(...pairs.map(({ http }) => clientsOf(http) ?? 1));
  const byBatch = [...new Set(pairs.map(({ name }) => name))].map((name) => {
    const alone = pairs
      .filter((pair) => pair.name === name && clientsOf(pair.http) === least)
      .sort((a, b) => a.http.imagesPerRequest - b.http.imagesPerRequest);
    const [small, large] = [alone[0], alone.at(-1)];
    if (small === undefined || large === undefined) return "";
    const of = (pair: ProtocolPair) =>
      `${formatRatio(rate(pair))} with ${counted(pair.http.imagesPerRequest, "image")} a request`;
    return `\`${name}\`, ${counted(least, "client")}: gRPC does ${small === large ? of(small) : listed([of(small), of(large)])}, against HTTP.`;
  });
  return {
    answer: [
      ...byBatch.filter((line) => line !== ""),
      `gRPC does more images a second in ${better.length} of ${counted(pairs.length, "load")} that both were measured with.`,
    ],
    figures: protocolFigure(pairs),
    tables: [
      tableOf("gRPC against HTTP, the same load", pairs, [
        textField("backend", ({ name }) => name),
        numberField("batch", ({ http }) => http.imagesPerRequest, formatCount),
        numberField("clients", ({ http }) => clientsOf(http), formatCount),
        numberField("HTTP images/s", ({ http }) => http.imagesPerSecond, formatRate),
        numberField("gRPC images/s", ({ grpc }) => grpc.imagesPerSecond, formatRate),
        numberField("ratio", rate, formatRatio),
        numberField("HTTP p50 ms", ({ http }) => http.latencyMs?.p50, formatMs),
        numberField("gRPC p50 ms", ({ grpc }) => grpc.latencyMs?.p50, formatMs),
        numberField(
          "ratio",
          ({ http, grpc }) =>
            (grpc.latencyMs?.p50 ?? Number.NaN) / (http.latencyMs?.p50 ?? Number.NaN),
          formatRatio,
        ),
      ]),
    ],
  };
}

function serialization(record: BenchRecord): Body | undefined {
  const client = results(record, "serialization").flatMap(({ client: rows }) => rows);
  const loads = jsonPairs(record.loadPoints);
  if (client.length === 0 && loads.length === 0) return undefined;
  const batches = [...new Set(client.map(({ batch }) => batch))].sort((a, b) => a - b);
  const of = (batch: number, kind: "json" | "binary") =>
    client.find((row) => row.batch === batch && row.serialization === kind);
  const answer = batches.flatMap((batch) => {
    const [json, binary] = [of(batch, "json"), of(batch, "binary")];
    return json === undefined || binary === undefined
      ? []
      : [
          `The client alone needs ${formatMs(json.encodeMs)} ms to write ${counted(batch, "image")} as JSON and ${formatMs(binary.encodeMs)} ms as binary, and sends ${formatRatio(json.bytes / binary.bytes)} the bytes.`,
        ];
  });
  const served = loads.map(
    ({ json, binary }) =>
      `With a batch of ${json.imagesPerRequest}, a request as JSON takes ${formatRatio((json.latencyMs?.p50 ?? 0) / (binary.latencyMs?.p50 ?? 1))} as long.`,
  );
  return {
    answer: [...answer.slice(-1), ...served],
    tables: [
      tableOf("The client alone: writing a request, reading an answer, median", client, [
        textField("written as", (row) => row.serialization),
        numberField("batch", ({ batch }) => batch, formatCount),
        numberField("write ms", ({ encodeMs }) => encodeMs, formatMs),
        numberField("read ms", ({ decodeMs }) => decodeMs, formatMs),
        numberField("request", ({ bytes }) => bytes, formatBytes),
      ]),
      loadTable(
        "Requests as JSON and as binary tensors",
        loads.flatMap(({ json, binary }) => [json, binary]),
      ),
    ].filter(({ rows }) => rows.length > 0),
    notes: [
      "Bodies are written before a load begins, so the figures of a load are those of the server and the way there: what the client needs to write them comes on top.",
    ],
  };
}

function jsonPairs(
  loadPoints: readonly LoadPoint[],
): readonly { readonly json: LoadPoint; readonly binary: LoadPoint }[] {
  const plain = closedLoop(usable(loadPoints));
  return plain.flatMap((json) => {
    if (json.serialization !== "json" || json.payload !== "fp32") return [];
    const binary = plain.find(
      (point) =>
        point.endpoint === json.endpoint &&
        point.serialization === "binary" &&
        isSameLoad(point, json),
    );
    return binary === undefined ? [] : [{ json, binary }];
  });
}

/** Cells of one emulated link. */
export interface LinkGroup {
  readonly label: string;
  readonly cells: readonly { readonly name: string; readonly point: LoadPoint }[];
}

export function linkGroups(record: BenchRecord): readonly LinkGroup[] {
  const groups = new Map<string, { name: string; point: LoadPoint }[]>();
  for (const { name, loadPoints } of seriesOf(ofStudy(record, "link"))) {
    for (const point of loadPoints) {
      const batch = point.imagesPerRequest === 1 ? "" : ` b${point.imagesPerRequest}`;
      const label = conditionsText(point.conditions) || "no link between";
      groups.set(label, [...(groups.get(label) ?? []), { name: `${name}${batch}`, point }]);
    }
  }
  return [...groups].map(([label, cells]) => ({ label, cells }));
}

function link(record: BenchRecord): Body | undefined {
  const groups = linkGroups(record);
  if (groups.length === 0) return undefined;
  return {
    answer: groups.flatMap(({ label, cells }) => {
      const ranked = cells
        .filter(({ point }) => usable([point]).length > 0)
        .sort((a, b) => (a.point.latencyMs?.p50 ?? 0) - (b.point.latencyMs?.p50 ?? 0));
      const [best, worst] = [ranked[0], ranked.at(-1)];
      return best === undefined || worst === undefined || best === worst
        ? []
        : [
            `${label}: \`${best.name}\` answers in ${formatMs(best.point.latencyMs?.p50 ?? 0)} ms, \`${worst.name}\` in ${formatMs(worst.point.latencyMs?.p50 ?? 0)} ms (${formatBytes(worst.point.requestBytes)} a request).`,
          ];
    }),
    figures: barFigure(
      "Latency through a link",
      "p50, ms.",
      groups.flatMap(({ label, cells }) =>
        cells.map(({ name, point }) => ({
          group: label,
          label: name,
          value: `${formatMs(point.latencyMs?.p50 ?? 0)} ms`,
          title: `${name}, ${label}: p50 ${formatMs(point.latencyMs?.p50 ?? 0)} ms, ${formatBytes(point.requestBytes)} a request`,
          segments: [
            { colour: endpointStyle(endpointOf(point)).colour, value: point.latencyMs?.p50 ?? 0 },
          ],
        })),
      ),
      "p50, ms",
    ),
    tables: [loadTable("Latency by link and payload", ofStudy(record, "link"))],
    notes: [
      "The link is a proxy on this machine that lets through so many bits a second and holds back each byte for half of the round trip, in both directions. Loss and congestion are not emulated.",
    ],
  };
}

function operators(record: BenchRecord): Body | undefined {
  const found = results(record, "operators");
  if (found.length === 0) return undefined;
  return {
    answer: found.map((study) => {
      const top = [...study.operators].sort((a, b) => b.share - a.share).slice(0, 3);
      const shares = top.map(({ operator, share }) => `${operator} ${formatPercent(share)}`);
      const fallbacks =
        study.cpuFallbacks === 0
          ? "No node fell back to the CPU."
          : `${counted(study.cpuFallbacks, "node")} of ${formatCount(study.nodes)} fell back to the CPU.`;
      return `\`${study.service}\`, batch ${study.batch}: ${listed(shares)} of the compute. ${fallbacks}`;
    }),
    figures: found.flatMap((study) =>
      barFigure(
        `Share of the compute by operator${found.length > 1 ? `, ${study.service}, batch ${study.batch}` : ""}`,
        undefined,
        [...study.operators]
          .sort((a, b) => b.share - a.share)
          .slice(0, drawnOperators)
          .map((row) => ({
            label: row.operator,
            value: formatPercent(row.share),
            title: `${row.operator}, ${counted(row.nodes, "node")} on ${row.provider}: ${formatPercent(row.share)}`,
            segments: [
              {
                colour: onCpu(row) && study.cpuFallbacks > 0 ? "queue" : "infer",
                value: row.share * 100,
              },
            ],
          })),
        "% of the compute",
        study.cpuFallbacks > 0
          ? [
              boxSwatch("on the provider that was asked for", "infer"),
              boxSwatch("on the CPU instead", "queue"),
            ]
          : [],
      ),
    ),
    tables: found.map((study) =>
      tableOf(
        `Operators of ${study.model} in ${study.service} of ${study.environment}, batch ${study.batch}, mean of ${counted(study.runs, "run")}`,
        [...study.operators].sort((a, b) => b.share - a.share),
        [
          textField("operator", ({ operator }) => operator),
          textField("runs on", ({ provider }) => provider.replace("ExecutionProvider", "")),
          numberField("nodes", ({ nodes }) => nodes, formatCount),
          numberField(
            "ms a run",
            ({ msPerRun }) => msPerRun,
            (value) => value.toPrecision(3),
          ),
          numberField("share", ({ share }) => share, formatPercent),
        ],
      ),
    ),
    notes: [
      "From ONNX Runtime's own profile: the share of the time that was spent in operators, not of the wall clock.",
    ],
  };
}

const drawnOperators = 10;

const onCpu = ({ provider }: { readonly provider: string }) => provider.startsWith("CPU");

const mebibytes = (value: number) =>
  value >= 1_024 ? `${(value / 1_024).toFixed(2)} GiB` : `${value.toFixed(0)} MiB`;

function memory(record: BenchRecord): Body | undefined {
  const found = results(record, "memory").flatMap(({ environment, services }) =>
    services.map((service) => ({ environment, ...service })),
  );
  if (found.length === 0) return undefined;
  const places = environmentFields(found);
  const sum = (pick: (row: (typeof found)[number]) => number | undefined) =>
    found.reduce((total, row) => total + (pick(row) ?? 0), 0);
  const [resident, gpu] = [
    sum((row) => row.residentUnderLoadMiB ?? row.residentMiB),
    sum((row) => row.gpuMemoryUnderLoadMiB ?? row.gpuMemoryMiB),
  ];
  const parts = [
    ...(resident > 0 ? [`${mebibytes(resident)} of memory`] : []),
    ...(gpu > 0 ? [`${mebibytes(gpu)} of the GPU's`] : []),
  ];
  return {
    answer:
      parts.length === 0
        ? []
        : [`Under load, ${counted(found.length, "service")} hold ${listed(parts)} together.`],
    figures: barFigure(
      "Memory of each service",
      "MiB, when ready and what a load adds.",
      (
        [
          ["Resident memory", "residentMiB", "residentUnderLoadMiB"],
          ["GPU memory", "gpuMemoryMiB", "gpuMemoryUnderLoadMiB"],
        ] as const
      ).flatMap(([group, ready, loaded]) =>
        found.flatMap((row) => {
          const [before, after] = [row[ready], row[loaded]];
          const most = Math.max(before ?? 0, after ?? 0);
          if (most === 0) return [];
          return [
            {
              group,
              label: `${places.length > 0 ? `${row.environment} ` : ""}${row.service}`,
              value: mebibytes(most),
              title: `${row.service}: ${mebibytes(before ?? most)} when ready, ${mebibytes(most)} under load`,
              segments: [
                { colour: "infer", value: before ?? most },
                { colour: "queue", value: most - (before ?? most) },
              ],
            },
          ];
        }),
      ),
      "MiB",
      [boxSwatch("when ready", "infer"), boxSwatch("more under load", "queue")],
    ),
    tables: [
      tableOf("Memory of each service", found, [
        ...places,
        textField("service", ({ service }) => service),
        numberField("resident, ready", (row) => row.residentMiB, mebibytes),
        numberField("under load", (row) => row.residentUnderLoadMiB, mebibytes),
        numberField("GPU, ready", (row) => row.gpuMemoryMiB, mebibytes),
        numberField("GPU, under load", (row) => row.gpuMemoryUnderLoadMiB, mebibytes),
      ]),
    ],
  };
}

/** Throughput by GPUs against one, at the most clients for each GPU that all were measured with. */
export interface ScalingLine extends Pick<Series, "name"> {
  readonly points: readonly {
    readonly gpus: number;
    readonly point: LoadPoint;
    readonly speedup: number;
    readonly efficiency: number;
  }[];
}

export function scalingLines(record: BenchRecord): readonly ScalingLine[] {
  return seriesOf(ofStudy(record, "scaling")).flatMap(({ name, loadPoints }) => {
    const perGpu = new Map<string, Map<number, LoadPoint>>();
    for (const point of usable(loadPoints)) {
      const gpus = point.conditions.gpus ?? 1;
      const load = JSON.stringify([point.imagesPerRequest, (clientsOf(point) ?? 0) / gpus]);
      perGpu.set(load, (perGpu.get(load) ?? new Map<number, LoadPoint>()).set(gpus, point));
    }
    const [widest] = [...perGpu.values()]
      .filter((group) => group.has(1))
      .sort(
        (a, b) =>
          b.size - a.size || (b.get(1)?.imagesPerSecond ?? 0) - (a.get(1)?.imagesPerSecond ?? 0),
      );
    const one = widest?.get(1)?.imagesPerSecond;
    if (widest === undefined || one === undefined || widest.size < 2) return [];
    const points = [...widest]
      .sort(([a], [b]) => a - b)
      .map(([gpus, point]) => ({
        gpus,
        point,
        speedup: point.imagesPerSecond / one,
        efficiency: point.imagesPerSecond / (gpus * one),
      }));
    return [{ name, points }];
  });
}

function scaling(record: BenchRecord): Body | undefined {
  const loadPoints = ofStudy(record, "scaling");
  if (loadPoints.length === 0) return undefined;
  const lines = scalingLines(record);
  return {
    answer: lines.flatMap(({ name, points }) => {
      const last = points.at(-1);
      return last === undefined
        ? []
        : [
            `\`${name}\`: ${counted(last.gpus, "GPU")} do ${formatRatio(last.speedup)} of one, an efficiency of ${formatPercent(last.efficiency)}.`,
          ];
    }),
    figures: plainFigure("Throughput by GPUs", "Against N times one GPU.", {
      description: "Images a second by number of GPUs, and what N times one would be",
      x: { label: "GPUs", kind: "linear", format: formatCount },
      y: { label: "images/s", kind: "linear", format: formatCount },
      lines: lines.flatMap(({ name, points }) => {
        const one = points[0]?.point.imagesPerSecond ?? 0;
        return [
          {
            name,
            points: points.map(({ gpus, point, efficiency }) => ({
              x: gpus,
              y: point.imagesPerSecond,
              title: `${name}, ${counted(gpus, "GPU")}: ${formatRate(point.imagesPerSecond)} images/s, ${formatPercent(efficiency)}`,
            })),
          },
          {
            name: `N × one${lines.length > 1 ? `, ${name}` : ""}`,
            points: points.map(({ gpus }) => ({ x: gpus, y: gpus * one, title: `${gpus} × one` })),
          },
        ];
      }),
    }),
    tables: [
      tableOf(
        "Throughput by GPUs, at the same load for each GPU",
        lines.flatMap(({ name, points }) => points.map((point) => ({ name, ...point }))),
        [
          nameField,
          numberField("GPUs", ({ gpus }) => gpus, formatCount),
          loadField,
          numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
          numberField("against one", ({ speedup }) => speedup, formatRatio),
          numberField(
            "efficiency",
            ({ efficiency }) => efficiency,
            formatPercent,
            "Against N times one",
          ),
          numberField("p95 ms", ({ point }) => point.latencyMs?.p95, formatMs),
          trustField,
        ],
      ),
    ],
  };
}

/** The same load, once for each topology. */
export interface TopologyPair {
  readonly name: string;
  readonly clients: number;
  readonly group: LoadPoint;
  readonly perGpu: LoadPoint;
}

export function topologyPairs(record: BenchRecord): readonly TopologyPair[] {
  return seriesOf(usable(ofStudy(record, "topology"))).flatMap(({ name, loadPoints }) =>
    loadPoints.flatMap((group) => {
      if (group.conditions.topology !== "instance-group") return [];
      const perGpu = loadPoints.find(
        (point) => point.conditions.topology === "per-gpu" && isSameLoad(point, group),
      );
      return perGpu === undefined ? [] : [{ name, clients: clientsOf(group) ?? 0, group, perGpu }];
    }),
  );
}

function topology(record: BenchRecord): Body | undefined {
  const loadPoints = ofStudy(record, "topology");
  if (loadPoints.length === 0) return undefined;
  const [most] = [...topologyPairs(record)].sort(
    (a, b) =>
      Math.max(b.group.imagesPerSecond, b.perGpu.imagesPerSecond) -
      Math.max(a.group.imagesPerSecond, a.perGpu.imagesPerSecond),
  );
  const ratio = most === undefined ? 1 : most.perGpu.imagesPerSecond / most.group.imagesPerSecond;
  return {
    answer:
      most === undefined
        ? []
        : [
            `\`${most.name}\` with ${counted(most.clients, "client")}: one Triton for each GPU does ${formatRate(most.perGpu.imagesPerSecond)} images/s, one over all ${formatRate(most.group.imagesPerSecond)}: ${formatRatio(ratio)}.`,
          ],
    figures: barFigure(
      "Throughput by topology",
      "Images/s.",
      topologyPairs(record).flatMap(({ name, clients, group, perGpu }) =>
        (
          [
            ["one over all GPUs", group, "queue"],
            ["one for each GPU", perGpu, "infer"],
          ] as const
        ).map(([label, point, colour]) => ({
          group: `${name}, ${counted(clients, "client")}`,
          label,
          value: `${formatRate(point.imagesPerSecond)} /s`,
          title: `${name}, ${counted(clients, "client")}, ${label}: ${formatRate(point.imagesPerSecond)} images/s`,
          segments: [{ colour, value: point.imagesPerSecond }],
        })),
      ),
      "images/s",
    ),
    tables: [loadTable("Loads by topology", loadPoints)],
  };
}
