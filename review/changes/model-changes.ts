import { vram, vramMiB } from "../../constructs/checks/vram.ts";
import type { Environment, Service } from "../../contract/environment.ts";
import { gigaFlopsPerItem } from "../../contract/model-shapes.ts";
import { type Modality, type ModelSpec, withModalities } from "../../contract/model-spec.ts";
import { environmentOf } from "../facts/workloads.ts";
import { type StackChange, stateBefore } from "../input/change.ts";
import { few } from "../input/stack-facts.ts";
import { isObject } from "../input/value-paths.ts";
import type { Predict } from "./capacity.ts";

/** Sentences about models that a change adds, removes, changes or makes the default. Empty if one of the sides has no environment. */
export function modelNotes(change: StackChange, predict: Predict | undefined): readonly string[] {
  const before = environmentOf(stateBefore(change));
  const after = environmentOf(change);
  if (before === undefined || after === undefined) return [];
  const former = new Map(before.models.map((spec) => [spec.name, spec]));
  const current = new Map(after.models.map((spec) => [spec.name, spec]));
  return [
    ...after.models
      .filter(({ name }) => !former.has(name))
      .map((spec) => addedNote(after, spec, predict)),
    ...before.models
      .filter(({ name }) => !current.has(name))
      .map((spec) => removedNote(before, spec)),
    ...after.models.flatMap((spec) => {
      const old = former.get(spec.name);
      return old === undefined
        ? []
        : [...towerNotes([before, old], [after, spec]), ...changedNote(old, spec)];
    }),
    ...defaultNotes(before.services, after.services),
  ];
}

function addedNote(
  environment: Environment,
  spec: ModelSpec,
  predict: Predict | undefined,
): string {
  const { name, embedding, licence } = spec;
  const facts = [
    ...memoryFacts(environment, spec),
    `embeds ${modalitiesText(spec)}`,
    `${embedding.width} values per embedding`,
    `weights: ${licence.weights}`,
    ...throughputFacts(environment, spec, predict),
  ];
  return `Model ${name} is added: ${facts.join("; ")}.`;
}

function modalitiesText({ towers }: ModelSpec): string {
  return Object.entries(towers)
    .map(([modality, tower]) => `${modality}s (${gigaFlopsPerItem(tower)} GFLOPs each)`)
    .join(" and ");
}

function removedNote(environment: Environment, spec: ModelSpec): string {
  const freed = memoryFacts(environment, spec).map((fact) => `${fact} becomes free; `);
  return `Model ${spec.name} is removed: ${freed.join("")}requests that name it are rejected.`;
}

/** GPU memory of one execution instance in each service that serves the model; none on the CPU. */
function memoryFacts({ gpu, services }: Environment, spec: ModelSpec): readonly string[] {
  if (gpu === undefined) return [];
  const uses = services.flatMap(({ name: service, backend, models }) =>
    backend === "triton" || !models.includes(spec.name)
      ? []
      : [vramMiB({ service, backend, instances: 1, models: [spec] }) - vram.processMiB],
  );
  const total = uses.reduce((sum, miB) => sum + miB, 0);
  const where = uses.length === 1 ? "" : ` in ${uses.length} services`;
  return uses.length === 0 ? [] : [`${memoryText(total)} of GPU memory${where}`];
}

/** Sentences about towers that a model gains or loses. Embeddings of its other tower do not change. */
function towerNotes(
  [before, old]: readonly [Environment, ModelSpec],
  [after, spec]: readonly [Environment, ModelSpec],
): readonly string[] {
  const gained = modalitiesOf(spec).filter((modality) => !(modality in old.towers));
  const lost = modalitiesOf(old).filter((modality) => !(modality in spec.towers));
  return [
    ...gained.map((modality) => {
      const tower = withModalities(spec, [modality]);
      const facts = [...memoryFacts(after, tower), `embeds ${modalitiesText(tower)}`];
      return `The ${modality} tower of ${spec.name} is added: ${facts.join("; ")}.`;
    }),
    ...lost.map((modality) => {
      const tower = withModalities(old, [modality]);
      const freed = memoryFacts(before, tower).map((fact) => `${fact} becomes free; `);
      return `The ${modality} tower of ${old.name} is removed: ${freed.join("")}its ${modality}s are rejected.`;
    }),
  ];
}

function modalitiesOf({ towers }: ModelSpec): readonly Modality[] {
  return Object.keys(towers) as Modality[];
}

function memoryText(miB: number): string {
  const gigabytes = (miB * 1024 ** 2) / 1e9;
  return gigabytes < 1 ? `${Math.round(gigabytes * 1000)} MB` : `${gigabytes.toFixed(1)} GB`;
}

/** Predicted throughput and cost if all services served only this model. */
function throughputFacts(
  environment: Environment,
  spec: ModelSpec,
  predict: Predict | undefined,
): readonly string[] {
  const services = environment.services
    .filter(({ models }) => models.includes(spec.name))
    .map((service) => ({ ...service, models: [spec.name] }));
  if (services.length === 0) return [];
  const { gpu } = environment;
  const alone = { ...environment, models: [spec], services };
  const { imagesPerSecond } = predict?.(alone, () => gpu?.count) ?? {};
  if (!imagesPerSecond) return [];
  const perHour = imagesPerSecond * 3_600;
  const cost =
    gpu === undefined ? "" : `, $${((gpu.usdPerHour / perHour) * 1e6).toFixed(2)} per million`;
  return [
    `predicted ${Math.round(imagesPerSecond).toLocaleString("en")} images/s if it alone is used${cost}`,
  ];
}

/** Fields on which the vectors do not depend. */
const withoutEffect = ["licence", "batching"];

function changedNote(before: ModelSpec, after: ModelSpec): readonly string[] {
  // towers of one side only: towerNotes
  const inBoth = modalitiesOf(after).filter((modality) => modality in before.towers);
  const fields = changedFields(withModalities(before, inBoth), withModalities(after, inBoth));
  if (fields.length === 0) return [];
  const incomparable = fields.some((field) => !withoutEffect.includes(field.split(".")[0]!));
  const effect = incomparable
    ? " Its embeddings before and after the change cannot be compared: recompute stored ones."
    : "";
  return [`Model ${after.name} is changed: ${few(fields)}.${effect}`];
}

/** Paths of the leaves that differ. */
function changedFields(before: unknown, after: unknown, path = ""): readonly string[] {
  if (!isObject(before) || !isObject(after)) {
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [path];
  }
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return keys.flatMap((key) =>
    changedFields(before[key], after[key], path === "" ? key : `${path}.${key}`),
  );
}

/** Triton's clients always name a model. */
function defaultNotes(before: readonly Service[], after: readonly Service[]): readonly string[] {
  return after.flatMap(({ name, kind, models: [model] }) => {
    if (kind !== "embed") return [];
    const former = before.find((service) => service.name === name)?.models[0];
    return former === undefined || former === model
      ? []
      : [`Requests to ${name} without a model get embeddings of ${model} instead of ${former}.`];
  });
}
