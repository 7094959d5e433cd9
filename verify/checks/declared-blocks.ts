import type { Artefact } from "../../artefact/artefact.ts";
import type { ContainerBlock } from "../../artefact/container-workload.ts";
import type { DeployedState } from "../../artefact/docker-inspect.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import type { Service } from "../../contract/environment.ts";

/** Container of the synthesized file with its service. */
export interface DeclaredBlock extends ContainerBlock {
  /** Absent for a container that runs once and exits. */
  readonly service?: Service;
}

/** Lists the containers of the synthesized file, with names that only the state has. */
export function declaredBlocks(artefact: Artefact, state: DeployedState): readonly DeclaredBlock[] {
  return artefact.containers.map((block) => {
    const { address, declared } = block;
    const name = declared.name.includes("${") ? state.names.get(address) : undefined;
    return {
      ...block,
      declared: { ...declared, name: name ?? declared.name },
      service: artefact.workloads.find((workload) => workload.address === address)?.service,
    };
  });
}

type ResultFacts = [
  environment: string,
  id: CheckResult["id"],
  outcome: CheckResult["outcome"],
  message: string,
  measured?: Record<string, number>,
];

/** Result about a container. */
export function blockResult(
  { address, declared, service }: DeclaredBlock,
  ...[environment, id, outcome, message, measured = {}]: ResultFacts
): CheckResult {
  const resource = `${address} (container '${declared.name}')`;
  const name = service?.name ?? declared.name;
  return { id, environment, service: name, resource, outcome, message, measured };
}

/** Result about a Kubernetes object. */
export function objectResult(
  { address, manifest }: DeclaredObject,
  ...[environment, id, outcome, message, measured = {}]: ResultFacts
): CheckResult {
  const service = manifest.metadata.name ?? "";
  const resource = `${address} (${manifest.kind} '${service}')`;
  return { id, environment, service, resource, outcome, message, measured };
}
