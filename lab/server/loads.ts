import type { Modality } from "../../contract/model-spec.ts";
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
import type { Latency, ServiceRun } from "../rounds/service.ts";

/**
 * Loads of the server comparison, their figures and targets. Subjects:
 *
 * - `ceiling`: ONNX Runtime alone on tensors in memory, without HTTP and images.
 * - `server`: the embed server with its defaults.
 * - `server-int8`: the embed server with `MODEL_PRECISION=int8`.
 * - `baseline`: FastAPI, ONNX Runtime and Pillow, `lab/fastapi/`.
 */
export interface ServerLoad extends Load {
  /** Kind of the images; `texts` for a text tower. */
  readonly items: ImageKind | "texts";
  readonly itemsPerRequest: number;
  /** Number of connections; each sends its next request after the response to the last. */
  readonly concurrency: number;
  /** `full` and `tiny`: image tower of the default model; otherwise the name of a {@link BenchTower}. */
  readonly model: string;
  /** Sends a health check every 20 ms during the load, from a separate process. */
  readonly healthChecks?: true;
  readonly targets: Targets;
}

/** Targets of a load, as ratios. */
interface Targets {
  /** Minimum ratio of images per second to the ceiling. */
  readonly ofCeiling?: number;
  /** Minimum ratio of images per second to the baseline. */
  readonly againstBaseline?: number;
  /** Maximum ratio of the 95th latency percentile to the baseline. */
  readonly p95AgainstBaseline?: number;
  /** Maximum difference of the p50 latency to one run of the ceiling, in milliseconds. */
  readonly addedMs?: number;
}

/** One subject under one load in one round, in a separate process. */
export interface ServerRun extends ServiceRun {
  /** Time from the start of the process until it is ready; for the ceiling, until its session is created. */
  readonly readyMs: number;
  /** Resident memory when ready and at the end of the load, in 10⁶ bytes. */
  readonly residentMB?: number;
  readonly residentAfterMB?: number;
  /** Mean request time beyond decoding, resizing and inference, from the server's histograms. */
  readonly outsideMs?: number;
  /** Latency of the health checks during the load. */
  readonly health?: Latency;
  /** Minimum cosine similarity of its embeddings to those of `server`. */
  readonly cosineToServer?: number;
  /** Ceiling only: time to create the session, and results by batch size. */
  readonly createMs?: number;
  readonly batchSizes?: readonly {
    readonly batchSize: number;
    readonly imagesPerSecond: number;
    readonly cpuMsPerImage: number;
    /** Median time of a run. */
    readonly p50Ms: number;
  }[];
}

const all = ["ceiling", "server", "baseline"];
const thumbnail = { items: "thumbnail", itemsPerRequest: 1, concurrency: 16 } as const;
const photo = { items: "photo", itemsPerRequest: 1, model: "full" } as const;
const full = { model: "full", subjects: all };

export const serverLoads: readonly ServerLoad[] = [
  {
    id: "single",
    title: "10 KB JPEG, batch 1, concurrency 1",
    ...thumbnail,
    concurrency: 1,
    ...full,
    targets: { ofCeiling: 0.97, againstBaseline: 1.15 },
  },
  {
    id: "c16",
    title: "10 KB JPEG, batch 1, concurrency 16",
    ...thumbnail,
    ...full,
    targets: { ofCeiling: 0.97, againstBaseline: 1.3, p95AgainstBaseline: 0.7 },
  },
  {
    id: "batch32",
    title: "10 KB JPEG, batch 32, concurrency 2",
    ...thumbnail,
    itemsPerRequest: 32,
    concurrency: 2,
    ...full,
    targets: { ofCeiling: 0.97, againstBaseline: 1.15 },
  },
  {
    id: "photos",
    title: "240-360 KB photos, batch 1, concurrency 8",
    ...photo,
    concurrency: 8,
    subjects: all,
    targets: { ofCeiling: 0.93, againstBaseline: 1.5 },
  },
  {
    id: "12mp",
    title: "12 MP photos, batch 1, concurrency 4",
    ...photo,
    items: "camera",
    concurrency: 4,
    subjects: all,
    targets: { ofCeiling: 0.9, againstBaseline: 2 },
  },
  {
    id: "tiny",
    title: "tiny model, 10 KB JPEG, batch 1, concurrency 16",
    ...thumbnail,
    model: "tiny",
    subjects: ["server", "baseline"],
    targets: { againstBaseline: 2.5 },
  },
  {
    id: "int8",
    title: "int8, 10 KB JPEG, batch 1, concurrency 16",
    ...thumbnail,
    model: "full",
    subjects: ["server-int8", "baseline"],
    targets: { againstBaseline: 3 },
  },
  {
    id: "health",
    title: "health checks during 240-360 KB photos, batch 1, concurrency 32",
    ...photo,
    concurrency: 32,
    subjects: ["server", "baseline"],
    targets: {},
    healthChecks: true,
  },
];

/** Tower of a model. */
export interface BenchTower {
  /** Name of the model's spec. */
  readonly model: string;
  readonly modality: Modality;
}

/** Loads of any tower: number of clients and targets. */
const towerLoadKinds = {
  single: { concurrency: 1, targets: { addedMs: 3 } },
  c16: { concurrency: 16, targets: { ofCeiling: 0.95 } },
} as const;
export const towerLoadNames = Object.keys(towerLoadKinds) as (keyof typeof towerLoadKinds)[];

/** Name of a tower in records: `dinov2-small:image`. */
export function towerName({ model, modality }: BenchTower): string {
  return `${model}:${modality}`;
}

