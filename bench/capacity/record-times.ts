import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { mean } from "../../target/stats/statistics.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { solve } from "../stats/bisection.ts";
import type { Uncertainty } from "./intervals.ts";
import { type Demand, predict, type System } from "./model.ts";
import { largestBatch, type Payload } from "./scenario.ts";
import type { Backend, ComputeTime, ServiceTimes } from "./service-times.ts";

/** Calibration of the model with a record of `clipstack bench` or `sweep` instead of published figures. */
export interface RecordCalibration {
  readonly endpoints: readonly EndpointCalibration[];
  readonly rows: readonly RecordRow[];
  /** Parameters not determined by the load points, with the assumptions used instead; sentences. */
  readonly notes: readonly string[];
  /** Loads that neither calibrate nor are predicted, with the reason. */
  readonly excluded: readonly { readonly load: string; readonly reason: string }[];
}

/** Times of one endpoint of one service. */
export interface EndpointCalibration {
  readonly environment: string;
  readonly service: string;
  /** {@link benchEndpointName} */
  readonly endpoint: string;
  /** Backend; absent if the record does not state it for the embed API. */
  readonly backend?: Backend;
  readonly compute: ComputeTime;
  readonly decodeMsPerImage: number;
  readonly overheadMs: number;
  readonly overheadMsPerImage: number;
  readonly ingestMsPerImage: number;
}

export interface RecordRow {
  readonly loadPoint: string;
  readonly role: "calibrates" | "predicted";
  readonly imagesPerSecond: { readonly measured: number; readonly predicted: number };
  /** Mean latency. */
  readonly latencyMs: { readonly measured: number; readonly predicted: number };
  readonly throughputError: number;
  readonly latencyError: number;
}

/**
 * Derives the times of each endpoint from its loads with one client, and its ingest time from the highest throughput of
 * several clients. All other loads are predicted.
 */
export function calibrateRecord(record: BenchRecord): RecordCalibration {
  const excluded: { load: string; reason: string }[] = [];
  const loadPoints = record.loadPoints.filter((point) => {
    const reason = exclusionReason(point);
    if (reason !== undefined) excluded.push({ load: point.id, reason });
    return reason === undefined;
  });
  const groups = new Map<string, LoadPoint[]>();
  for (const point of loadPoints) {
    const key = JSON.stringify([point.environment, point.service, benchEndpointName(point)]);
    groups.set(key, [...(groups.get(key) ?? []), point]);
  }
  const endpoints: EndpointCalibration[] = [];
  const rows: RecordRow[] = [];
  const notes: string[] = [];
  for (const group of groups.values()) {
    const single = preferStable(
      group.filter((point) => clientsOf(point) === 1),
      ({ imagesPerRequest }) => imagesPerRequest,
    );
    const best = preferStable(
      group.filter((point) => clientsOf(point) > 1),
      () => "several clients",
    ).reduce<LoadPoint | undefined>(
      (a, b) => (a === undefined || b.imagesPerSecond > a.imagesPerSecond ? b : a),
      undefined,
    );
    const [first] = group;
    if (first === undefined) continue;
    if (single.length === 0) {
      const reason = `no valid load point of ${benchEndpointName(first)} with one client, which is required to calibrate it`;
      excluded.push(...group.map(({ id }) => ({ load: id, reason })));
      continue;
    }
    const calibrated = calibrateEndpoint(record, single, best);
    endpoints.push(calibrated);
    const note = batchingNote(single);
    if (note !== undefined)
      notes.push(`${calibrated.environment}, ${calibrated.endpoint}: ${note}`);
    for (const point of group) {
      const sets = point === best || single.includes(point);
      rows.push(rowOf(record, point, calibrated, sets ? "calibrates" : "predicted"));
    }
  }
  return { endpoints, rows, excluded, notes };
}

