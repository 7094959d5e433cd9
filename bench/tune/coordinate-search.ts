import { shuffled } from "../measure/shuffled.ts";
import type { TuneCandidate, TuneResult } from "../record/tune-result.ts";
import { sloTolerance } from "../slo/search-slo.ts";
import { type Interval, meanInterval, ratioOf } from "../stats/intervals.ts";

export type Settings = TuneCandidate["settings"];

/** Setting to vary. */
export interface Variable {
  /** Path in the environment file: `embed.server.maxBatchSize`. */
  readonly setting: string;
  readonly current: number;
  /** Other values to measure. */
  readonly values: readonly number[];
}

export interface CoordinateSearch {
  readonly variables: readonly Variable[];
  /** Maximum rounds of each comparison. */
  readonly rounds: number;
  /** Seed of the order within a round. */
  readonly seed: number;
  /** Measures a candidate once; undefined if the measurement is invalid, because the load generator was too slow. */
  readonly measure: (
    candidate: TuneCandidate,
    round: number,
  ) => Promise<Omit<TuneCandidate["rounds"][number], "round"> | undefined>;
  /** Order in which the settings are varied, once the present ones were measured. */
  readonly ordered: (variables: readonly Variable[]) => readonly Variable[];
  readonly onEnd?: (candidate: TuneCandidate) => void;
}

/** Rounds from which on intervals end candidates: two rounds can agree by chance. */
const minRounds = 3;

/** Measurements of the present settings, until one is valid. */
const presentAttempts = 3;

/** Maximum number of measurements of a search. */
export function maxMeasurements({
  variables,
  rounds,
}: Pick<CoordinateSearch, "variables" | "rounds">) {
  const compared = variables.reduce((sum, { values }) => sum + 1 + values.length, 0);
  return presentAttempts + rounds * (compared + 2);
}

/**
 * Varies one setting after another, each from the best settings so far, and finally compares the best with the present settings in
 * rounds of their own, because the rounds that selected the best flatter it.
 *
 * @param result - Receives candidates and rounds as they are measured, so that it is complete after an interrupt.
 */
export async function searchSettings(search: CoordinateSearch, result: TuneResult): Promise<void> {
  const { variables, rounds } = search;
  const add = (settings: Settings): TuneCandidate => {
    const name = `candidate-${result.candidates.length + 1}`;
    const added: TuneCandidate = { name, settings, rounds: [] };
    result.candidates.push(added);
    return added;
  };
  const present = add(
    Object.fromEntries(variables.map(({ setting, current }) => [setting, current])),
  );
  let round = 1;
  while (round <= presentAttempts && present.rounds.length === 0) {
    await measureOnce(search, present, round++);
  }
  if (present.rounds.length === 0) {
    result.verdict = "not measured";
    return;
  }
  let best = present;
  for (const { setting, values } of search.ordered(variables)) {
    result.varied.push(setting);
    const reference = best;
    const others = values.map((value) => add({ ...reference.settings, [setting]: value }));
    const first = round;
    for (; round < first + rounds && !isDecided(reference, others, first); round++) {
      const racing = [reference, ...others.filter(({ ended }) => ended === undefined)];
      for (const candidate of shuffled(racing, search.seed + round)) {
        await measureOnce(search, candidate, round);
      }
      endSlower(search, reference, others, [first, round]);
    }
    best = betterOf(reference, others, first) ?? reference;
  }
  if (best !== present) {
    result.finalRound = round;
    for (const end = round + rounds; round < end; round++) {
      for (const candidate of shuffled([present, best], search.seed + round)) {
        await measureOnce(search, candidate, round);
      }
    }
    result.ratio = ratioBetween(present, best, result.finalRound);
    if (!isBetter(present, best, result.finalRound, 0)) best = present;
  }
  result.best = best.name;
  const isMet = best.rounds.some(({ imagesPerSecond }) => imagesPerSecond > 0);
  result.verdict = !isMet ? "slo missed" : best === present ? "already best" : "improved";
}

async function measureOnce(
  { measure }: CoordinateSearch,
  candidate: TuneCandidate,
  round: number,
): Promise<void> {
  const measured = await measure(candidate, round);
  if (measured !== undefined) candidate.rounds.push({ round, ...measured });
}

/** Ends the candidates that missed the SLO or whose interval lies below the fastest; the reference stays, because all are compared with it. */
function endSlower(
  { onEnd }: CoordinateSearch,
  reference: TuneCandidate,
  others: readonly TuneCandidate[],
  [first, round]: readonly [first: number, round: number],
): void {
  const active = others.filter(({ ended }) => ended === undefined);
  const fastest = [reference, ...active].reduce((a, b) =>
    meanRate(b, first) > meanRate(a, first) ? b : a,
  );
  for (const candidate of active) {
    const last = candidate.rounds.at(-1);
    if (last?.round !== round || candidate === fastest) continue;
    const isSlower = candidate.rounds.length >= minRounds && isBetter(candidate, fastest, first);
    if (last.imagesPerSecond > 0 && !isSlower) continue;
    candidate.ended = { round, reason: last.imagesPerSecond > 0 ? "slower" : "slo" };
    onEnd?.(candidate);
  }
}

/** Returns whether further rounds cannot change the choice: all others were ended, or the only one left is better. */
function isDecided(
  reference: TuneCandidate,
  others: readonly TuneCandidate[],
  first: number,
): boolean {
  const [left, ...more] = others.filter(({ ended }) => ended === undefined);
  if (left === undefined) return true;
  const isEnough = left.rounds.length >= minRounds && isBetter(reference, left, first);
  return more.length === 0 && isEnough && meanRate(reference, first) > 0;
}

/** The fastest of the candidates that are better than the reference. */
function betterOf(
  reference: TuneCandidate,
  others: readonly TuneCandidate[],
  first: number,
): TuneCandidate | undefined {
  return others
    .filter((other) => other.ended === undefined && isBetter(reference, other, first))
    .sort((a, b) => meanRate(b, first) - meanRate(a, first))[0];
}

/** Returns whether `b` met the SLO in every round from `first` on, and its rate exceeds that of `a` by more than `margin` with 95 % confidence. */
function isBetter(
  a: TuneCandidate,
  b: TuneCandidate,
  first: number,
  margin: number = sloTolerance,
): boolean {
  const rates = ratesFrom(b, first);
  if (rates.length === 0 || rates.some((rate) => rate === 0)) return false;
  if (meanRate(a, first) === 0) return true;
  return (ratioBetween(a, b, first)?.low ?? 0) > 1 + margin;
}

/** Ratio `b` / `a` over the rounds from `first` on in which both met the SLO, paired by round. */
function ratioBetween(a: TuneCandidate, b: TuneCandidate, first: number): Interval | undefined {
  const logs = b.rounds.flatMap(({ round, imagesPerSecond }) => {
    const other = a.rounds.find((same) => same.round === round)?.imagesPerSecond ?? 0;
    return round >= first && other > 0 && imagesPerSecond > 0
      ? [Math.log(imagesPerSecond / other)]
      : [];
  });
  return ratioOf(meanInterval(logs));
}

function ratesFrom({ rounds }: TuneCandidate, first: number): readonly number[] {
  return rounds.flatMap(({ round, imagesPerSecond }) => (round >= first ? [imagesPerSecond] : []));
}

function meanRate(candidate: TuneCandidate, first: number): number {
  const rates = ratesFrom(candidate, first);
  return rates.reduce((sum, rate) => sum + rate, 0) / Math.max(1, rates.length);
}
