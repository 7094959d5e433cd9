import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import {
  type EnvironmentSubject,
  isStandIn,
  type ModelSubject,
  modelsOf,
  type VerifyRecord,
} from "../record/record.ts";
import type { Caveat } from "./document.ts";
import { trustOf } from "./load-points.ts";
import { counted, formatCount, listed } from "./number-format.ts";
import { modelText } from "./subject.ts";

/** Subject of a run, whichever command made its record. */
interface RunSubject {
  readonly target: "simulation" | "deployed" | "addresses";
  readonly dirty?: boolean;
  readonly machine: VerifyRecord["subject"]["machine"];
  readonly model: ModelSubject;
  readonly environments: readonly EnvironmentSubject[];
}

/** Limitations of a benchmark's figures, most severe first. */
export function caveatsOf(record: BenchRecord): readonly Caveat[] {
  return [...subjectCaveats(record.subject), ...figureCaveats(record), ...knowledge(record)];
}

/** Severe limitations in a few words; empty if there are none. */
export function warningText(caveats: readonly Caveat[]): string {
  const titles = caveats
    .filter(({ kind }) => kind !== "know")
    .map(({ title }, i) => (i === 0 ? title : `${title.charAt(0).toLowerCase()}${title.slice(1)}`));
  return listed(titles);
}

/** Returns whether the figures are those of the deployment. */
export function representsDeployment({ subject }: BenchRecord): boolean {
  return subjectCaveats(subject).length === 0;
}

/** Differences between what was measured and what will be deployed. */
export function subjectCaveats(subject: RunSubject): readonly Caveat[] {
  const caveats: Caveat[] = [];
  const add = (title: string, text: string) => caveats.push({ kind: "subject", title, text });
  const onGpu = subject.environments.filter(({ accelerator }) => accelerator === "gpu");
  if (subject.target === "simulation" && onGpu.length > 0) {
    add(
      "CPU instead of GPU",
      `${listed(onGpu.map(({ name }) => name))} ${onGpu.length === 1 ? "is" : "are"} configured for GPUs, but this run used ${counted(subject.machine.cores, "CPU core")}, shared with the load generator. The figures predict neither the latency and throughput on a GPU nor which endpoint is faster there.`,
    );
  }
  if (subject.target === "simulation") {
    add(
      "Local simulation",
      "Local processes of clipstack's server and Triton emulator replaced the containers. Ports, settings, models and protocols were tested as synthesized; images, drivers, networks and resource limits were not.",
    );
  }
  const withTiny = subject.environments.filter(({ model, models }) =>
    (models ?? [model ?? subject.model]).some(({ name }) => name === "tiny"),
  );
  if (withTiny.length > 0 || subject.model.name === "tiny") {
    const isAll = withTiny.length === subject.environments.length;
    const where = isAll ? "the environment" : listed(withTiny.map(({ name }) => name));
    add(
      "Tiny model",
      `A small test model with random weights replaced the model of ${where}. The figures show the cost of servers and protocols without the model, and the embeddings are meaningless.`,
    );
  }
  const standIns = modelsOf(subject.model, subject.environments).filter(isStandIn);
  if (standIns.length > 0) {
    const names = new Set(standIns.map(({ name, spec }) => spec ?? name));
    add(
      "Stand-in",
      `A small generated model with random weights replaced ${listed([...names])}, because the generator does not know the architecture. Speed and size are not those of the model, and the embeddings are meaningless.`,
    );
  }
  return caveats;
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

/**
 * Facts about a run that do not make its figures wrong.
 *
 * @param random - Severity of random weights, which do not change speed.
 */
export function runCaveats(
  subject: RunSubject,
  random: Caveat["kind"] = "know",
): readonly Caveat[] {
  const caveats: Caveat[] = [];
  const add = (title: string, text: string, kind: Caveat["kind"] = "know") =>
    caveats.push({ kind, title, text });
  const { target, model, environments, dirty } = subject;
  const untrained = modelsOf(model, environments).filter(
    (one) => one.weights === "random" && one.name !== "tiny" && !isStandIn(one),
  );
  if (untrained.length > 0) {
    const names = new Set(untrained.map(({ name, spec }) => spec ?? name));
    add(
      "Random weights",
      `The weights of ${listed([...names])} are random: architecture and cost are those of the model, but the embeddings are meaningless. Timings and parity between endpoints are valid; the quality of embeddings is not.`,
      random,
    );
  }
  if (target === "deployed") {
    add(
      "Network included",
      "Requests came from the load generator named below, so latency includes its network path; other clients see different figures.",
    );
  }
  if (dirty === true) add("Uncommitted changes", "Files differed from the commit.");
  for (const { name, artefact, model: own, notes } of environments) {
    if (own !== undefined) add(name, `Compared with its own model, ${modelText(own)}.`);
    if (artefact.editedByHand) {
      add(name, `${artefact.file} was edited after it was synthesized, and was used as edited.`);
    }
    for (const note of notes) add(name, sentence(note));
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

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