function exclusionReason(point: LoadPoint): string | undefined {
  if (point.endpoint === "pytorch-http") return "a baseline, whose times are not modelled";
  if (point.load.kind !== "closed loop") return "an open loop has no fixed number of clients";
  if (point.latencyMs === undefined) return "no request succeeded";
  if (point.invalid.length > 0) return "invalid";
  if (point.stability.verdict === "interrupted") return "interrupted";
  if (point.conditions.queueDelayUs !== undefined) return "modified queue delay";
  if (point.conditions.gpus !== undefined || point.conditions.topology !== undefined) {
    return "modified number of GPUs or topology";
  }
  return undefined;
}

const clientsOf = ({ load }: LoadPoint) => (load.kind === "closed loop" ? load.concurrency : 0);

const meanMs = ({ latencyMs }: LoadPoint) => latencyMs?.mean ?? Number.NaN;

/** Stable loads if there are any, otherwise all. */
function preferStable(
  loadPoints: readonly LoadPoint[],
  kindOf: (point: LoadPoint) => unknown,
): readonly LoadPoint[] {
  const isStable = ({ stability }: LoadPoint) => stability.verdict === "stable";
  const settled = new Set(loadPoints.filter(isStable).map(kindOf));
  return loadPoints.filter((point) => isStable(point) || !settled.has(kindOf(point)));
}

type Point = readonly [images: number, ms: number];

const computePoints = (loadPoints: readonly LoadPoint[]): readonly Point[] =>
  loadPoints.flatMap(({ imagesPerRequest, server }) =>
    server?.inferMs === undefined ? [] : [[imagesPerRequest, server.inferMs] as const],
  );

/** Reason why loads with one client do not determine the effect of larger batches. */
function batchingNote(single: readonly LoadPoint[]): string | undefined {
  const points = computePoints(single);
  if (points.length === 0) return undefined;
  const sizes = new Set(points.map(([images]) => images));
  if (sizes.size === 1) {
    return `one client sent only batch size ${[...sizes].join("")}; a batch is assumed to take as long as its images individually.`;
  }
  return slopeOf(points) > 0
    ? undefined
    : "larger batches took no longer, which is noise; each additional image is assumed to take the time per image of the largest batch.";
}

/**
 * Compute time by batch size. If the batch sizes yield no rising line, the first image takes the time per image of the
 * smallest batch, each additional one that of the largest.
 */
function computeOf(points: readonly Point[]): ComputeTime {
  if (points.length === 0) return { firstMs: 0, perImageMs: 0 };
  const slope = slopeOf(points);
  const firstMs =
    mean(points.map(([, ms]) => ms)) - slope * mean(points.map(([images]) => images - 1));
  if (slope > 0 && firstMs > 0) return { firstMs, perImageMs: slope };
  const sizes = points.map(([images]) => images);
  const each = (size: number) =>
    mean(points.filter(([images]) => images === size).map(([images, ms]) => ms / images));
  return { firstMs: each(Math.min(...sizes)), perImageMs: each(Math.max(...sizes)) };
}

/** Slope of a least-squares line; 0 if all points have the same x. */
function slopeOf(points: readonly Point[]): number {
  const x = mean(points.map(([value]) => value));
  const y = mean(points.map(([, value]) => value));
  const spread = points.reduce((sum, [value]) => sum + (value - x) ** 2, 0);
  return spread === 0 ? 0 : points.reduce((sum, [a, b]) => sum + (a - x) * (b - y), 0) / spread;
}

