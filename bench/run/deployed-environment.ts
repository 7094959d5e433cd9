import type { Artefact } from "../../artefact/artefact.ts";
import type { ClusterInspection } from "../../artefact/cluster-objects.ts";
import type { DeployedState, Inspection } from "../../artefact/docker-inspect.ts";
import { workloadsBehind } from "../../artefact/simulated-process.ts";
import type { Target } from "../../artefact/simulation-types.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { Workload } from "../../artefact/workload.ts";
import type { Environment } from "../../contract/environment.ts";
import type { MetricsSource } from "./instance-metrics.ts";
import type { EnvironmentFile } from "./local-environment.ts";
import { openService, type ServiceUnderTest } from "./service-under-test.ts";

/** An environment that is deployed, and the way to it. */
export interface DeployedEnvironment extends EnvironmentFile {
  /** The output of the deployment. */
  readonly deployed: Environment;
  readonly state: DeployedState;
  /** Look at containers of the environment's engine, by name. */
  readonly inspect: (names: readonly string[]) => Promise<Inspection>;
  /** Look at Kubernetes objects where the environment is in a cluster. */
  readonly inspectObjects: (objects: readonly DeclaredObject[]) => Promise<ClusterInspection>;
  /** Somebody has put the objects there with other means than Terraform, and chosen the images that only it knows. */
  readonly appliedOutsideTerraform?: boolean;
  /** Open the way to the endpoints: where each URL of the environment is from here. Closed when all is checked. */
  readonly openAccess: () => Promise<NetworkAccess>;
  /** Sent to services that ask for a key. */
  readonly apiKey?: string;
}

export interface NetworkAccess {
  /** A URL of the environment, as it is reached from this machine. */
  readonly url: (url: string) => string;
  /** How, for the record. */
  readonly notes: readonly string[];
  close(): Promise<void>;
}

/** The services of an environment where they are deployed. */
export function servicesOfDeployed(
  { deployed, apiKey }: DeployedEnvironment,
  artefact: Artefact,
  reach: NetworkAccess,
): readonly ServiceUnderTest[] {
  return artefact.workloads.map((workload) =>
    openService(
      artefact.environment.name,
      workload,
      [],
      targetsOf(workload, deployed, reach),
      workload.service.authorization === undefined ? undefined : apiKey,
    ),
  );
}

function targetsOf(
  workload: Workload,
  deployed: Environment,
  reach: NetworkAccess,
): readonly Target[] {
  const { name } = workload.service;
  const service = deployed.services.find((it) => it.name === name);
  return (service?.endpoints ?? []).map((endpoint) => ({
    workload,
    endpoint,
    url: reach.url(endpoint.url),
  }));
}

export function servicesBehind(
  { workload }: ServiceUnderTest,
  services: readonly ServiceUnderTest[],
): readonly ServiceUnderTest[] {
  const workloads = workloadsBehind(
    workload,
    services.map((it) => it.workload),
  );
  return services.filter((it) => workloads.includes(it.workload));
}

/**
 * Where a service and the Tritons behind it count what they do. None where several pods answer at one address: their
 * counters cannot be told apart.
 */
export function metricsOfDeployed(
  service: ServiceUnderTest,
  services: readonly ServiceUnderTest[],
  cluster: ClusterInspection | undefined,
): readonly MetricsSource[] {
  const all = [service, ...servicesBehind(service, services)];
  if (all.some(({ workload }) => podsOf(workload, cluster) > 1)) return [];
  return all.map(sourceOf).filter(({ url }) => url !== undefined);
}

/** Processes of a workload: those that there are, for an autoscaler may have added some. */
export function podsOf(
  { kind, name, replicas }: Workload,
  cluster: ClusterInspection | undefined,
): number {
  if (kind === "container") return 1;
  const pods = cluster?.ok ? cluster.pods.get(name)?.length : undefined;
  return Math.max(replicas, pods ?? 0);
}

export function sourceOf({ workload, targets }: ServiceUnderTest): MetricsSource {
  return {
    name: workload.name,
    role: workload.service.kind,
    url: targets.find(({ endpoint }) => endpoint.protocol === "metrics")?.url,
  };
}
