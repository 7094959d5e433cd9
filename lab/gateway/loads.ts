import type { ServerEnv } from "../../contract/server/server-env.ts";
import type { ModelKind } from "../../contract/triton-models.ts";
import type { ImageKind, Load } from "../rounds/comparison.ts";
import {
  atLeast,
  atMost,
  type Group,
  type Measure,
  ofSubjects,
  type Round,
  ratio,
} from "../rounds/figures.ts";
import type { ServiceRun } from "../rounds/service.ts";

/** Settings of the embed server with `BACKEND=triton`, by subject. */
export const gateways: Readonly<
  Record<
    string,
    {
      readonly triton: Extract<ModelKind, "u8" | "fp32" | "jpeg">;
      readonly preprocessing: ServerEnv["PREPROCESSING"];
      readonly cores: 1 | 2;
    }
  >
> = {
  "gateway-uint8": { triton: "u8", preprocessing: "exact", cores: 1 },
  "gateway-uint8-fast": { triton: "u8", preprocessing: "fast", cores: 1 },
  "gateway-uint8-2-cores": { triton: "u8", preprocessing: "exact", cores: 2 },
  "gateway-fp32": { triton: "fp32", preprocessing: "exact", cores: 1 },
  "gateway-jpeg": { triton: "jpeg", preprocessing: "exact", cores: 1 },
};

/**
 * Programs that are measured beside clipstack's gateways:
 *
 * - `baseline`: FastAPI, Pillow and tritonclient (gRPC, UINT8) on one core.
 * - `ceiling`: libjpeg-turbo decodes and OpenCV resizes, without HTTP and Triton.
 */
const subjects = [...Object.keys(gateways), "baseline", "ceiling"];

export interface GatewayLoad extends Load {
  readonly images: ImageKind;
  /** Number of connections, each with one request at a time. */
  readonly concurrency: number;
}

export const gatewayLoads: readonly GatewayLoad[] = [
  {
    id: "thumbnails",
    title: "10 KB thumbnails, 16 clients",
    images: "thumbnail",
    // `fast` decodes thumbnails as `exact` does
    subjects: subjects.filter((subject) => subject !== "gateway-uint8-fast"),
    concurrency: 16,
  },
  {
    id: "photos",
    title: "240-360 KB photos, 16 clients",
    images: "photo",
    subjects,
    concurrency: 16,
  },
  {
    id: "12mp",
    title: "12 MP photos, 4 clients",
    images: "camera",
    subjects: ["gateway-uint8", "gateway-uint8-fast", "gateway-jpeg", "baseline", "ceiling"],
    concurrency: 4,
  },
];

type GatewayMeasure = Measure<ServiceRun>;

const cpuMs = (run: ServiceRun) => run.cpuMsPerImage;

const tail = (percentile: "p95Ms" | "p99Ms") => (round: Round<ServiceRun>) => {
  const latency = round["gateway-uint8"]?.latency;
  return latency && latency[percentile] / latency.p50Ms;
};

const againstBaseline = {
  name: "baseline ÷ gateway, exact",
  of: ratio("baseline", "gateway-uint8", cpuMs),
};
const fastAgainstBaseline = {
  name: "baseline ÷ gateway, fast",
  of: ratio("baseline", "gateway-uint8-fast", cpuMs),
};
const ofCeiling = {
  name: "ceiling ÷ gateway, exact",
  of: ratio("ceiling", "gateway-uint8", cpuMs),
};
const jpegMs: GatewayMeasure = {
  name: "JPEG forwarded, per image",
  unit: "ms",
  of: (round) => round["gateway-jpeg"]?.cpuMsPerImage,
};
const scaling = {
  name: "one core ÷ two cores",
  of: ratio("gateway-uint8", "gateway-uint8-2-cores", cpuMs),
  target: atLeast(0.9),
};
const p99OfP50 = { name: "p99 ÷ p50", of: tail("p99Ms"), target: atMost(2) };
const p95OfP50 = { name: "p95 ÷ p50", of: tail("p95Ms"), target: atMost(1.3) };

/** Ratios of processor time per image between runs of the same round, by load. */
const ratios: Readonly<Record<string, readonly GatewayMeasure[]>> = {
  thumbnails: [
    { ...againstBaseline, target: atLeast(3) },
    ofCeiling,
    { ...jpegMs, target: atMost(0.5) },
    scaling,
    p99OfP50,
    p95OfP50,
  ],
  photos: [
    { ...againstBaseline, target: atLeast(3) },
    fastAgainstBaseline,
    { ...ofCeiling, target: atLeast(0.75) },
    jpegMs,
    scaling,
    p99OfP50,
  ],
  "12mp": [
    { ...againstBaseline, target: atLeast(4) },
    { ...fastAgainstBaseline, target: atLeast(6) },
    ofCeiling,
    jpegMs,
  ],
};

/** Figures of loads: the ratios, then processor time and rates of each subject. */
export function gatewayFigures(loads: readonly GatewayLoad[]): readonly Group<ServiceRun>[] {
  return loads.map((load) => ({
    title: load.title,
    loads: load.id,
    measures: [
      ...(ratios[load.id] ?? []),
      ...ofSubjects(load.subjects, "processor time per image", cpuMs, "ms"),
      ...ofSubjects(load.subjects, "images/s", (run: ServiceRun) => run.imagesPerSecond),
    ],
  }));
}
