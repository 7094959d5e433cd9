import type { Artefact } from "../../artefact/artefact.ts";
import type { ClusterInspection } from "../../artefact/cluster-objects.ts";
import type { DeployedState, Inspection } from "../../artefact/docker-inspect.ts";
import { workloadsBehind } from "../../artefact/simulated-process.ts";
import type { Target } from "../../artefact/simulation-types.ts";
import type { DeclaredObject } from "../../artefact/terraform-manifests.ts";
import type { Workload } from "../../artefact/workload.ts";
import type { Environment } from "../../contract/environment.ts";
import type { MetricsSource } from "../requests/target-endpoint.ts";
import type { EnvironmentFile } from "./local-environment.ts";
import { openService, type RunningServices, type TargetService } from "./target-service.ts";

/** Deployed environment and the network access to it. */
export interface DeployedEnvironment extends EnvironmentFile {
  /** Output of the deployment. */
  readonly deployed: Environment;
  readonly state: DeployedState;
  /** Inspects containers on the environment's Docker engine by name. */
  readonly inspect: (names: readonly string[]) => Promise<Inspection>;
  /** Runs a command in a container and returns the lines of its output; undefined if it failed. */
  readonly runInContainer: (
    name: string,
    command: readonly string[],
  ) => Promise<readonly string[] | undefined>;
  /** Inspects Kubernetes objects, if the environment is in a cluster. */
  readonly inspectObjects: (objects: readonly DeclaredObject[]) => Promise<ClusterInspection>;
  /** Whether the objects were applied without Terraform, which alone knows the configured images. */
  readonly appliedOutsideTerraform?: boolean;
  /** Whether Terraform did not deploy it: `deployed` has only the services and endpoints with a known address. */
  readonly atAddresses?: boolean;
  /** Opens network access to the endpoints, such as a tunnel. The caller closes it. */
  readonly openAccess: () => Promise<NetworkAccess>;
  /** API key, sent to services that require one. */
  readonly apiKey?: string;
}

export interface NetworkAccess {
  /** Returns the URL that reaches an environment's URL from this machine. */
  readonly url: (url: string) => string;
  /** Description of the access for the record. */
  readonly notes: readonly string[];
  close(): Promise<void>;
}

export async function openDeployedServices(
  environment: DeployedEnvironment,
  { environment: { name, models }, workloads }: Pick<Artefact, "environment" | "workloads">,
): Promise<RunningServices & Pick<NetworkAccess, "notes">> {
  const { deployed, apiKey } = environment;
  const access = await environment.openAccess();
  const services = workloads.map((workload) => {
    const key = workload.service.authorization === undefined ? undefined : apiKey;
    return openService(name, workload, models, [], targetsOf(workload, deployed, access), key);
  });
  return {
    services,
    notes: access.notes,
    async close() {
      await Promise.all(services.map((service) => service.close()));
      await access.close();
    },
  };
}

function targetsOf(
  workload: Workload,
  deployed: Environment,
  access: NetworkAccess,
): readonly Target[] {
  const service = deployed.services.find(({ name }) => name === workload.service.name);
  return (service?.endpoints ?? []).map((endpoint) => ({
    workload,
    endpoint,
    url: access.url(endpoint.url),
  }));
}

export function servicesBehind(
  { workload }: TargetService,
  services: readonly TargetService[],
): readonly TargetService[] {
  const workloads = workloadsBehind(
    workload,
    services.map((service) => service.workload),
  );
  return services.filter((service) => workloads.includes(service.workload));
}

/**
 * Metrics endpoints of a service and the Triton servers behind it. Empty if several pods share one address, because their
 * counters cannot be distinguished.
 */
export function metricsOfDeployed(
  service: TargetService,
  services: readonly TargetService[],
  cluster: ClusterInspection | undefined,
): readonly MetricsSource[] {
  const all = [service, ...servicesBehind(service, services)];
  if (all.some(({ workload }) => podsOf(workload, cluster) > 1)) return [];
  return all.map(sourceOf).filter(({ url }) => url !== undefined);
}

/** Number of processes of a workload, including pods added by an autoscaler. */
export function podsOf(
  { kind, name, replicas }: Workload,
  cluster: ClusterInspection | undefined,
): number {
  if (kind === "container") return 1;
  const pods = cluster?.ok ? cluster.pods.get(name)?.length : undefined;
  return Math.max(replicas, pods ?? 0);
}

export function sourceOf({ workload, targets }: TargetService): MetricsSource {
  return {
    name: workload.name,
    role: workload.service.kind,
    url: targets.find(({ endpoint }) => endpoint.protocol === "metrics")?.url,
  };
}
