import { type TritonServerKind, tritonServers } from "../../contract/environment.ts";
import type { Fact } from "../../report/document/document.ts";
import type { EnvironmentSubject, ModelSubject, TargetKind } from "./subject.ts";

/** Label of the Triton servers that the environments declare; a simulation has none of them. */
export function tritonLabel(target: TargetKind): string {
  return target === "deployed" ? "Deployed Triton" : "Declared Triton";
}

/** Name of a model, its architecture, weights, seed and short hash. */
export function modelText(model: ModelSubject): string {
  const facts = [
    model.spec,
    model.architecture,
    model.weights === undefined ? undefined : `${model.weights} weights`,
    model.seed === undefined ? undefined : `seed ${model.seed}`,
    model.sha256 === undefined ? undefined : `sha256 ${model.sha256.slice(0, 12)}`,
  ].filter((fact) => fact !== undefined);
  return facts.length === 0 ? model.name : `${model.name} (${facts.join(", ")})`;
}

const serverNames: Readonly<Record<TritonServerKind, string>> = {
  tritonserver: "NVIDIA's tritonserver",
  emulator: "clipstack's Triton emulator",
};

/** Names the server program of each deployed Triton service; empty if no artefact declares it. */
export function tritonsText(environments: readonly EnvironmentSubject[]): string {
  const parts = environments.flatMap(({ name, services }) =>
    tritonServers.flatMap((server) => {
      const names = services.filter((service) => service.server === server).map((it) => it.name);
      return names.length === 0 ? [] : [`${names.join(", ")} of ${name}: ${serverNames[server]}`];
    }),
  );
  return parts.join("; ");
}

/** Artefact and Docker endpoint or cluster of each environment. */
export function artefactFacts(environments: readonly EnvironmentSubject[]): readonly Fact[] {
  return environments.map(({ name, artefact, where }) => [
    name,
    `${artefact.file}, sha256 ${artefact.sha256.slice(0, 16)}, at ${where}`,
  ]);
}
