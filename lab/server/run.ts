import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";
import { cosine } from "../../target/stats/statistics.ts";
import {
  type BenchTower,
  findLoad,
  type ImageKind,
  type Load,
  loads,
  type SubjectName,
  towerLoadNames,
  towerLoads,
} from "./loads.ts";
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

/**
 * Loads with these names, in the order of the table; all loads if no name is given.
 *
 * @param towers - Towers to measure instead of the default model.
 */
export function chooseLoads(
  names: readonly string[],
  towers: readonly BenchTower[] = [],
): readonly Load[] {
  const isChosen = (name: string) => names.length === 0 || names.includes(name);
  if (towers.length === 0) return loads.filter(({ id }) => isChosen(id));
  return towers.flatMap((tower) =>
    towerLoads(tower).filter((_, index) => isChosen(towerLoadNames[index]!)),
  );
}

/** Images and request bodies of loads. */
export interface Payloads {
  readonly images: ReadonlyMap<ImageKind, readonly Buffer[]>;
  readonly bodies: (load: Load) => readonly Buffer[];
}

export async function makePayloads(chosen: readonly Load[]): Promise<Payloads> {
  const images = new Map<ImageKind, readonly Buffer[]>();
  for (const kind of new Set(chosen.map((load) => load.items))) {
    if (kind !== "texts") images.set(kind, await makeLoadImages(loadImages[kind]));
  }
  return {
    images,
    bodies: ({ items, itemsPerRequest }) =>
      items === "texts"
        ? texts.map((text) => Buffer.from(JSON.stringify({ texts: [text] })))
        : requestBodies(images.get(items)!, itemsPerRequest),
  };
}

/** Captions of the lengths that image search receives: 3 to 60 token ids. */
const texts = [
  "a dog",
  "sunset at the beach",
  "a photo of two children playing football in a park in autumn",
  "red bicycle leaning against a brick wall",
  "an old map of the city centre, with the harbour, the railway station and the names of all streets in small handwriting, " +
    "photographed from above on a wooden table next to a cup of coffee and a pair of glasses",
  "receipt of a restaurant, 1999",
  "mountains, snow, blue sky",
  "寺の写真",
] as const;

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
    const key = (subject: SubjectName) => `${step.load.model} ${step.load.items} ${subject}`;
    embeddings.set(key(step.subject), measured.embeddings);
    runs.push(measured.run);
    onRun(measured.run, index);
  }
  // compared at the end, because the order of the subjects changes between rounds
  return runs.map((run) => {
    const load = findLoad(run.load)!;
    const of = (subject: SubjectName) => embeddings.get(`${load.model} ${load.items} ${subject}`);
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
