import type { ClusterInspection } from "../../artefact/cluster-objects.ts";
import type { DeployedState, Inspection } from "../../artefact/docker-inspect.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { differences } from "./aspect.ts";
import type { Check } from "./check.ts";
import { aspectsOf } from "./container-aspects.ts";
import { blockResult, type DeclaredBlock, objectResult } from "./declared-blocks.ts";
import { manifestAspects } from "./manifest-aspects.ts";

type Outcome = CheckResult["outcome"];

export const containerCheck: Check = {
  name: "container",
  question:
    "Is each deployed container or object as declared: user, privileges, GPUs, ports, image?",
  only: "deployed",
  runEnvironment({ environment, deployment }) {
    if (deployment === undefined) return [];
    const { blocks, inspection, moduleFolder, artefact, cluster } = deployment;
    const { state, appliedOutsideTerraform } = deployment.environment;
    const containers = blocks.flatMap((block) =>
      checkContainer(environment, block, inspection, state, moduleFolder),
    );
    if (cluster === undefined) return containers;
    const objects = artefact.objects.flatMap((object) =>
      checkObject(environment, object, cluster, appliedOutsideTerraform),
    );
    return [...containers, ...objects];
  },
};

/** Reports each difference of a container from its declaration, or the compared aspects if there is none. */
export function checkContainer(
  environment: string,
  block: DeclaredBlock,
  inspection: Inspection,
  state: DeployedState,
  moduleFolder: string,
): readonly CheckResult[] {
  const report = (outcome: Outcome, message: string, measured?: Record<string, number>) =>
    blockResult(block, environment, "container", outcome, message, measured);
  const { declared } = block;
  // an uninspected container must not pass
  if (!inspection.ok) return [report("fail", inspection.message)];
  const found = inspection.containers.get(declared.name);
  if (found === undefined) return [report("skip", "the container does not exist")];
  const problems: string[] = [];
  const id = state.ids.get(block.address);
  if (id !== undefined && id !== found.Id) {
    problems.push(`must be container ${short(id)} of the Terraform state, got ${short(found.Id)}`);
  }
  const imageId = block.image === undefined ? undefined : state.ids.get(block.image);
  const aspects = aspectsOf(declared, found, { imageId, moduleFolder });
  const different = differences(aspects);
  problems.push(
    ...different.map(({ name, declared: must, found: is }) => `${name} must be ${must}, got ${is}`),
  );
  const measured = { compared: aspects.length, different: different.length };
  if (problems.length > 0) return problems.map((message) => report("fail", message, measured));
  return [report("pass", `${aspects.length} aspects match: ${keyAspects(aspects)}`, measured)];
}

/** Aspects whose values are reported if all match. */
const reportedAspects = [
  "user",
  "capabilities",
  "root file system",
  "security options",
  "restart policy",
  "GPU request",
  "runtime",
  "NVIDIA_VISIBLE_DEVICES",
  "published ports",
  "memory",
  "shared memory",
] as const;

function keyAspects(aspects: ReturnType<typeof aspectsOf>): string {
  return reportedAspects
    .flatMap((name) => aspects.filter((aspect) => aspect.name === name))
    .map(({ name, found }) => `${name} ${found}`)
    .join("; ");
}

function short(id: string): string {
  return id.slice(0, 12);
}

/**
 * Reports each difference of an object from its manifest, or the number of aspects if there is none.
 *
 * @param isApplied - Whether the object was applied without Terraform. Image names that only Terraform knows are then not compared.
 */
export function checkObject(
  environment: string,
  object: DeclaredObject,
  inspection: ClusterInspection,
  isApplied = false,
): readonly CheckResult[] {
  const report = (outcome: Outcome, message: string, measured?: Record<string, number>) =>
    objectResult(object, environment, "container", outcome, message, measured);
  // an unread object must not pass
  if (!inspection.ok) return [report("fail", inspection.message)];
  const found = inspection.found.get(object);
  if (found === undefined) return [report("fail", "the object must exist in the cluster")];
  const aspects = manifestAspects(object.manifest, found).filter(
    ({ name, declared }) => !(isApplied && /\.image$/.test(name) && declared.includes("${")),
  );
  const different = differences(aspects);
  const measured = { compared: aspects.length, different: different.length };
  if (different.length === 0) {
    return [report("pass", `${aspects.length} aspects match`, measured)];
  }
  return different.map(({ name, declared, found: is }) =>
    report("fail", `${name} must be ${declared}, got ${is}`, measured),
  );
}
