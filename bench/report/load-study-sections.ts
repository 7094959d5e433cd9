import { type Figure, numberField, tableOf, textField } from "../../report/document/document.ts";
import {
  counted,
  formatBytes,
  formatCount,
  formatMs,
  formatRatio,
} from "../../report/document/number-format.ts";
import { endpointStyle } from "../../report/plots/plot-styles.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { barFigure, indexedLineFigure } from "./figure-parts.ts";
import {
  clientsOf,
  closedLoop,
  conditionsText,
  endpointOf,
  fastest,
  loadPointsOfStudy,
  ratioText,
  seriesOf,
} from "./load-points.ts";
import {
  isSameLoad,
  loadTable,
  type StudyBody,
  studyResults,
  usableLoadPoints,
} from "./study-section.ts";

export function queueDelay(record: BenchRecord): StudyBody | undefined {
  const loadPoints = loadPointsOfStudy(record, "queue-delay");
  if (loadPoints.length === 0) return undefined;
  const answer = seriesOf(usableLoadPoints(loadPoints)).flatMap(({ name, loadPoints: own }) => {
    const clients = own.map((point) => clientsOf(point) ?? 1);
    const [few, many] = [Math.min(...clients), Math.max(...clients)];
    const at = (count: number) =>
      own.filter((point) => clientsOf(point) === count).sort((a, b) => delayOf(a) - delayOf(b));
    const [shortest, best] = [at(many)[0], fastest(at(many))];
    if (shortest === undefined || best === undefined) return [];
    const bestDelay = delayOf(best);
    const minDelay = delayOf(shortest);
    if (bestDelay === minDelay) {
      return [
        `\`${name}\`: with ${counted(many, "client")}, a delay above ${minDelay / 1_000} ms does not increase the throughput.`,
      ];
    }
    const alone = (delay: number) =>
      at(few).find((point) => delayOf(point) === delay)?.latencyMs?.p50 ?? Number.NaN;
    const cost = alone(bestDelay) - alone(minDelay);
    const price =
      few === many || !(cost > 0)
        ? ""
        : `, and adds ${formatMs(cost)} ms of latency with ${counted(few, "client")}`;
    return [
      `\`${name}\`: with ${counted(many, "client")}, a delay of ${bestDelay / 1_000} ms has the highest throughput, ${ratioText(best.imagesPerSecond / shortest.imagesPerSecond, best, shortest)} that of ${minDelay / 1_000} ms${price}.`,
    ];
  });
  return {
    answer,
    figures: delayFigures(loadPoints),
    tables: [loadTable("Latency and throughput by queue delay", loadPoints)],
  };
}

function delayFigures(loadPoints: readonly LoadPoint[]): readonly Figure[] {
  const groups = seriesOf(usableLoadPoints(loadPoints)).flatMap(({ name, loadPoints: own }) =>
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
    ...indexedLineFigure("Latency by queue delay", "p50, logarithmic.", {
      description: "Latency (p50) by queue delay, one line for each number of clients",
      x,
      y: { label: "p50, ms", kind: "log", format: String },
      lines: lines((point) => point.latencyMs?.p50 ?? 0, "ms"),
    }),
    ...indexedLineFigure("Throughput by queue delay", undefined, {
      description: "Images per second by queue delay, one line for each number of clients",
      x,
      y: { label: "images/s", kind: "linear", format: formatCount },
      lines: lines((point) => point.imagesPerSecond, "images/s"),
    }),
  ];
}

const delayOf = ({ conditions }: LoadPoint) => conditions.queueDelayUs ?? 0;

