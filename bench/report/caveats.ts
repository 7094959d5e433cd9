import type { Caveat } from "../../report/document/document.ts";
import { counted, formatCount, listed } from "../../report/document/number-format.ts";
import { runCaveats, sentence, subjectCaveats } from "../../target/subject/subject-caveats.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { trustOf } from "./load-points.ts";

/** Limitations of a benchmark's figures, most severe first. */
export function caveatsOf(record: BenchRecord): readonly Caveat[] {
  return [...subjectCaveats(record.subject), ...figureCaveats(record), ...knowledge(record)];
}

/** Returns whether the figures are those of the deployment. */
export function representsDeployment({ subject }: BenchRecord): boolean {
  return subjectCaveats(subject).length === 0;
}

function figureCaveats(record: BenchRecord): readonly Caveat[] {
  const caveats: Caveat[] = [];
  const add = (title: string, text: string) => caveats.push({ kind: "figures", title, text });
  const { loadPoints, settings } = record;
  if (record.interrupted) {
    add(
      "Interrupted",
      "Ctrl-C or a signal ended the run; the record contains the measurements up to then.",
    );
  }
  const invalid = loadPoints.filter((point) => trustOf(point) === "invalid");
  if (invalid.length > 0) {
    const reasons = distinctReasons(invalid.flatMap((point) => point.invalid));
    add(
      `${counted(invalid.length, "load point")} invalid`,
      `${named(invalid)}. ${reasons.slice(0, 3).join(" ")} Invalid load points are listed but never recommended.`,
    );
  }
  const unstable = loadPoints.filter((point) => trustOf(point) === "unstable");
  if (unstable.length > 0) {
    const drifting = unstable.filter(({ stability }) => stability.verdict === "drifting");
    const what =
      drifting.length === unstable.length
        ? "drifting"
        : drifting.length === 0
          ? "too short"
          : "drifting or too short";
    add(
      `${counted(unstable.length, "load point")} ${what}`,
      `${named(unstable)}. The throughput has a significant trend (1 % level, at least 5 %) within the rounds or from round to round, or there are too few windows or rounds to detect one. Compare them with care, if at all.`,
    );
  }
  if (settings.rounds === 1 && loadPoints.length > 0) {
    add(
      "One round",
      "Differences between rounds are unknown, so there are no intervals and nothing is compared. Measure at least two rounds (`--rounds`).",
    );
  }
  const empty = loadPoints.filter((point) => trustOf(point) === "empty");
  if (empty.length > 0) {
    add(`${counted(empty.length, "load point")} without a response`, `${named(empty)}.`);
  }
  const failed = loadPoints.filter(
    ({ errorsWithWarmup }) => Object.keys(errorsWithWarmup).length > 0,
  );
  if (failed.length > 0) {
    const codes = new Map<string, number>();
    for (const { errorsWithWarmup } of failed) {
      for (const [code, count] of Object.entries(errorsWithWarmup)) {
        codes.set(code, (codes.get(code) ?? 0) + count);
      }
    }
    add(
      "Failed requests",
      `${listed([...codes].map(([code, count]) => `${formatCount(count)} × ${code}`))} in ${named(failed)}, warm-up included. Percentiles exclude them.`,
    );
  }
  const few = loadPoints.filter(({ latencyMs }) => latencyMs?.p99Reliable === false);
  if (few.length > 0) {
    add(
      "Few samples",
      `A p99 marked with * comes from fewer than ${settings.p99MinimumSamples} requests and is close to the maximum: ${few.length === loadPoints.length ? "all load points" : `${few.length} of ${counted(loadPoints.length, "load point")}`}.`,
    );
  }
  return caveats;
}

function knowledge({ subject, loadPoints, notes }: BenchRecord): readonly Caveat[] {
  const caveats: Caveat[] = [...runCaveats(subject)];
  const add = (title: string, text: string) => caveats.push({ kind: "know", title, text });
  const payloads = new Set(loadPoints.map(({ payload }) => payload));
  if (payloads.has("jpeg") && payloads.size > 1) {
    add(
      "Decoding",
      "Endpoints that accept image files (`embed-http`, `pytorch-http`, `…_jpeg`) decode and resize them on the server. The others received tensors that were prepared before the measurement, so their figures exclude that client work.",
    );
  }
  if (subject.target === "addresses") {
    add(
      "Addresses given by hand",
      "The deployment of the servers is unknown, except for what they report about themselves.",
    );
  }
  if (loadPoints.some(({ load }) => load.kind === "closed loop")) {
    add(
      "Closed loop",
      "Each client sends its next request after the previous response. This measures the capacity of an endpoint and hides stalls that requests at a fixed rate would encounter.",
    );
  }
  for (const note of notes) add("Note", sentence(note));
  return caveats;
}

/** Removes reasons that differ only in numbers. */
function distinctReasons(reasons: readonly string[]): readonly string[] {
  const known = new Map<string, string>();
  for (const reason of reasons) {
    const key = reason.replace(/[\d.]+/g, "#");
    if (!known.has(key)) known.set(key, reason);
  }
  return [...known.values()];
}

const maxListed = 4;

function named(loadPoints: readonly LoadPoint[]): string {
  const names = loadPoints.slice(0, maxListed).map(({ id }) => id);
  const rest = loadPoints.length - maxListed;
  return `${names.join("; ")}${rest > 0 ? `; and ${counted(rest, "other")}` : ""} (b: images per request, c: clients)`;
}
