import { readEnvironment } from "../../artefact/artefact.ts";
import { capacityTable } from "../../bench/capacity/capacity-table.ts";
import type { Uncertainty } from "../../bench/capacity/intervals.ts";
import type { Topology } from "../../bench/capacity/model.ts";
import {
  type RecordCalibration,
  recordBackends,
  recordUncertainty,
  timesOfRecord,
} from "../../bench/capacity/record-times.ts";
import {
  type Device,
  type Payload,
  payloadNames,
  type ServedPayloads,
} from "../../bench/capacity/scenario.ts";
import {
  type Backend,
  publishedTimes,
  type ServiceTimes,
} from "../../bench/capacity/service-times.ts";
import { type BenchRecord, readBenchRecord } from "../../bench/record/bench-record.ts";
import type { Service } from "../../contract/environment.ts";
import { type GpuSpec, gpuNames, gpuSpec, gpuSpecOf } from "../../contract/gpus.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import { namedModel } from "../model/named-model.ts";
import { environmentFile } from "../shared/artefact.ts";
import type { CapacityArguments } from "./capacity-options.ts";
import { backendNames, recordErrorLines } from "./capacity-text.ts";

/** Hardware and backend of an environment or the options. */
export interface RequestedHardware {
  readonly model?: ModelSpec;
  readonly gpu?: GpuSpec & { readonly name: string };
  readonly gpus?: number;
  readonly topology?: Topology;
  readonly backend?: Backend;
  /** Formats of the environment; absent without one. */
  readonly served?: ServedPayloads;
  /** Whether the embed server runs the model itself, so that no Triton server ingests its tensors. */
  readonly embedComputes?: boolean;
  /** US dollars per hour for one GPU, in place of the price of `gpu`. */
  readonly price?: number;
}

