import { hasEmbedApi } from "../../contract/environment.ts";
import { type DataTable, numberField, tableOf, textField } from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatMs,
  formatRate,
  formatRatio,
} from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { trustField } from "./load-point-table.ts";
import {
  channelsText,
  clientsOf,
  closedLoop,
  distinct,
  endpointNamer,
  endpointOf,
  isUnmodified,
  loadPointsOfStudy,
  ratioText,
} from "./load-points.ts";
import { isSameLoad, type StudyBody, usableLoadPoints } from "./study-section.ts";

/** Load points with the same backend, payload, batch size and clients over HTTP and gRPC. */
interface ProtocolPair {
  readonly name: string;
  readonly http: LoadPoint;
  readonly grpc: LoadPoint;
}

function protocolPairs(loadPoints: readonly LoadPoint[]): readonly ProtocolPair[] {
  const plain = closedLoop(usableLoadPoints(loadPoints));
  const nameOf = endpointNamer(loadPoints);
  return plain.flatMap((http) => {
    if (!http.endpoint.endsWith("-http") || hasEmbedApi(http.endpoint)) return [];
    const grpc = plain.find(
      (point) =>
        point.endpoint === http.endpoint.replace("-http", "-grpc") &&
        point.serialization === http.serialization &&
        isSameLoad(point, http),
    );
    const name = nameOf(http).replace(/-http(?=_|$)/, "");
    return grpc === undefined ? [] : [{ name, http, grpc }];
  });
}

export function protocol(record: BenchRecord): StudyBody | undefined {
  const loadPoints = record.loadPoints.filter(
    (point) => point.study === "protocol" || (isUnmodified(point) && point.study === undefined),
  );
  const pairs = protocolPairs(loadPoints);
  const rows = channelRows(record);
  if (pairs.length === 0 && rows.length === 0) return undefined;
  const rate = ({ http, grpc }: ProtocolPair) => grpc.imagesPerSecond / http.imagesPerSecond;
  const better = pairs.filter((pair) => rate(pair) > 1);
  const fewest = Math.min(...pairs.map(({ http }) => clientsOf(http) ?? 1));
  const byBatch = [...new Set(pairs.map(({ name }) => name))].map((name) => {
    const alone = pairs
      .filter((pair) => pair.name === name && clientsOf(pair.http) === fewest)
      .sort((a, b) => a.http.imagesPerRequest - b.http.imagesPerRequest);
    const [small, large] = [alone[0], alone.at(-1)];
    if (small === undefined || large === undefined) return "";
    const images = ({ http }: ProtocolPair) =>
      `${counted(http.imagesPerRequest, "image")} per request`;
    const more =
      small === large
        ? ""
        : ` and ${ratioText(rate(large), large.http, large.grpc)} with ${images(large)}`;
    return `\`${name}\`, ${counted(fewest, "client")}: gRPC reaches ${ratioText(rate(small), small.http, small.grpc)} the throughput of HTTP with ${images(small)}${more}.`;
  });
  return {
    answer: [
      ...channelAnswer(rows),
      ...byBatch.filter((line) => line !== ""),
      ...(pairs.length === 0
        ? []
        : [
            `gRPC has the higher throughput in ${better.length} of ${counted(pairs.length, "common load point")}.`,
          ]),
    ],
    tables: [
      tableOf("gRPC compared with HTTP at the same load", pairs, [
        textField("backend", ({ name }) => name),
        numberField("batch", ({ http }) => http.imagesPerRequest, formatCount),
        numberField("clients", ({ http }) => clientsOf(http), formatCount),
        numberField("HTTP images/s", ({ http }) => http.imagesPerSecond, formatRate),
        numberField("gRPC images/s", ({ grpc }) => grpc.imagesPerSecond, formatRate),
        numberField("images/s ratio", rate, formatRatio),
        numberField("HTTP p50 ms", ({ http }) => http.latencyMs?.p50, formatMs),
        numberField("gRPC p50 ms", ({ grpc }) => grpc.latencyMs?.p50, formatMs),
        numberField(
          "p50 ratio",
          ({ http, grpc }) =>
            (grpc.latencyMs?.p50 ?? Number.NaN) / (http.latencyMs?.p50 ?? Number.NaN),
          formatRatio,
        ),
      ]),
      channelTable(rows),
    ].filter((table) => table.rows.length > 0),
  };
}

/** Load point with shared channels, and the load point of HTTP with one connection per client at the same load. */
interface ChannelRow {
  readonly point: LoadPoint;
  readonly http: LoadPoint;
}

/** Returns the load points that were measured with several kinds of channels, each with its HTTP load point for comparison. */
function channelRows(record: BenchRecord): readonly ChannelRow[] {
  const all = distinct(usableLoadPoints(loadPointsOfStudy(record, "protocol")));
  const isLoadOf = (a: LoadPoint, b: LoadPoint) =>
    isSameLoad(a, b) && backendOf(a) === backendOf(b);
  const varied = all.filter(({ load }) => load.channels !== undefined);
  return all
    .filter((point) => varied.some((other) => isLoadOf(other, point)))
    .flatMap((point) => {
      const http = all.find(
        (other) =>
          isLoadOf(other, point) &&
          other.endpoint.endsWith("-http") &&
          other.load.channels === undefined,
      );
      return http === undefined ? [] : [{ point, http }];
    });
}

const backendOf = ({ endpoint }: LoadPoint) => endpoint.replace(/-(http|grpc)$/, "");

const rateOf = ({ point, http }: ChannelRow) => point.imagesPerSecond / http.imagesPerSecond;

const connectionsText = ({ load }: LoadPoint) =>
  load.channels === undefined ? "one per client" : channelsText(load.channels);

/** Sentence on a shared channel at the most clients. */
function channelAnswer(rows: readonly ChannelRow[]): readonly string[] {
  const shared = rows
    .filter(({ point }) => point.load.channels === "shared")
    .sort((a, b) => (clientsOf(b.point) ?? 0) - (clientsOf(a.point) ?? 0))[0];
  if (shared === undefined) return [];
  const { point, http } = shared;
  const own = rows.find(
    (row) =>
      row.http === http &&
      row.point.endpoint === point.endpoint &&
      row.point.load.channels === undefined,
  )?.point;
  const each =
    own === undefined
      ? ""
      : ` and ${formatRate(own.imagesPerSecond)} with a channel for each client`;
  return [
    `\`${endpointOf(point)}\`, ${counted(clientsOf(point) ?? 1, "client")}: one shared channel reaches ${formatRate(point.imagesPerSecond)} images/s, ${ratioText(rateOf(shared), point, http)} of HTTP with a connection for each client (${formatRate(http.imagesPerSecond)})${each}. A shared channel is one HTTP/2 connection: a server with a fixed flow-control window receives one window of it per round trip, and lost packets delay all of its requests.`,
  ];
}

function channelTable(rows: readonly ChannelRow[]): DataTable {
  return tableOf("Connections of the clients", rows, [
    textField("endpoint", ({ point }) => endpointOf(point)),
    textField("connections", ({ point }) => connectionsText(point)),
    numberField("batch", ({ point }) => point.imagesPerRequest, formatCount),
    numberField("clients", ({ point }) => clientsOf(point), formatCount),
    numberField("images/s", ({ point }) => point.imagesPerSecond, formatRate),
    numberField("of HTTP", rateOf, formatRatio),
    numberField("p50 ms", ({ point }) => point.latencyMs?.p50, formatMs),
    trustField,
  ]);
}
