import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { ClientError } from "./client-error.ts";

/** Model of a client: the name of one in the catalogue or of one that only the service has, or a spec. */
export type ClientModel = string | ModelSpec;

/** Spec of a model; undefined if only the service has it. */
export function knownSpec(model: ClientModel | undefined): ModelSpec | undefined {
  return typeof model === "string" ? modelCatalogue.get(model) : model;
}

export function nameOf(model: ClientModel | undefined): string | undefined {
  return typeof model === "string" ? model : model?.name;
}

/**
 * Spec of a model that this process preprocesses inputs for.
 *
 * @throws {ClientError} `settings` if it has only a name
 */
export function requiredSpec(model: ClientModel): ModelSpec {
  const spec = knownSpec(model);
  if (spec !== undefined) return spec;
  const names = [...modelCatalogue.keys()].join(", ");
  throw new ClientError(
    "settings",
    `model must be a spec or one of ${names}, got '${nameOf(model)}'`,
  );
}

/** @throws {ClientError} `rejected` if the model has no tower for the modality */
export function requireTower({ name, towers }: ModelSpec, modality: Modality): void {
  if (towers[modality] === undefined) {
    throw new ClientError("rejected", `${name} embeds no ${modality}s`);
  }
}
