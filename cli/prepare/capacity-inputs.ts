import { readEnvironment } from "../../artefact/artefact.ts";
import { type CapacityParameters, capacityTable } from "../../bench/capacity/capacity-table.ts";
import type { Uncertainty } from "../../bench/capacity/intervals.ts";
import type { Topology } from "../../bench/capacity/model.ts";
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
import type { Service } from "../../contract/environment.ts";
import { type GpuSpec, gpuNames, gpuSpec, gpuSpecOf } from "../../contract/gpus.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import { namedModel } from "../model/named-model.ts";
import { environmentFile } from "../shared/artefact.ts";
import type { CapacityArguments } from "./capacity-options.ts";

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

/** Reads the hardware of a synthesized environment. */
export function hardwareOfEnvironment(name: string): RequestedHardware {
  const { file, displayPath } = environmentFile(name);
  const { gpu, namespace, services, models } = readEnvironment(file, displayPath);
  if (gpu === undefined) {
    throw new UserError(`${name} has no GPU: set --gpu`);
  }
  const tritons = services.filter(({ kind }) => kind === "triton");
  if (gpu.share !== undefined) {
    throw new UserError(
      `${name} has parts of GPUs (${gpu.share}), whose throughput is not in the catalogue: set --gpu, or measure with 'npx clipstack bench'`,
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

/** Returns the payload formats that the services of an environment accept, JPEG first, with the backend of each. */
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

/** Payload format of a prediction. */
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

/** Service times, and for the intervals the service times for sources that round to the published figures. */
export interface PublishedServiceTimes {
  readonly times: ServiceTimes;
  readonly uncertainty: Uncertainty;
}

/** Returns the service times from published figures, overridden by options. */
export function serviceTimesOf(
  { model, gpu, embedComputes }: RequestedHardware,
  { jpegKb, decodeMs, decodeWorkers, ingestMs }: CapacityArguments,
): PublishedServiceTimes {
  const timesFrom = (parameters: CapacityParameters): ServiceTimes => ({
    ...publishedTimes(jpegKb * 1000, model, gpu, parameters),
    embedComputes,
    ...(decodeMs !== undefined && { decodeMsPerImage: decodeMs }),
    ...(decodeWorkers !== undefined && { decodeWorkers }),
    ...(ingestMs !== undefined && { ingestMsPerImage: ingestMs }),
  });
  const { parameters, roundedParameters, errorFactors } = capacityTable;
  return {
    times: timesFrom(parameters),
    uncertainty: { times: roundedParameters.map(timesFrom), factors: errorFactors },
  };
}

/** Sources of the times and of the intervals, as sentences. */
export const timeSources = [
  `Calibrated with published figures. ${capacityTable.summary} (docs/capacity.md)`,
  "P10-P90: from the rounding of the sources and the errors in settings left out of the calibration.",
];

export function deviceOf({ gpu, price }: RequestedHardware): Device {
  if (gpu === undefined) throw new UserError("an environment or --gpu is required");
  return deviceFor(gpu, price);
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
