import type { Load } from "../rounds/comparison.ts";
import {
  atLeast,
  atMost,
  type Group,
  type Measure,
  ofSubjects,
  type Run,
  ratio,
} from "../rounds/figures.ts";

/** BULK_MEMORY_MIB of all workers: the default. */
export const memoryMiB = 384;

/** Workers of a subject, each on cores of its own. */
export interface Workers {
  readonly count: 1 | 2;
  readonly coresEach: 1 | 2;
  /** `free`: returns a part of the pixels as embedding. */
  readonly model: "full" | "free";
  /** `mixed`: 4 KB to 40 MP. */
  readonly images: "thumbnails" | "photos" | "mixed";
}

const worker: Workers = { count: 1, coresEach: 2, model: "full", images: "thumbnails" };

export const workersOf: Readonly<Record<string, Workers>> = {
  worker,
  "one core": { ...worker, coresEach: 1 },
  "two workers": { ...worker, count: 2, coresEach: 1 },
  "worker, photos": { ...worker, images: "photos" },
  "free model": { ...worker, model: "free" },
  "mixed sizes": { ...worker, model: "free", images: "mixed" },
};

/** ONNX Runtime alone with the session options of a worker, as many processes with as many cores. */
export const runtimesOf: Readonly<Record<string, Pick<Workers, "count" | "coresEach">>> = {
  runtime: worker,
  "one-core runtime": { count: 1, coresEach: 1 },
  "two runtimes": { count: 2, coresEach: 1 },
};

export interface BulkLoad extends Load {
  /** Images of a job; more or fewer with another `--seconds` than the default. */
  readonly images: number;
}

export const bulkLoads: readonly BulkLoad[] = [
  {
    id: "model",
    title: "10 KB images, ViT-B/32, two cores",
    subjects: ["worker", "runtime"],
    images: 512,
  },
  {
    id: "decoding",
    title: "10 KB images, inference without cost, two cores",
    subjects: ["free model", "sharp"],
    images: 8_000,
  },
  {
    id: "workers",
    title: "10 KB images, ViT-B/32, workers of one core each",
    subjects: ["one core", "two workers", "one-core runtime", "two runtimes"],
    images: 320,
  },
  {
    id: "memory",
    title: `images of 4 KB to 40 MP, BULK_MEMORY_MIB ${memoryMiB}`,
    subjects: ["free model", "mixed sizes"],
    images: 96,
  },
  {
    id: "clip-retrieval",
    title: "10 KB images, ViT-B/32, clip-retrieval on the same cores",
    subjects: ["worker", "clip-retrieval"],
    images: 384,
  },
  {
    id: "clip-retrieval-photos",
    title: "240-360 KB photos, ViT-B/32, clip-retrieval on the same cores",
    subjects: ["worker, photos", "clip-retrieval, photos"],
    images: 384,
  },
];

export interface BulkRun extends Run {
  readonly imagesPerSecond: number;
  /** Maximum resident memory of all processes of the subject in MB; shared pages count once. */
  readonly peakMB?: number;
}

const rate = ({ imagesPerSecond }: BulkRun) => imagesPerSecond;

const againstClipRetrieval = (images: string): Measure<BulkRun> => ({
  name: "worker ÷ clip-retrieval",
  of: ratio(`worker${images}`, `clip-retrieval${images}`, rate),
  target: atLeast(1.5),
});

const measures: Readonly<Record<string, readonly Measure<BulkRun>[]>> = {
  model: [
    { name: "worker ÷ runtime", of: ratio("worker", "runtime", rate), target: atLeast(0.97) },
  ],
  decoding: [
    { name: "worker ÷ sharp", of: ratio("free model", "sharp", rate), target: atLeast(0.8) },
  ],
  workers: [
    {
      name: "two workers ÷ one",
      of: ratio("two workers", "one core", rate),
      target: atLeast(1.9),
    },
    { name: "two runtimes ÷ one", of: ratio("two runtimes", "one-core runtime", rate) },
  ],
  memory: [
    {
      name: "memory for images",
      unit: "MB",
      of: ({ "mixed sizes": mixed, "free model": idle }) =>
        mixed?.peakMB && idle?.peakMB && mixed.peakMB - idle.peakMB,
      target: atMost(memoryMiB * 1.048576),
    },
  ],
  "clip-retrieval": [againstClipRetrieval("")],
  "clip-retrieval-photos": [againstClipRetrieval(", photos")],
};

export function bulkFigures(loads: readonly BulkLoad[]): readonly Group<BulkRun>[] {
  return loads.map(({ id, title, subjects }) => ({
    title,
    loads: id,
    measures: [
      ...measures[id]!,
      ...ofSubjects(subjects, "images/s", rate),
      ...ofSubjects(subjects, "peak memory", ({ peakMB }: BulkRun) => peakMB, "MB"),
    ],
  }));
}
