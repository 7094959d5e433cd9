import { readEnvironment } from "../../artefact/artefact.ts";
import {
  type RecordCalibration,
  recordBackends,
  timesOfRecord,
} from "../../bench/capacity/calibrate-record.ts";
import { backendNames, recordErrorLines, summaryLine } from "../../bench/capacity/capacity-text.ts";
import { checkPublished, summarize } from "../../bench/capacity/check-published.ts";
import type { Topology } from "../../bench/capacity/model.ts";
import { type PublishedFacts, publishedTimes } from "../../bench/capacity/published-facts.ts";
import type { Backend } from "../../bench/capacity/published-parameters.ts";
import type { Device, Payload, ServiceTimes } from "../../bench/capacity/scenario.ts";
import { type BenchRecord, readBenchRecord } from "../../bench/record/bench-record.ts";
import { type GpuName, gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { UserError } from "../../contract/user-error.ts";
import { environmentFile } from "../artefact.ts";
export interface CapacityArguments {
  readonly gpu?: GpuName;
  readonly gpus?: number;
  readonly topology?: Topology;
  readonly backend?: Backend;
  readonly payload?: Payload;
  readonly jpegKb: number;
  readonly bandwidth: number;
  readonly roundTrip: number;
  readonly connections: "new" | "kept";
  readonly concurrency?: number;
  readonly batchSize: number;
  readonly images?: number;
  readonly within?: number;
  readonly price?: number;
  readonly decodeMs?: number;
  readonly decodeWorkers?: number;
  readonly ingestMs?: number;
  readonly clientMs: number;
  readonly record?: string;
  readonly environment?: string;
  readonly check?: true;
  readonly parameters?: true;
  readonly json?: true;
  readonly output?: string;
}

export const cataloguePeaks = Object.fromEntries(
  Object.entries(gpuCatalogue).map(([name, { fp16DenseTflops }]) => [name, fp16DenseTflops]),
);

/** What an environment or the options say of the hardware. */
export interface RequestedHardware {
  readonly gpu?: GpuName;
  readonly gpus?: number;
  readonly topology?: Topology;
  readonly backend?: Backend;
  /** Dollars an hour for one GPU. */
  readonly price?: { readonly usdPerHour: number; readonly date?: string };
}

export function hardwareFromOptions({
  gpu,
  gpus,
  topology,
  backend,
  price,
}: CapacityArguments): RequestedHardware {
  const all: RequestedHardware = {
    gpu,
    gpus,
    topology,
    backend,
    price: price === undefined ? undefined : { usdPerHour: price },
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

export function hardwareOfEnvironment(name: string): RequestedHardware {
  const { file, displayPath } = environmentFile(name);
  const { gpu, namespace, services } = readEnvironment(file, displayPath);
  if (gpu === undefined) {
    throw new UserError(`${name} has no GPU: name one with --gpu, or calibrate with --record`);
  }
  const tritons = services.filter(({ kind }) => kind === "triton");
  const backends = new Set(tritons.map(({ backend }) => backend));
  const gpuName = gpuNames.find((known) => known === gpu.name);
  if (gpuName === undefined) {
    throw new UserError(`${name}: gpu must be one of ${gpuNames.join(", ")}, got '${gpu.name}'`);
  }
  // pods have a Triton each
  const inCluster = namespace !== undefined;
  const perGpu =
    gpu.count > 1 && (inCluster || tritons.filter(({ name }) => /-\d+$/.test(name)).length > 1);
  return {
    gpu: gpuName,
    gpus: gpu.count,
    topology: perGpu ? "per-gpu" : "instance-group",
    backend: backends.has("tensorrt") || backends.size === 0 ? "tensorrt" : "onnxruntime",
    price: { usdPerHour: gpu.usdPerHour / gpu.count, date: gpu.priceDate },
  };
}

/** Name of what a record was measured on. */
function recordDevice(record: BenchRecord): string {
  const { gpu, machine } = record.subject;
  return gpu?.name ?? machine.cpu;
}

export function serviceTimesOf(
  facts: PublishedFacts,
  measured: CalibratedRecord | undefined,
  asked: RequestedHardware,
  args: CapacityArguments,
): { readonly times: ServiceTimes; readonly from: readonly string[] } {
  const published = publishedTimes(facts, args.jpegKb * 1000);
  const { decodeMs, decodeWorkers, ingestMs } = args;
  const own = Object.fromEntries(
    Object.entries({
      decodeMsPerImage: decodeMs,
      decodeWorkers,
      ingestMsPerImage: ingestMs,
    }).filter(([, value]) => value !== undefined),
  );
  if (measured === undefined) {
    const rows = checkPublished(facts.published, facts.parameters, facts.peaks);
    const from = `Calibrated by published figures. ${summaryLine(summarize(rows))} (--check)`;
    return { times: { ...published, ...own }, from: [from] };
  }
  const { record, calibration } = measured;
  const times = timesOfRecord(record, calibration, recordDevice(record), published);
  const weights = record.subject.model.weights === "random" ? ", random weights" : "";
  const where = record.subject.target === "simulation" ? "local processes, " : "";
  const compute =
    asked.gpu === undefined || asked.gpu === recordDevice(record)
      ? ""
      : " The compute of another GPU is that of published figures.";
  const from = `Calibrated by ${args.record} (${where}${recordDevice(record)}, model ${record.subject.model.name}${weights}).${compute}`;
  const embed =
    ingestMs === undefined ? times.embed : { ...times.embed, ingestMsPerImage: ingestMs };
  return {
    times: { ...times, ...own, embed },
    from: [from, ...recordErrorLines(calibration), ...calibration.notes],
  };
}

/** A record, and what it says of the model's times. */
export interface CalibratedRecord {
  readonly record: BenchRecord;
  readonly calibration: RecordCalibration;
}

/** The record, or of several environments the one that is asked for. */
export function readRecord({
  record: file,
  environment,
  check,
}: CapacityArguments): BenchRecord | undefined {
  if (file === undefined) {
    if (environment === undefined) return undefined;
    throw new UserError("--environment is one of --record: give that too");
  }
  const record = readBenchRecord(file);
  const names = [...new Set(record.loadPoints.map((point) => point.environment))];
  if (environment === undefined) {
    if (names.length < 2 || check) return record;
    throw new UserError(
      `${file}: was measured in several environments, ${names.join(", ")}: name one with --environment`,
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

/** What computes, where nobody says: what the record was measured with. One that it lacks is refused. */
export function withBackend(
  asked: RequestedHardware,
  args: CapacityArguments,
  measured: CalibratedRecord | undefined,
): RequestedHardware {
  if (measured === undefined) return asked;
  const { record, calibration } = measured;
  if (calibration.endpoints.length === 0) {
    throw new UserError(
      `${args.record}: no endpoint has a valid load with one client, which would calibrate the model`,
    );
  }
  const ofRecord = asked.gpu === undefined || asked.gpu === recordDevice(record);
  if (asked.gpu === undefined && record.subject.gpu === undefined && (asked.gpus ?? 1) > 1) {
    throw new UserError(
      `${args.record}: was measured on a CPU (${recordDevice(record)}), which says nothing of ${asked.gpus} GPUs: name one with --gpu`,
    );
  }
  // a job takes every payload that the record has
  const payload = args.payload ?? (args.images === undefined ? "jpeg" : undefined);
  const known = recordBackends(calibration, payload, asked.backend);
  const backend = asked.backend ?? known[0];
  if (!ofRecord || (backend !== undefined && known.includes(backend))) return { ...asked, backend };
  if (backend === undefined && payload !== "uint8" && payload !== "fp32" && payload !== "json") {
    throw new UserError(
      `${args.record}: does not say what computes behind the embed API: say it with --backend`,
    );
  }
  const wanted = payload === undefined ? "" : ` for --payload ${payload}`;
  const which = backend === undefined ? "" : ` of ${backendNames[backend]}`;
  const has = calibration.endpoints.map(({ endpoint }) => endpoint).join(", ");
  throw new UserError(
    `${args.record}: has no load with one client${which}${wanted}, only of ${has}`,
  );
}

export function deviceOf(asked: RequestedHardware, record: BenchRecord | undefined): Device {
  if (asked.gpu !== undefined) return catalogueDevice(asked.gpu, asked.price);
  if (record === undefined) {
    throw new UserError(
      "say what computes: an environment, --gpu, or --record (--check and --parameters need none)",
    );
  }
  const { price: known, gpu } = record.subject;
  // a price of the environment's GPU is none of the CPU that ran in its place
  const price = gpu === undefined && known?.source !== "--price" ? undefined : known;
  const usdPerHour =
    asked.price?.usdPerHour ?? (price && price.usdPerHour / Math.max(1, gpu?.count ?? 1));
  return {
    name: recordDevice(record),
    usdPerHour,
    priceDate: asked.price ? undefined : price?.date,
    ...(gpu === undefined ? { cpu: true } : {}),
  };
}

export function catalogueDevice(gpu: GpuName, price?: RequestedHardware["price"]): Device {
  const { usdPerHour, date } = gpuCatalogue[gpu].price;
  return price === undefined
    ? { name: gpu, usdPerHour, priceDate: date }
    : { name: gpu, usdPerHour: price.usdPerHour, priceDate: price.date };
}

export function scenarioBase(asked: RequestedHardware, args: CapacityArguments) {
  return {
    backend: asked.backend ?? "tensorrt",
    bandwidthMbps: args.bandwidth,
    roundTripMs: args.roundTrip,
    connections: args.connections,
    imagesPerRequest: args.batchSize,
    clientMs: args.clientMs,
    jpegBytes: args.jpegKb * 1000,
  } as const;
}
