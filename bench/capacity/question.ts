import { costPerThousand } from "./check-published.ts";
import { type ComputeTime, executionMs } from "./compute-time.ts";
import {
  type Demand,
  type Prediction,
  predict,
  type StationName,
  type System,
  stationsOf,
  type Topology,
} from "./model.ts";
import { answerBytes, type Backend, float32Bytes, uint8Bytes } from "./published-parameters.ts";
import { type Station, stationLimit, throughputs } from "./queueing-network.ts";

/** What a client sends of an image, and to which API. */
export const payloads = {
  jpeg: "a JPEG to the embed API, which decodes it",
  uint8: "8-bit pixels to Triton",
  fp32: "float32 tensors to Triton",
  json: "float32 tensors as JSON text to Triton",
} as const;
export type Payload = keyof typeof payloads;
export const payloadNames = Object.keys(payloads) as [Payload, ...Payload[]];

/** A GPU to compute on, or whatever a record was measured on. */
export interface Device {
  /** Key of the GPU catalogue. */
  readonly name: string;
  readonly usdPerHour?: number;
  readonly priceDate?: string;
  /** A CPU, of a record without a GPU: there is one, and no more of them. */
  readonly cpu?: true;
}

/** Times of the service, of published figures or of a record. */
export interface ServiceTimes {
  readonly compute: (device: string, backend: Backend) => ComputeTime;
  /** Whether the device's compute was measured, and not only worked out from its peak. */
  readonly measured: (device: string, backend: Backend) => boolean;
  /**
   * Whether there are times at all.
   *
   * @default true for every device and backend
   */
  readonly knows?: (device: string, backend: Backend) => boolean;
  readonly decodeMsPerImage: number;
  readonly decodeWorkers: number;
  readonly overheadMs: number;
  readonly overheadMsPerImage: number;
  /** Of a float32 tensor; of fewer bytes less. */
  readonly ingestMsPerImage: number;
  readonly jsonMsPerImage: number;
  readonly jsonBytesPerImage: number;
  /** What one Triton ingests is from a record, and not assumed. */
  readonly ingestMeasured?: true;
  /**
   * Where the embed API was measured on its own.
   *
   * @default the times of tensors that go to a Triton
   */
  readonly embed?: Partial<
    Pick<
      ServiceTimes,
      "compute" | "measured" | "knows" | "overheadMs" | "overheadMsPerImage" | "ingestMsPerImage"
    >
  >;
}

/** The times that hold for a payload. */
export function timesFor(payload: Payload, times: ServiceTimes): ServiceTimes {
  return payload === "jpeg" ? { ...times, ...times.embed } : times;
}

/** Whether there are times for a question's device, backend and payload. */
export function answerable(
  { device, backend, payload }: Pick<Question, "device" | "backend" | "payload">,
  times: ServiceTimes,
): boolean {
  return timesFor(payload, times).knows?.(device.name, backend) ?? true;
}

export interface Question {
  readonly device: Device;
  readonly gpus: number;
  readonly topology: Topology;
  readonly backend: Backend;
  readonly payload: Payload;
  readonly bandwidthMbps: number;
  readonly roundTripMs: number;
  readonly connections: "new" | "kept";
  readonly concurrency: number;
  readonly imagesPerRequest: number;
  /** Client's own work between two requests. */
  readonly clientMs: number;
  /** Bytes of a JPEG. */
  readonly jpegBytes: number;
}

export interface Answer extends Prediction {
  /** What the GPUs would give if nothing else took time. */
  readonly gpusAloneImagesPerSecond: number;
  /** Absent without a price. */
  readonly usdPerThousand?: number;
}

export const largestBatch = 32;

/** What a question comes to. */
export function answer(question: Question, times: ServiceTimes): Answer {
  const system = systemOf(question, times);
  const prediction = {
    ...predict(demandOf(question, times), system),
    gpusAloneImagesPerSecond:
      (1000 * question.gpus * largestBatch) / executionMs(system.compute, largestBatch),
  };
  const { usdPerHour } = question.device;
  if (usdPerHour === undefined) return prediction;
  const all = usdPerHour * question.gpus;
  return { ...prediction, usdPerThousand: costPerThousand(all, prediction.imagesPerSecond) };
}

/** Images per second for 1, 2, … up to `clients` clients. */
export function ratesByClients(
  question: Omit<Question, "concurrency">,
  times: ServiceTimes,
  clients: number,
): readonly number[] {
  const asked = { ...question, concurrency: clients };
  const stations = stationsOf(demandOf(asked, times), systemOf(asked, times));
  return throughputs(stations, clients).map((rate) => rate * question.imagesPerRequest);
}