function calibrateEndpoint(
  record: BenchRecord,
  single: readonly LoadPoint[],
  best: LoadPoint | undefined,
): EndpointCalibration {
  const [point] = single as readonly [LoadPoint];
  const decodeMsPerImage = mean(
    single.map(({ server, imagesPerRequest }) => (server?.decodeMs ?? 0) / imagesPerRequest),
  );
  const compute = computeOf(computePoints(single));
  const rest = nonNegativeLine(
    single.map((load) => [
      load.imagesPerRequest,
      Math.max(
        0,
        meanMs(load) -
          (load.server?.inferMs ?? 0) -
          (decodeMsPerImage * load.imagesPerRequest) /
            Math.min(load.imagesPerRequest, record.subject.machine.cores),
      ),
    ]),
  );
  const common = {
    environment: point.environment,
    service: point.service,
    endpoint: benchEndpointName(point),
    backend: backendOf(record, point),
    compute,
    decodeMsPerImage,
  };
  // sequential ingest limits the maximum throughput of several clients; one client does not reveal it
  const split = (ms: number): EndpointCalibration => ({
    ...common,
    ingestMsPerImage: ms,
    overheadMsPerImage: Math.max(0, rest.slope - ms),
    overheadMs: Math.max(0, rest.at0 - Math.max(0, ms - rest.slope)),
  });
  if (best === undefined) return split(rest.slope);
  return split(
    solve(
      best.imagesPerSecond,
      [0, 1000 / best.imagesPerSecond],
      (ms) => predictLoadPoint(record, best, split(ms)).imagesPerSecond,
    ),
  );
}

function backendOf(
  record: BenchRecord,
  { environment, service, endpoint }: LoadPoint,
): Backend | undefined {
  if (endpoint !== "embed-http") return endpoint.startsWith("trt-") ? "tensorrt" : "onnxruntime";
  const backend = record.subject.environments
    .find(({ name }) => name === environment)
    ?.services.find(({ name }) => name === service)?.backend;
  return backend === "onnxruntime" || backend === "tensorrt" ? backend : undefined;
}

function rowOf(
  record: BenchRecord,
  point: LoadPoint,
  path: EndpointCalibration,
  role: RecordRow["role"],
): RecordRow {
  const predicted = predictLoadPoint(record, point, path);
  return {
    loadPoint: point.id,
    role,
    imagesPerSecond: { measured: point.imagesPerSecond, predicted: predicted.imagesPerSecond },
    latencyMs: { measured: meanMs(point), predicted: predicted.latencyMs },
    throughputError: predicted.imagesPerSecond / point.imagesPerSecond - 1,
    latencyError: predicted.latencyMs / meanMs(point) - 1,
  };
}

function predictLoadPoint(record: BenchRecord, point: LoadPoint, calibration: EndpointCalibration) {
  const { imagesPerRequest: images } = point;
  const demand: Demand = {
    concurrency: clientsOf(point),
    imagesPerRequest: images,
    bytesPerImage: point.requestBytes / images,
    responseBytesPerImage: point.responseBytes / images,
  };
  const system: System = {
    // client on the same host: negligible link
    link: { bandwidthMbps: 1e6, roundTripMs: 0, connections: "kept" },
    oneConnection: false,
    client: { betweenMs: 0, writeMsPerImage: 0 },
    ...(calibration.decodeMsPerImage > 0
      ? {
          decode: {
            msPerImage: calibration.decodeMsPerImage,
            workers: record.subject.machine.cores,
          },
        }
      : {}),
    overheadMs: calibration.overheadMs,
    overheadMsPerImage: calibration.overheadMsPerImage,
    ingestMsPerImage: calibration.ingestMsPerImage,
    compute: calibration.compute,
    maxBatch: largestBatch,
    instances: 1,
    gpus: record.subject.gpu?.count ?? 1,
    topology: "instance-group",
  };
  return predict(demand, system);
}

/** Endpoints used for predictions: one with binary float32 tensors per backend, and the embed API. */
function recordEndpoints({ endpoints }: Pick<RecordCalibration, "endpoints">) {
  const tensors = (backend: Backend) => {
    const name = backend === "tensorrt" ? "trt" : "onnx";
    return [`${name}-http`, `${name}-grpc`]
      .map((wanted) => endpoints.find(({ endpoint }) => endpoint === wanted))
      .find((path) => path !== undefined);
  };
  return { tensors, embed: endpoints.find(({ endpoint }) => endpoint === "embed-http") };
}

/**
 * Backends with times in the record for a payload format; the default first.
 *
 * @param upstreamBackend - Backend of an embed API if the record does not state it.
 */