/** Hardware set by options; properties without an option are absent. */
export function hardwareFromOptions({
  model,
  gpu,
  gpus,
  topology,
  backend,
  price,
}: CapacityArguments): RequestedHardware {
  const all: RequestedHardware = {
    model: model === undefined ? undefined : modelNamed(model),
    gpu: gpu === undefined ? undefined : gpuSpec(gpu),
    gpus,
    topology,
    backend,
    price,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

/**
 * Reads the hardware of a synthesized environment.
 *
 * @throws {UserError} if it has no GPU of the catalogue.
 */
export function hardwareOfEnvironment(name: string): RequestedHardware {
  const { file, displayPath } = environmentFile(name);
  const { gpu, namespace, services, models } = readEnvironment(file, displayPath);
  if (gpu === undefined) {
    throw new UserError(`${name} has no GPU: set --gpu, or calibrate with --record`);
  }
  const tritons = services.filter(({ kind }) => kind === "triton");
  if (gpu.share !== undefined) {
    throw new UserError(
      `${name} has parts of GPUs (${gpu.share}), whose throughput is not in the catalogue: calibrate with --record`,
    );
  }
  const spec = gpuSpecOf(gpu);
  if (spec === undefined) {
    throw new UserError(`${name}: gpu must be one of ${gpuNames.join(", ")}, got '${gpu.name}'`);
  }
  // each pod has its own Triton
  const inCluster = namespace !== undefined;
  const perGpu =
    gpu.count > 1 && (inCluster || tritons.filter(({ name }) => /-\d+$/.test(name)).length > 1);
  return {
    model: models.find(({ towers }) => towers.image !== undefined),
    gpu: { ...spec, price: { usdPerHour: gpu.usdPerHour / gpu.count, date: gpu.priceDate } },
    gpus: gpu.count,
    topology: perGpu ? "per-gpu" : "instance-group",
    served: servedPayloads(services),
    embedComputes: services.some(
      ({ kind, backend }) => kind === "embed" && backend === "onnxruntime",
    ),
  };
}

/** Formats that the services of an environment accept, JPEG first, with the backend that computes them. */
function servedPayloads(services: readonly Service[]): ServedPayloads {
  const backendOf = (some: readonly Service[]) =>
    some.some(({ backend }) => backend === "tensorrt") ? "tensorrt" : "onnxruntime";
  const tritons = services.filter(({ kind }) => kind === "triton");
  const embed = services.find(({ kind }) => kind === "embed");
  const of = (...kinds: Service["modelKind"][]) =>
    tritons.filter(({ modelKind }) => kinds.includes(modelKind));
  const [floats, pixels] = [of("fp32", "trt"), of("u8")];
  return {
    // an embed server without Triton servers runs the model itself
    ...(embed && {
      jpeg: embed.backend === "triton" ? backendOf(of(embed.modelKind)) : "onnxruntime",
    }),
    ...(floats.length > 0 && { fp32: backendOf(floats), json: backendOf(floats) }),
    ...(pixels.length > 0 && { uint8: backendOf(pixels) }),
  };
}

/** Formats that are computed by `backend`, if it is set. */
function withBackends(served: ServedPayloads, backend: Backend | undefined): ServedPayloads {
  return backend === undefined
    ? served
    : Object.fromEntries(Object.keys(served).map((payload) => [payload, backend]));
}

/**
 * Payload format of a prediction.
 *
 * @throws {UserError} if the environment does not serve the requested one.
 */
export function payloadOf({ served }: RequestedHardware, payload: Payload | undefined): Payload {
  const known = served === undefined ? payloadNames : payloadNames.filter((name) => name in served);
  if (payload === undefined) return known[0] ?? "jpeg";
  if (known.includes(payload)) return payload;
  throw new UserError(
    `--payload must be one of ${known.join(", ")}, which the environment serves, got '${payload}'`,
  );
}

/** Model of `--model`, which must have an image tower. */
function modelNamed(name: string): ModelSpec {
  const spec = namedModel(name);
  if (spec.towers.image !== undefined) return spec;
  throw new UserError(`--model must have an image tower, got '${name}'`);
}

function recordDevice(record: BenchRecord): string {
  const { gpu, machine } = record.subject;
  return gpu?.name ?? machine.cpu;
}

/** Service times with their uncertainty and their sources as sentences. */
export interface SourcedTimes {
  readonly times: ServiceTimes;
  /** Absent if no load point of a record was predicted. */
  readonly uncertainty?: Uncertainty;
  readonly sources: readonly string[];
}

/** Service times from published figures or a record, overridden by options, and their sources as sentences. */
export function serviceTimesOf(
  calibrated: CalibratedRecord | undefined,
  hardware: RequestedHardware,
  args: CapacityArguments,
): SourcedTimes {
  const timesFrom = (parameters = capacityTable.parameters) =>
    publishedTimes(args.jpegKb * 1000, hardware.model, hardware.gpu, parameters);
  const { decodeMs, decodeWorkers, ingestMs } = args;
  const overrides = Object.fromEntries(
    Object.entries({
      decodeMsPerImage: decodeMs,
      decodeWorkers,
      ingestMsPerImage: ingestMs,
    }).filter(([, value]) => value !== undefined),
  );
  if (calibrated === undefined) {
    const withOptions = (times: ServiceTimes): ServiceTimes => ({
      ...times,
      ...(hardware.embedComputes && { embed: { ingestMsPerImage: 0 } }),
      ...overrides,
    });
    const { roundedParameters, errorFactors, summary } = capacityTable;
    return {
      times: withOptions(timesFrom()),
      uncertainty: {
        times: roundedParameters.map((parameters) => withOptions(timesFrom(parameters))),
        factors: errorFactors,
      },
      sources: [
        `Calibrated with published figures. ${summary} (docs/capacity.md)`,
        "P10-P90: from the rounding of the sources and the errors in settings left out of the calibration.",
      ],
    };
  }
  const { record, calibration } = calibrated;
  const times = timesOfRecord(record, calibration, recordDevice(record), timesFrom());
  const weights = record.subject.model.weights === "random" ? ", random weights" : "";
  const where = record.subject.target === "simulation" ? "local processes, " : "";
  const compute =
    hardware.gpu === undefined || hardware.gpu.name === recordDevice(record)
      ? ""
      : " The compute time of --gpu comes from published figures.";
  const source = `Calibrated with ${args.record} (${where}${recordDevice(record)}, model ${record.subject.model.name}${weights}).${compute}`;
  const embed =
    ingestMs === undefined ? times.embed : { ...times.embed, ingestMsPerImage: ingestMs };
  const all = { ...times, ...overrides, embed };
  return {
    times: all,
    uncertainty: recordUncertainty(calibration, all),
    sources: [source, ...recordErrorLines(calibration), ...calibration.notes],
  };
}

/** Record with the service times derived from it. */
export interface CalibratedRecord {
  readonly record: BenchRecord;
  readonly calibration: RecordCalibration;
}

/** Returns `--record`, restricted to `--environment` if given. */
export function readRecord({
  record: file,
  environment,
  check,
}: CapacityArguments): BenchRecord | undefined {
  if (file === undefined) {
    if (environment === undefined) return undefined;
    throw new UserError("--environment requires --record");
  }
  const record = readBenchRecord(file);
  const names = [...new Set(record.loadPoints.map((point) => point.environment))];
  if (environment === undefined) {
    if (names.length < 2 || check) return record;
    throw new UserError(
      `${file} has several environments, ${names.join(", ")}: select one with --environment`,
    );
  }
  if (!names.includes(environment)) {
    throw new UserError(
      `${file}: --environment must be ${names.join(" or ")}, got '${environment}'`,
    );
  }
  return {
    ...record,
    loadPoints: record.loadPoints.filter((point) => point.environment === environment),
  };
}

/**
 * Adds the backend of the record unless one is requested.
 *
 * @throws {UserError} if the record has no load point that calibrates the requested hardware, backend or payload.
 */
export function withBackend(
  hardware: RequestedHardware,
  args: CapacityArguments,
  calibrated: CalibratedRecord | undefined,
): RequestedHardware {
  if (calibrated === undefined) return hardware;
  const { record, calibration } = calibrated;
  if (calibration.endpoints.length === 0) {
    throw new UserError(
      `${args.record}: no endpoint has a valid load point with one client, which calibration requires`,
    );
  }
  const ofRecord = hardware.gpu === undefined || hardware.gpu.name === recordDevice(record);
  if (hardware.gpu === undefined && record.subject.gpu === undefined && (hardware.gpus ?? 1) > 1) {
    throw new UserError(
      `${args.record} was measured on a CPU (${recordDevice(record)}) and cannot predict ${hardware.gpus} GPUs: set --gpu`,
    );
  }
  // a job evaluates every payload format of the record
  const payload = args.payload ?? (args.images === undefined ? "jpeg" : undefined);
  const requested = hardware.backend ?? (payload && hardware.served?.[payload]);
  const known = recordBackends(calibration, payload, requested);
  const backend = requested ?? known[0];
  if (!ofRecord || (backend !== undefined && known.includes(backend)))
    return { ...hardware, backend };
  if (backend === undefined && payload !== "uint8" && payload !== "fp32" && payload !== "json") {
    throw new UserError(`${args.record} does not name the backend of its embed API: set --backend`);
  }
  const format = payload === undefined ? "" : ` for --payload ${payload}`;
  const which = backend === undefined ? "" : ` of ${backendNames[backend]}`;
  const measuredEndpoints = calibration.endpoints.map(({ endpoint }) => endpoint).join(", ");
  throw new UserError(
    `${args.record} has no load point with one client${which}${format}, only of ${measuredEndpoints}`,
  );
}

/** @throws {UserError} if neither a GPU nor a record is given. */
export function deviceOf(hardware: RequestedHardware, record: BenchRecord | undefined): Device {
  if (hardware.gpu !== undefined) return deviceFor(hardware.gpu, hardware.price);
  if (record === undefined) {
    throw new UserError("an environment, --gpu or --record is required");
  }
  const { price: known, gpu } = record.subject;
  // the price of the environment's GPU does not apply to a CPU
  const price = gpu === undefined && known?.source !== "--price" ? undefined : known;
  const usdPerHour = hardware.price ?? (price && price.usdPerHour / Math.max(1, gpu?.count ?? 1));
  return {
    name: recordDevice(record),
    usdPerHour,
    priceDate: hardware.price === undefined ? price?.date : undefined,
    ...(gpu === undefined ? { cpu: true } : {}),
  };
}

/** GPU with its price, which `price` overrides. */
export function deviceFor(
  { name, price: known }: GpuSpec & { readonly name: string },
  price?: number,
): Device {
  return price === undefined
    ? { name, usdPerHour: known.usdPerHour, priceDate: known.date }
    : { name, usdPerHour: price };
}

/** Properties of a scenario that a job does not vary. */
export function scenarioBase(hardware: RequestedHardware, args: CapacityArguments) {
  return {
    backend: hardware.backend ?? "tensorrt",
    bandwidthMbps: args.bandwidth,
    roundTripMs: args.roundTrip,
    connections: args.connections,
    imagesPerRequest: args.batchSize,
    clientMs: args.clientMs,
    jpegBytes: args.jpegKb * 1000,
    ...(hardware.served === undefined
      ? {}
      : { served: withBackends(hardware.served, hardware.backend) }),
    ...(args.cores === undefined ? {} : { cores: args.cores }),
  } as const;
}