/** Load of a tower: the server compared with the ceiling. */
export function towerLoad(tower: BenchTower, kind: keyof typeof towerLoadKinds): ServerLoad {
  const { model, modality } = tower;
  const { concurrency, targets } = towerLoadKinds[kind];
  return {
    id: `${towerName(tower)}:${kind}`,
    title: `${model}, ${modality === "image" ? "10 KB JPEG" : "text"}, batch 1, concurrency ${concurrency}`,
    items: modality === "image" ? "thumbnail" : "texts",
    itemsPerRequest: 1,
    concurrency,
    model: towerName(tower),
    subjects: ["ceiling", "server"],
    targets,
  };
}

/**
 * Batch sizes at which the ceiling is measured. A server can batch only the requests in flight, so the ceiling of a load is
 * the best rate at any batch size up to its concurrency, or at the size of its batches.
 */
export function ceilingBatchSizes({ itemsPerRequest, concurrency }: ServerLoad): readonly number[] {
  if (itemsPerRequest > 1) return [itemsPerRequest];
  const sizes = [1, 2, 4, 8, 16, 32].filter((size) => size <= concurrency);
  return sizes.length <= 3 ? sizes : [1, ...sizes.slice(-2)];
}

const rate = (run: ServerRun) => run.imagesPerSecond;
const p95 = (run: ServerRun) => run.latency?.p95Ms;

function measuresOf({ subjects, targets }: ServerLoad): readonly Measure<ServerRun>[] {
  const server = subjects.includes("server-int8") ? "server-int8" : "server";
  const { ofCeiling, againstBaseline, p95AgainstBaseline, addedMs } = targets;
  return [
    {
      name: "images/s as a ratio to the ceiling",
      of: ratio(server, "ceiling", rate),
      target: ofCeiling === undefined ? undefined : atLeast(ofCeiling),
    },
    {
      name: "images/s as a ratio to the baseline",
      of: ratio(server, "baseline", rate),
      target: againstBaseline === undefined ? undefined : atLeast(againstBaseline),
    },
    {
      name: "p95 as a ratio to the baseline",
      of: ratio(server, "baseline", p95),
      target: p95AgainstBaseline === undefined ? undefined : atMost(p95AgainstBaseline),
    },
    ...(addedMs === undefined ? [] : addedMeasures(addedMs)),
    ...ofSubjects(subjects, "images/s", rate),
    ...ofSubjects(subjects, "p50", (run: ServerRun) => run.latency?.p50Ms, "ms"),
    ...ofSubjects(subjects, "p95", p95, "ms"),
    ...ofSubjects(
      subjects,
      "processor time per image",
      (run: ServerRun) => run.cpuMsPerImage,
      "ms",
    ),
  ];
}

/** Latency of one client beyond a run of the ceiling, and beyond decoding and inference of the same requests. */
function addedMeasures(limit: number): readonly Measure<ServerRun>[] {
  return [
    {
      name: "latency added to the ceiling",
      unit: "ms",
      of: ({ server, ceiling }) => {
        const alone = ceiling?.batchSizes?.find(({ batchSize }) => batchSize === 1)?.p50Ms;
        const served = server?.latency?.p50Ms;
        return alone === undefined || served === undefined ? undefined : served - alone;
      },
      target: atMost(limit),
    },
    {
      name: "outside decoding and inference",
      unit: "ms",
      of: ({ server }) => server?.outsideMs,
    },
  ];
}

const lowest = (values: readonly number[]) => Math.min(...values);
const figure = (
  name: string,
  unit: Measure<ServerRun>["unit"],
  of: (round: Round<ServerRun>) => number | undefined,
  target?: Measure<ServerRun>["target"],
): Measure<ServerRun> => ({ name, unit, of, target });

/** Figures of all loads with the full model. */
const fullModelFigures: readonly Measure<ServerRun>[] = [
  figure("resident memory when ready", "MB", ({ server }) => server?.residentMB),
  figure("resident memory after load", "MB", ({ server }) => server?.residentAfterMB, atMost(850)),
  figure(
    "resident memory after load, int8",
    "MB",
    (round) => round["server-int8"]?.residentAfterMB,
    atMost(550),
  ),
  figure("resident memory after load, baseline", "MB", ({ baseline }) => baseline?.residentAfterMB),
  figure("session creation, ONNX Runtime alone", "ms", ({ ceiling }) => ceiling?.createMs),
  ...ofSubjects(
    ["ceiling", "server", "server-int8", "baseline"],
    "process start to ready",
    (run: ServerRun) => run.readyMs,
    "ms",
  ),
  figure(
    "process start to ready ÷ session creation",
    undefined,
    ({ server, ceiling }) => server && ceiling?.createMs && server.readyMs / ceiling.createMs,
    atMost(1.1),
  ),
  figure("GET /healthz during 32 requests, p99", "ms", ({ server }) => server?.health?.p99Ms, {
    bound: "less than",
    value: 20,
  }),
  figure(
    "GET /healthz during 32 requests, p99, baseline",
    "ms",
    ({ baseline }) => baseline?.health?.p99Ms,
  ),
  ...["server-int8", "baseline"].map((subject) => ({
    ...figure(
      `lowest cosine similarity to server, ${subject}`,
      "cosine",
      (round) => round[subject]?.cosineToServer,
    ),
    summary: lowest,
  })),
];

export function serverFigures(loads: readonly ServerLoad[]): readonly Group<ServerRun>[] {
  const fullLoads = loads.filter(({ model }) => model === "full").map(({ id }) => id);
  return [
    ...loads.map((load) => ({
      title: load.title,
      loads: load.id,
      measures: measuresOf(load),
    })),
    ...(fullLoads.length > 0
      ? [{ title: "full model", loads: fullLoads, measures: fullModelFigures }]
      : []),
  ];
}