export function recordBackends(
  calibration: Pick<RecordCalibration, "endpoints">,
  payload: Payload | undefined,
  upstreamBackend?: Backend,
): readonly Backend[] {
  const { tensors, embed } = recordEndpoints(calibration);
  const ofTensors = backends.filter((backend) => tensors(backend) !== undefined);
  const behind = embed === undefined ? undefined : (embed.backend ?? upstreamBackend);
  const ofEmbed = behind === undefined ? [] : [behind];
  if (payload === "jpeg" && embed !== undefined && behind === undefined) return [];
  if (payload === "jpeg") return [...new Set([...ofEmbed, ...ofTensors])];
  return payload === undefined ? [...new Set([...ofTensors, ...ofEmbed])] : ofTensors;
}

const backends = ["tensorrt", "onnxruntime"] as const satisfies readonly Backend[];

/**
 * Times from the record, and from published figures for other devices and unmeasured parameters. Times of one API are not
 * used for the other, except the compute time of the same backend behind the embed API.
 */
export function timesOfRecord(
  record: BenchRecord,
  calibration: Pick<RecordCalibration, "endpoints">,
  recordDevice: string,
  published: ServiceTimes,
): ServiceTimes {
  const { tensors, embed } = recordEndpoints(calibration);
  const any = tensors("onnxruntime") ?? tensors("tensorrt");
  const ofApi = (own: (backend: Backend) => EndpointCalibration | undefined) => ({
    compute: (device: string, backend: Backend) => {
      if (device !== recordDevice) return published.compute(device, backend);
      const path = own(backend);
      if (path === undefined) throw new Error(`the record has no ${backend} for this payload`);
      return path.compute;
    },
    measured: (device: string, backend: Backend) =>
      device === recordDevice ? own(backend) !== undefined : published.measured(device, backend),
    supports: (device: string, backend: Backend) =>
      device !== recordDevice || own(backend) !== undefined,
  });
  const serverTimes = (path: EndpointCalibration | undefined) =>
    path === undefined
      ? {}
      : {
          overheadMs: path.overheadMs,
          overheadMsPerImage: path.overheadMsPerImage,
          ingestMsPerImage: path.ingestMsPerImage,
        };
  return {
    ...published,
    ...(embed === undefined || embed.decodeMsPerImage === 0
      ? {}
      : {
          decodeMsPerImage: embed.decodeMsPerImage,
          decodeWorkers: record.subject.machine.cores,
          gatewayMsPerImage: 0,
        }),
    ...serverTimes(any),
    ...(any === undefined ? {} : { ingestMeasured: true }),
    ...ofApi(tensors),
    embed: {
      ...ofApi((backend) =>
        (embed?.backend ?? backend) === backend ? (embed ?? tensors(backend)) : tensors(backend),
      ),
      ...serverTimes(embed ?? any),
    },
  };
}

/** Least-squares line with non-negative coefficients. */
function nonNegativeLine(points: readonly Point[]): {
  readonly at0: number;
  readonly slope: number;
} {
  const x = mean(points.map(([value]) => value));
  const y = mean(points.map(([, value]) => value));
  const slope = slopeOf(points);
  if (slope <= 0) return { at0: y, slope: 0 };
  if (y - slope * x >= 0) return { at0: y - slope * x, slope };
  const squares = points.reduce((sum, [value]) => sum + value ** 2, 0);
  return { at0: 0, slope: points.reduce((sum, [a, b]) => sum + a * b, 0) / squares };
}

/** Uncertainty of predictions from a record: the errors at its predicted load points; `undefined` without any. */
export function recordUncertainty(
  { rows }: Pick<RecordCalibration, "rows">,
  times: ServiceTimes,
): Uncertainty | undefined {
  const predicted = rows.filter(({ role }) => role === "predicted");
  if (predicted.length === 0) return undefined;
  return {
    times: [times],
    factors: {
      throughput: [predicted.map(({ throughputError }) => 1 / (1 + throughputError))],
      latency: [predicted.map(({ latencyError }) => 1 / (1 + latencyError))],
    },
  };
}
