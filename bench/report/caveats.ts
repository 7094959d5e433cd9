import type { BenchRecord, Cell } from "../src/bench-record.ts";
import { enginesText } from "../src/summary.ts";
import { trustOf } from "./cells.ts";
import { counted, formatCount, listed } from "./document.ts";

/** What the numbers do not say. */
export interface Caveat {
  readonly title: string;
  /** In whole sentences. */
  readonly text: string;
  /**
   * `subject`: the figures are not those of what will be deployed. `figures`: some of them are not to be relied on.
   * `know`: good to know.
   */
  readonly kind: "subject" | "figures" | "know";
}

/** Everything that a reader must know before trusting a number, the gravest first. */
export function caveatsOf(record: BenchRecord): readonly Caveat[] {
  return [...subjectCaveats(record), ...figureCaveats(record), ...knowledge(record)];
}

/** The gravest in a few words, for the top of a report; nothing where there is none. */
export function warningText(record: BenchRecord): string {
  const titles = caveatsOf(record)
    .filter(({ kind }) => kind !== "know")
    .map(({ title }, i) => (i === 0 ? title : `${title.charAt(0).toLowerCase()}${title.slice(1)}`));
  return listed(titles);
}

/** Whether the figures are those of the thing that will be deployed. */
export function isTheRealThing(record: BenchRecord): boolean {
  return subjectCaveats(record).length === 0;
}

function subjectCaveats({ subject }: BenchRecord): readonly Caveat[] {
  const caveats: Caveat[] = [];
  const add = (title: string, text: string) => caveats.push({ kind: "subject", title, text });
  const onGpu = subject.environments.filter(({ accelerator }) => accelerator === "gpu");
  if (subject.runtime === "embedded" && onGpu.length > 0) {
    add(
      "CPU in place of a GPU",
      `${listed(onGpu.map(({ name }) => name))} will run on GPUs, but here ${counted(subject.machine.cores, "CPU core")} computed, and the load generator shared them. Latency and throughput say nothing about a GPU, and nothing about one path against another on it.`,
    );
  }
  if (subject.runtime === "embedded") {
    add(
      "Embedded runtime",
      "Local processes of clipstack's bundled server stood in for the containers. Ports, settings, models and protocols are the synthesized ones; images, drivers, networks and limits were not tried.",
    );
  }
  if (subject.model.name === "tiny") {
    add(
      "Tiny model",
      "A toy for tests, with random weights, computed in place of ViT-B/32: the figures are those of the servers and the protocols around it, and its embeddings mean nothing.",
    );
  }
  return caveats;
}

function figureCaveats(record: BenchRecord): readonly Caveat[] {
  const caveats: Caveat[] = [];
  const add = (title: string, text: string) => caveats.push({ kind: "figures", title, text });
  const { cells, settings } = record;
  if (record.interrupted) {
    add("Interrupted", "Ctrl-C or a signal ended the run: what was measured until then is here.");
  }
  const invalid = cells.filter((cell) => trustOf(cell) === "invalid");
  if (invalid.length > 0) {
    const reasons = alike(invalid.flatMap((cell) => cell.invalid));
    add(
      `${counted(invalid.length, "load")} invalid`,
      `${named(invalid)}. ${reasons.slice(0, 3).join(" ")} They are shown, and left out of every choice.`,
    );
  }
  const unstable = cells.filter((cell) => trustOf(cell) === "unstable");
  if (unstable.length > 0) {
    const never = unstable.filter(({ stability }) => stability.verdict === "unstable");
    const what =
      never.length === unstable.length
        ? "unstable"
        : never.length === 0
          ? "too short"
          : "unstable or too short";
    add(
      `${counted(unstable.length, "load")} ${what}`,
      `${named(unstable)}. ${settings.stableWindows} windows in a row must agree within ${Math.round(settings.tolerance * 100)} % on throughput and p99; here they did not, or there were too few of them. A stable load is preferred in every choice.`,
    );
  }
  const empty = cells.filter((cell) => trustOf(cell) === "empty");
  if (empty.length > 0) {
    add(`${counted(empty.length, "load")} without an answer`, `${named(empty)}.`);
  }
  const failed = cells.filter(({ errorsInAll }) => Object.keys(errorsInAll).length > 0);
  if (failed.length > 0) {
    const codes = new Map<string, number>();
    for (const { errorsInAll } of failed) {
      for (const [code, count] of Object.entries(errorsInAll)) {
        codes.set(code, (codes.get(code) ?? 0) + count);
      }
    }
    add(
      "Failed requests",
      `${listed([...codes].map(([code, count]) => `${formatCount(count)} × ${code}`))} in ${named(failed)}, warm-up included. They are counted, and not in the percentiles.`,
    );
  }
  const few = cells.filter(({ latencyMs }) => latencyMs?.p99Reliable === false);
  if (few.length > 0) {
    add(
      "Few samples",
      `A p99 marked with * comes from fewer than ${settings.p99MinimumSamples} requests, and is about the slowest of them: ${few.length === cells.length ? "all loads" : `${few.length} of ${counted(cells.length, "load")}`}.`,
    );
  }
  return caveats;
}

function knowledge({ subject, cells, notes }: BenchRecord): readonly Caveat[] {
  const caveats: Caveat[] = [];
  const add = (title: string, text: string) => caveats.push({ kind: "know", title, text });
  const payloads = new Set(cells.map(({ payload }) => payload));
  if (payloads.has("encoded") && payloads.size > 1) {
    add(
      "Decoding",
      "Paths that take files (`embed-http`, `…_jpeg`) decode and resize them on the server. The others were sent tensors that were made before the clock started: what a client needs for that comes on top of their figures.",
    );
  }
  if (subject.model.weights === "random" && subject.model.name !== "tiny") {
    add(
      "Random weights",
      "The model has the real architecture and cost, but its embeddings mean nothing. Timings hold; do not judge the quality of embeddings from this run.",
    );
  }
  if (subject.runtime === "deployed") {
    add(
      "The way is in it",
      "Requests came from the machine named below: latency has the network between in it, and a client elsewhere will see another one.",
    );
  }
  if (subject.runtime === "endpoints") {
    add(
      "Addresses given by hand",
      "Nothing is known of how the servers were deployed, but what they say of themselves.",
    );
  }
  if (cells.some(({ load }) => load.kind === "closed loop")) {
    add(
      "Closed loop",
      "Each client waits for its answer before it asks again: it shows how much a path can do, and hides stalls that arrivals at a given rate would meet.",
    );
  }
  const engines = enginesText(subject.environments);
  if (engines !== "" && subject.runtime === "deployed") add("Engine", engines);
  if (subject.dirty === true) add("Changes", "Files differed from the commit that is named.");
  for (const { name, artefact, notes: differences } of subject.environments) {
    if (artefact.editedByHand) {
      add(
        name,
        `${artefact.file} was edited after it was synthesized, and was measured as it lies.`,
      );
    }
    for (const note of differences) add(name, sentence(note));
  }
  for (const note of notes) add("Note", sentence(note));
  return caveats;
}

/** The first of each reason: loads say the same with other numbers. */
function alike(reasons: readonly string[]): readonly string[] {
  const known = new Map<string, string>();
  for (const reason of reasons) {
    const key = reason.replace(/[\d.]+/g, "#");
    if (!known.has(key)) known.set(key, reason);
  }
  return [...known.values()];
}

const shown = 4;

function named(cells: readonly Cell[]): string {
  const names = cells.slice(0, shown).map(({ id }) => id);
  return cells.length > shown
    ? `${names.join("; ")}; and ${counted(cells.length - shown, "other")}`
    : names.join("; ");
}

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