export function serialization(record: BenchRecord): StudyBody | undefined {
  const client = studyResults(record, "serialization").flatMap(({ client: rows }) => rows);
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
          `A client needs ${formatMs(json.encodeMs)} ms to encode ${counted(batch, "image")} as JSON and ${formatMs(binary.encodeMs)} ms as binary tensors; JSON is ${formatRatio(json.bytes / binary.bytes)} the size.`,
        ];
  });
  const served = loads.map(
    ({ json, binary }) =>
      `With ${counted(json.imagesPerRequest, "image")} per request, a JSON request takes ${ratioText((json.latencyMs?.p50 ?? 0) / (binary.latencyMs?.p50 ?? 1), json, binary)} as long as a binary one.`,
  );
  return {
    answer: [...answer.slice(-1), ...served],
    tables: [
      tableOf("Client time to encode a request and decode a response, median", client, [
        textField("encoding", (row) => row.serialization),
        numberField("batch", ({ batch }) => batch, formatCount),
        numberField("encode ms", ({ encodeMs }) => encodeMs, formatMs),
        numberField("decode ms", ({ decodeMs }) => decodeMs, formatMs),
        numberField("request", ({ bytes }) => bytes, formatBytes),
      ]),
      loadTable(
        "Requests with JSON and binary tensors",
        loads.flatMap(({ json, binary }) => [json, binary]),
      ),
    ].filter(({ rows }) => rows.length > 0),
    notes: [
      "Load points exclude the encoding time of the client, because requests are encoded before the load starts.",
    ],
  };
}

function jsonPairs(
  loadPoints: readonly LoadPoint[],
): readonly { readonly json: LoadPoint; readonly binary: LoadPoint }[] {
  const plain = closedLoop(usableLoadPoints(loadPoints));
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

interface LinkGroup {
  readonly label: string;
  readonly rows: readonly { readonly name: string; readonly point: LoadPoint }[];
}

function linkGroups(record: BenchRecord): readonly LinkGroup[] {
  const groups = new Map<string, { name: string; point: LoadPoint }[]>();
  for (const { name, loadPoints } of seriesOf(loadPointsOfStudy(record, "link"))) {
    for (const point of loadPoints) {
      const batch = point.imagesPerRequest === 1 ? "" : ` b${point.imagesPerRequest}`;
      const label = conditionsText(point.conditions) || "no emulated link";
      groups.set(label, [...(groups.get(label) ?? []), { name: `${name}${batch}`, point }]);
    }
  }
  return [...groups].map(([label, rows]) => ({ label, rows }));
}

export function link(record: BenchRecord): StudyBody | undefined {
  const groups = linkGroups(record);
  if (groups.length === 0) return undefined;
  return {
    answer: groups.flatMap(({ label, rows }) => {
      const ranked = rows
        .filter(({ point }) => usableLoadPoints([point]).length > 0)
        .sort((a, b) => (a.point.latencyMs?.p50 ?? 0) - (b.point.latencyMs?.p50 ?? 0));
      const [best, worst] = [ranked[0], ranked.at(-1)];
      return best === undefined || worst === undefined || best === worst
        ? []
        : [
            `${label}: \`${best.name}\` has a p50 of ${formatMs(best.point.latencyMs?.p50 ?? 0)} ms, \`${worst.name}\` of ${formatMs(worst.point.latencyMs?.p50 ?? 0)} ms (${formatBytes(worst.point.requestBytes)} per request).`,
          ];
    }),
    figures: barFigure(
      "Latency by link",
      "p50, ms.",
      groups.flatMap(({ label, rows }) =>
        rows.map(({ name, point }) => ({
          group: label,
          label: name,
          value: `${formatMs(point.latencyMs?.p50 ?? 0)} ms`,
          title: `${name}, ${label}: p50 ${formatMs(point.latencyMs?.p50 ?? 0)} ms, ${formatBytes(point.requestBytes)} per request`,
          segments: [
            {
              colour: endpointStyle(endpointOf(point)).colour,
              value: point.latencyMs?.p50 ?? 0,
            },
          ],
        })),
      ),
      "p50, ms",
    ),
    tables: [loadTable("Latency by link and payload", loadPointsOfStudy(record, "link"))],
    notes: [
      "The link is emulated by a local proxy that limits the bandwidth and delays each byte by half of the round trip, in each direction. Packet loss and congestion are not emulated.",
    ],
  };
}