/** The station that bounds the throughput of many clients. */
export function bottleneckOf(question: Question, times: ServiceTimes): StationName {
  const stations = stationsOf(demandOf(question, times), systemOf(question, times));
  const limit = (station: Station) => stationLimit(station, question.concurrency);
  return stations.reduce((a, b) => (limit(b) < limit(a) ? b : a)).name as StationName;
}

/** Body of a request for one image. */
export function bytesPerImage(
  { payload, jpegBytes }: Pick<Question, "payload" | "jpegBytes">,
  times: Pick<ServiceTimes, "jsonBytesPerImage">,
): number {
  switch (payload) {
    case "jpeg":
      return jpegBytes;
    case "uint8":
      return uint8Bytes;
    case "fp32":
      return float32Bytes;
    case "json":
      return times.jsonBytesPerImage;
  }
}

function demandOf(question: Question, times: ServiceTimes): Demand {
  const text = question.payload === "jpeg" || question.payload === "json";
  return {
    concurrency: question.concurrency,
    imagesPerRequest: question.imagesPerRequest,
    bytesPerImage: bytesPerImage(question, times),
    answerBytesPerImage: text ? answerBytes.json : answerBytes.binary,
  };
}

function systemOf(question: Question, all: ServiceTimes): System {
  const { payload } = question;
  const times = timesFor(payload, all);
  // the gateway sends 8-bit pixels or floats to its Tritons: the tensor is ingested there
  const tensorBytes = payload === "uint8" ? uint8Bytes : float32Bytes;
  return {
    link: question,
    oneConnection: false,
    client: {
      betweenMs: question.clientMs,
      writeMsPerImage: payload === "json" ? times.jsonMsPerImage : 0,
    },
    ...(payload === "jpeg"
      ? { decode: { msPerImage: times.decodeMsPerImage, workers: times.decodeWorkers } }
      : {}),
    overheadMs: times.overheadMs,
    overheadMsPerImage: times.overheadMsPerImage,
    ingestMsPerImage: (times.ingestMsPerImage * tensorBytes) / float32Bytes,
    compute: times.compute(question.device.name, question.backend),
    maxBatch: largestBatch,
    instances: 1,
    gpus: question.gpus,
    topology: question.topology,
  };
}

const rateOf = (question: Question, times: ServiceTimes): number =>
  ratesByClients(question, times, question.concurrency).at(-1) ?? 0;

/** One change to a question, and what it would give. */
export interface Alternative {
  readonly change: string;
  readonly answer: Answer;
}

/** What else could be done, the most images per second first: changes that help by 5 % or more. */
export function alternatives(question: Question, times: ServiceTimes): readonly Alternative[] {
  const now = rateOf(question, times);
  const { gpus, payload, concurrency } = question;
  const variants: readonly (readonly [string, Partial<Question>, Partial<ServiceTimes>?])[] = [
    ["keep connections open", { connections: "kept" }],
    ["send 8-bit pixels", { payload: "uint8" }],
    ["send JPEG", { payload: "jpeg" }],
    [
      `twice the bandwidth (${2 * question.bandwidthMbps} Mbit/s)`,
      { bandwidthMbps: 2 * question.bandwidthMbps },
    ],
    ["half the round trip", { roundTripMs: question.roundTripMs / 2 }],
    [`twice the clients (${2 * concurrency})`, { concurrency: 2 * concurrency }],
    [`${2 * gpus} GPUs`, { gpus: 2 * gpus }],
    ["one Triton for each GPU (per-gpu)", { topology: "per-gpu" }],
    [
      `twice the decoding workers (${2 * times.decodeWorkers})`,
      {},
      { decodeWorkers: 2 * times.decodeWorkers },
    ],
  ];
  return (
    variants
      .filter(([, change]) => change.payload !== payload)
      .filter(([, { gpus: more, topology: other }]) => !question.device.cpu || !(more || other))
      .filter(([, change]) => answerable({ ...question, ...change }, times))
      .map(([change, other, faster]) => ({
        change,
        asked: { ...question, ...other },
        times: { ...times, ...faster },
      }))
      // the rate alone is quickly found
      .filter(({ asked, times }) => rateOf(asked, times) >= 1.05 * now)
      .map(({ change, asked, times }) => ({ change, answer: answer(asked, times) }))
      .sort((a, b) => b.answer.imagesPerSecond - a.answer.imagesPerSecond)
  );
}
