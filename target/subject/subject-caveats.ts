import type { Caveat } from "../../report/document/document.ts";
import { counted, listed } from "../../report/document/number-format.ts";
import {
  type EnvironmentSubject,
  isStandIn,
  type MachineSubject,
  type ModelSubject,
  modelsOf,
  type TargetKind,
} from "./subject.ts";
import { modelText } from "./subject-text.ts";

/** Subject of a run, whichever command made its record. */
interface RunSubject {
  readonly target: TargetKind;
  readonly dirty?: boolean;
  readonly machine: MachineSubject;
  readonly model: ModelSubject;
  readonly environments: readonly EnvironmentSubject[];
}

/** Severe limitations in a few words; empty if there are none. */
export function warningText(caveats: readonly Caveat[]): string {
  const titles = caveats
    .filter(({ kind }) => kind !== "know")
    .map(({ title }, i) => (i === 0 ? title : `${title.charAt(0).toLowerCase()}${title.slice(1)}`));
  return listed(titles);
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

export function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
