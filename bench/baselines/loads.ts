/** What is measured: the loads, who carries them, and what they must reach. */

/** Files of one kind, made by `model-tools/samples/load-images.ts`. */
export const imageKinds = ["thumbnail", "photo", "camera"] as const;
export type ImageKind = (typeof imageKinds)[number];

/**
 * - `limit`: the ceiling: ONNX Runtime alone, fed from memory: no HTTP, no images.
 * - `server`: the embed server with its defaults.
 * - `server-int8`: the same with `MODEL_PRECISION=int8`.
 * - `peer`: the baseline: FastAPI, ONNX Runtime and Pillow, `bench/baselines/fastapi/`.
 * - `server-fast`, `server-one-instance`: variants of the server in records of before 2026-11-24.
 */
export const subjectNames = [
  "limit",
  "server",
  "server-fast",
  "server-one-instance",
  "server-int8",
  "peer",
] as const;
export type SubjectName = (typeof subjectNames)[number];

/** Bounds of the ratios that a load must reach. */
export interface Targets {
  /** Images a second, of what the runtime alone does: at least. */
  readonly ofLimit?: number;
  /** Images a second, against the peer: at least. */
  readonly againstPeer?: number;
  /** 95th percentile of the latency, against the peer: at most. */
  readonly p95AgainstPeer?: number;
}

export interface Load {
  readonly id: string;
  readonly title: string;
  readonly images: ImageKind;
  readonly imagesPerRequest: number;
  /** Connections; each sends its next request when the last one was answered. */
  readonly concurrency: number;
  readonly model: "full" | "tiny";
  /** The server's form that is held against the limit and the peer. */
  readonly measured: Extract<SubjectName, "server" | "server-int8">;
  /** In the order of the first round; every second round reverses it. */
  readonly subjects: readonly SubjectName[];
  readonly targets: Targets;
  /** Health checks are sent meanwhile, a process of their own, one every 20 ms. */
  readonly healthChecks?: true;
}

export const loads: readonly Load[] = [
  {
    id: "single",
    title: "10 KB JPEG, batch 1, concurrency 1",
    images: "thumbnail",
    imagesPerRequest: 1,
    concurrency: 1,
    model: "full",
    measured: "server",
    subjects: ["limit", "server", "peer"],
    targets: { ofLimit: 0.97, againstPeer: 1.15 },
  },
  {
    id: "c16",
    title: "10 KB JPEG, batch 1, concurrency 16",
    images: "thumbnail",
    imagesPerRequest: 1,
    concurrency: 16,
    model: "full",
    measured: "server",
    subjects: ["limit", "server", "peer"],
    targets: { ofLimit: 0.97, againstPeer: 1.3, p95AgainstPeer: 0.7 },
  },
  {
    id: "batch32",
    title: "10 KB JPEG, batch 32, concurrency 2",
    images: "thumbnail",
    imagesPerRequest: 32,
    concurrency: 2,
    model: "full",
    measured: "server",
    subjects: ["limit", "server", "peer"],
    targets: { ofLimit: 0.97, againstPeer: 1.15 },
  },
  {
    id: "photos",
    title: "240-360 KB photos, batch 1, concurrency 8",
    images: "photo",
    imagesPerRequest: 1,
    concurrency: 8,
    model: "full",
    measured: "server",
    subjects: ["limit", "server", "peer"],
    targets: { ofLimit: 0.93, againstPeer: 1.5 },
  },
  {
    id: "12mp",
    title: "12 MP photos, batch 1, concurrency 4",
    images: "camera",
    imagesPerRequest: 1,
    concurrency: 4,
    model: "full",
    measured: "server",
    subjects: ["limit", "server", "peer"],
    targets: { ofLimit: 0.9, againstPeer: 2 },
  },
  {
    id: "tiny",
    title: "tiny model, 10 KB JPEG, batch 1, concurrency 16",
    images: "thumbnail",
    imagesPerRequest: 1,
    concurrency: 16,
    model: "tiny",
    measured: "server",
    subjects: ["server", "peer"],
    targets: { againstPeer: 2.5 },
  },
  {
    id: "int8",
    title: "int8, 10 KB JPEG, batch 1, concurrency 16",
    images: "thumbnail",
    imagesPerRequest: 1,
    concurrency: 16,
    model: "full",
    measured: "server-int8",
    subjects: ["server-int8", "peer"],
    targets: { againstPeer: 3 },
  },
  {
    id: "health",
    title: "health checks beside 240-360 KB photos, batch 1, concurrency 32",
    images: "photo",
    imagesPerRequest: 1,
    concurrency: 32,
    model: "full",
    measured: "server",
    subjects: ["server", "peer"],
    targets: {},
    healthChecks: true,
  },
];

/** Bounds that are not of one load. */
export const serverTargets = {
  /** Resident size after the requests of a load, in 10⁶ bytes: at most. */
  residentMB: 850,
  residentInt8MB: 550,
  /** Start to ready, of the raw session's creation: at most. */
  readyOfCreation: 1.1,
  /** 99th percentile of `GET /healthz` beside 32 requests: less than. */
  healthP99Ms: 20,
} as const;

/**
 * Batch sizes of the limit. What a server can put together is what its callers have in flight, so the limit of a load is
 * the best that the runtime does at any batch size up to its concurrency; of a load with batches, at their size.
 */
export function limitBatchSizes({ imagesPerRequest, concurrency }: Load): readonly number[] {
  if (imagesPerRequest > 1) return [imagesPerRequest];
  const sizes = [1, 2, 4, 8, 16, 32].filter((size) => size <= concurrency);
  return sizes.length <= 3 ? sizes : [1, ...sizes.slice(-2)];
}
