import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";
import { cosine } from "../stats/statistics.ts";
import { type ImageKind, type Load, loads, type SubjectName } from "./loads.ts";
import { type Bench, type Measured, measure } from "./measure.ts";
import type { BenchRun } from "./record.ts";

/** One measurement of a plan. */
export interface Step {
  readonly round: number;
  readonly load: Load;
  readonly subject: SubjectName;
}

/**
 * Order of the measurements: every subject of every load in each round. Every second round reverses the subjects, so that
 * a machine that becomes slower or faster favours none of them.
 */
export function planRounds(
  chosen: readonly Load[],
  rounds: number,
  excluded: ReadonlySet<SubjectName>,
): readonly Step[] {
  return Array.from({ length: rounds }, (_, index) => index + 1).flatMap((round) =>
    chosen.flatMap((load) => {
      const subjects = load.subjects.filter((subject) => !excluded.has(subject));
      const ordered = round % 2 === 1 ? subjects : [...subjects].reverse();
      return ordered.map((subject) => ({ round, load, subject }));
    }),
  );
}

/** Loads with these names, in the order of the table; all loads if no name is given. */
export function chooseLoads(names: readonly string[]): readonly Load[] {
  return names.length === 0 ? loads : loads.filter(({ id }) => names.includes(id));
}

/** Images and request bodies of loads. */
export interface Payloads {
  readonly images: ReadonlyMap<ImageKind, readonly Buffer[]>;
  readonly bodies: (load: Load) => readonly Buffer[];
}

export async function makePayloads(chosen: readonly Load[]): Promise<Payloads> {
  const images = new Map<ImageKind, readonly Buffer[]>();
  for (const kind of new Set(chosen.map((load) => load.images))) {
    images.set(kind, await makeLoadImages(loadImages[kind]));
  }
  return {
    images,
    bodies: (load) => requestBodies(images.get(load.images)!, load.imagesPerRequest),
  };
}

function requestBodies(images: readonly Buffer[], imagesPerRequest: number): readonly Buffer[] {
  return images.map((_, first) =>
    requestBody(
      Array.from(
        { length: imagesPerRequest },
        (_unused, i) => images[(first + i) % images.length]!,
      ),
    ),
  );
}

function requestBody(images: readonly Buffer[]): Buffer {
  return Buffer.from(JSON.stringify({ images: images.map((image) => image.toString("base64")) }));
}

/** Measures the steps of a plan one at a time; `onRun` is called after each. */
export async function runPlan(
  bench: Bench,
  steps: readonly Step[],
  onRun: (run: BenchRun, index: number) => void,
): Promise<readonly BenchRun[]> {
  const embeddings = new Map<string, Measured["embeddings"]>();
  const runs: BenchRun[] = [];
  for (const [index, step] of steps.entries()) {
    bench.signal.throwIfAborted();
    const measured = await measure(bench, step.load, step.subject, step.round);
    const key = (subject: SubjectName) => `${step.load.model} ${step.load.images} ${subject}`;
    embeddings.set(key(step.subject), measured.embeddings);
    runs.push(measured.run);
    onRun(measured.run, index);
  }
  // compared at the end, because the order of the subjects changes between rounds
  const model = new Map(loads.map((load) => [load.id, load]));
  return runs.map((run) => {
    const load = model.get(run.load)!;
    const of = (subject: SubjectName) => embeddings.get(`${load.model} ${load.images} ${subject}`);
    return { ...run, cosineToServer: smallestCosine(of(run.subject), of("server")) };
  });
}

function smallestCosine(
  a: Measured["embeddings"] | undefined,
  b: Measured["embeddings"] | undefined,
): number | undefined {
  if (a === undefined || b === undefined || a.length === 0 || a.length !== b.length)
    return undefined;
  return Math.min(...a.map((vector, index) => cosine(vector, b[index]!)));
}
