import type { ServerEnv } from "../../contract/server/server-env.ts";
import type { ModelKind } from "../../contract/triton-models.ts";
import type { ImageKind } from "../server/loads.ts";

/** Loads of the gateway benchmark, their subjects and their targets. */

/**
 * - `gateway-*`: the embed server with `BACKEND=triton` on one core, by payload format; `-fast` with `PREPROCESSING=fast`.
 * - `gateway-uint8-2-cores`: as `gateway-uint8`, on two cores.
 * - `baseline`: FastAPI, Pillow and tritonclient (gRPC, UINT8) on one core.
 * - `ceiling`: libjpeg-turbo decodes and OpenCV resizes, without HTTP and Triton.
 */
export const gatewaySubjects = [
  "gateway-uint8",
  "gateway-uint8-fast",
  "gateway-uint8-2-cores",
  "gateway-fp32",
  "gateway-jpeg",
  "baseline",
  "ceiling",
] as const;
export type GatewaySubject = (typeof gatewaySubjects)[number];

/** Settings of the gateway as a subject; `undefined` for the baseline and the ceiling. */
export interface GatewayVariant {
  readonly triton: Extract<ModelKind, "u8" | "fp32" | "jpeg">;
  readonly preprocessing: ServerEnv["PREPROCESSING"];
  readonly cores: 1 | 2;
}

export const gatewayVariants: Readonly<Partial<Record<GatewaySubject, GatewayVariant>>> = {
  "gateway-uint8": { triton: "u8", preprocessing: "exact", cores: 1 },
  "gateway-uint8-fast": { triton: "u8", preprocessing: "fast", cores: 1 },
  "gateway-uint8-2-cores": { triton: "u8", preprocessing: "exact", cores: 2 },
  "gateway-fp32": { triton: "fp32", preprocessing: "exact", cores: 1 },
  "gateway-jpeg": { triton: "jpeg", preprocessing: "exact", cores: 1 },
};

/** Figures derived from the runs of one load and round. */
export const gatewayMeasures = {
  againstBaseline: "baseline ÷ gateway, exact",
  fastAgainstBaseline: "baseline ÷ gateway, fast",
  ofCeiling: "ceiling ÷ gateway, exact",
  jpegMs: "JPEG forwarded, ms per image",
  scaling: "one core ÷ two cores",
  p99OfP50: "p99 ÷ p50",
  p95OfP50: "p95 ÷ p50",
} as const;
export type GatewayMeasure = keyof typeof gatewayMeasures;

interface GatewayTarget {
  readonly bound: "at least" | "at most";
  readonly value: number;
}

export interface GatewayLoad {
  readonly id: string;
  readonly title: string;
  readonly images: ImageKind;
  /** Order of the first round; every second round is reversed. */
  readonly subjects: readonly GatewaySubject[];
  /** Number of connections, each with one request at a time. */
  readonly concurrency: number;
  readonly targets: Readonly<Partial<Record<GatewayMeasure, GatewayTarget>>>;
}

export const gatewayLoads: readonly GatewayLoad[] = [
  {
    id: "thumbnails",
    title: "10 KB thumbnails, 16 clients",
    images: "thumbnail",
    // `fast` decodes thumbnails as `exact` does
    subjects: gatewaySubjects.filter((subject) => subject !== "gateway-uint8-fast"),
    concurrency: 16,
    targets: {
      againstBaseline: { bound: "at least", value: 3 },
      jpegMs: { bound: "at most", value: 0.5 },
      scaling: { bound: "at least", value: 0.9 },
      p99OfP50: { bound: "at most", value: 2 },
      p95OfP50: { bound: "at most", value: 1.3 },
    },
  },
  {
    id: "photos",
    title: "240-360 KB photos, 16 clients",
    images: "photo",
    subjects: gatewaySubjects,
    concurrency: 16,
    targets: {
      againstBaseline: { bound: "at least", value: 3 },
      ofCeiling: { bound: "at least", value: 0.75 },
      scaling: { bound: "at least", value: 0.9 },
      p99OfP50: { bound: "at most", value: 2 },
    },
  },
  {
    id: "12mp",
    title: "12 MP photos, 4 clients",
    images: "camera",
    subjects: ["gateway-uint8", "gateway-uint8-fast", "gateway-jpeg", "baseline", "ceiling"],
    concurrency: 4,
    targets: {
      againstBaseline: { bound: "at least", value: 4 },
      fastAgainstBaseline: { bound: "at least", value: 6 },
    },
  },
];
