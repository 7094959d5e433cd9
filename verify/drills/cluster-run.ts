import { isDeepStrictEqual } from "node:util";
import type { VersionInfo } from "@kubernetes/client-node";
import {
  type ClusterNode,
  type ClusterService,
  rolloutProblem,
  scaleDownWindow,
  selects,
} from "../../artefact/cluster-objects.ts";
import { podPortNames } from "../../contract/pods.ts";
import { UserError } from "../../contract/user-error.ts";
import { openHttpClient } from "../../target/requests/http-client.ts";
import {
  ApiRejection,
  type ClusterApi,
  namespacedPath,
  type PatchType,
} from "../cluster/cluster-api.ts";
import { type Drill, type DrillOptions, DrillRun } from "./drill.ts";
import { DrillLoad, type Route } from "./drill-load.ts";
import type { PhaseLoad, ReplicaPoint } from "./drill-record.ts";
import {
  type DrillTarget,
  deadlineSeconds,
  differencesOf,
  readSnapshot,
  replicaPoint,
  type Snapshot,
  snapshotText,
} from "./snapshot.ts";

export interface ClusterDrillOptions extends DrillOptions {
  readonly target: DrillTarget;
}

/** Rehearsal on a Deployment of a cluster. */
export interface ClusterDrill extends Drill<ClusterRun> {
  /**
   * Treatment of pods that the autoscaler added under an earlier load. `awaited`: waits until they are removed, because a rolling
   * update needs their capacity; `required`: fails if they are not removed.
   *
   * @default - starts with any number of pods
   */
  readonly scaleDown?: "awaited" | "required";
}

/** Seconds that are added to the autoscaler's window, for its sync period, the age of metrics and the end of pods. */
export const scaleMarginSeconds = 120;

/** State of a drill in progress on one Deployment. */
export class ClusterRun extends DrillRun<Snapshot> {
  readonly replicas: ReplicaPoint[] = [];
  readonly rejections: { request: string; status: number; reason: string; message: string }[] = [];
  protected readonly loadChanges = true;

  constructor(
    readonly api: ClusterApi,
    override readonly options: ClusterDrillOptions,
    /** State before the drill. */
    readonly before: Snapshot,
  ) {
    const load = new DrillLoad(
      () => openRoute(api, options, before),
      options.images,
      options.apiKey,
    );
    super(options, "cluster", load);
  }

  get target(): DrillTarget {
    return this.options.target;
  }

  /** API path of objects in the namespace. */
  path(group: string, plural: string, name?: string): string {
    return namespacedPath(this.target.namespace, group, plural, name);
  }

  recordRejection(request: string, { status, reason, message }: ApiRejection): void {
    this.rejections.push({ request, status, reason, message });
  }

  async patch(type: PatchType, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.patch(this.path("apps/v1", "deployments", this.target.deployment), type, body);
  }

  /** @throws {ApiRejection} with the API server's status and message. */
  async post(path: string, body: unknown): Promise<void> {
    this.changed = true;
    await this.api.post(path, body);
  }

  /** Reads the Deployment, its pods and its autoscaler, and records changed pod numbers. */
  async observe(): Promise<Snapshot> {
    const snapshot = await this.withRetries(() => readSnapshot(this.api, this.target));
    const point = replicaPoint(snapshot);
    const { atSeconds: _, ...last } = this.replicas.at(-1) ?? { atSeconds: 0 };
    if (!isDeepStrictEqual(last, point)) {
      this.replicas.push({ atSeconds: this.seconds(), ...point });
      this.print(`  ${snapshotText(snapshot)}`);
    }
    return snapshot;
  }

  /** Waits until every pod has the Deployment's template and is ready, and no other pod remains. */
  async untilSettled(claim: string, seconds: number): Promise<Snapshot> {
    return this.until(
      claim,
      seconds,
      ({ deployment, pods }) => rolloutProblem(deployment, pods) === undefined,
    );
  }

  /** Waits until all pods are ready, and until the autoscaler has removed the pods that it added. */
  async settle(): Promise<void> {
    const { spec } = this.before.deployment;
    const { autoscaler } = this.before;
    const now = await this.untilSettled("the pods are ready again", deadlineSeconds(this.before));
    if (autoscaler === undefined || now.deployment.spec.replicas <= spec.replicas) return;
    // after an interruption the autoscaler scales down unattended, because that can take minutes
    if (this.options.signal.aborted) return;
    const seconds = scaleDownWindow(autoscaler) + scaleMarginSeconds;
    this.step(
      `the autoscaler has scaled up to ${now.deployment.spec.replicas} pods; waiting up to ${seconds} s until it scales down`,
    );
    await this.until(
      `the autoscaler is back at ${spec.replicas} pods`,
      seconds,
      ({ deployment, pods }) =>
        deployment.spec.replicas <= spec.replicas && rolloutProblem(deployment, pods) === undefined,
    );
  }

  async differences() {
    const now = await this.observe();
    const [was, is] = [this.before.deployment.spec.replicas, now.deployment.spec.replicas];
    const pods = `${is} ${is === 1 ? "pod" : "pods"} of the same template`;
    const text = is > was ? `${pods}; without load the autoscaler scales down to ${was}` : pods;
    return { wrong: differencesOf(this.before, now), text };
  }

  async record() {
    const { api, target, before, replicas, rejections } = this;
    // the record is kept even if the API server is unavailable; users of a namespace may not be allowed to list nodes
    const version = await api.get<VersionInfo>("/version").catch(() => undefined);
    const nodes = await api.list<ClusterNode>("/api/v1/nodes").catch(() => []);
    const container = before.deployment.spec.template.spec?.containers[0];
    const status = before.pods[0]?.status?.containerStatuses?.find(
      ({ name }) => name === container?.name,
    );
    const subject = {
      environment: target.environment,
      cluster: {
        context: target.access.context ?? "the current context",
        version: version?.gitVersion ?? "unknown",
        nodes: nodes.map(({ metadata, status }) => ({
          name: metadata.name,
          kubelet: status?.nodeInfo?.kubeletVersion ?? "",
          os: status?.nodeInfo?.osImage ?? "",
          cpu: status?.allocatable?.cpu ?? "",
          memory: status?.allocatable?.memory ?? "",
        })),
      },
      namespace: target.namespace,
      deployment: target.deployment,
      image: container?.image ?? "",
      imageId: status?.imageID ?? "",
    };
    return { subject, replicas, rejections };
  }

  close(): Promise<void> {
    return this.api.close();
  }

  protected stateText(snapshot: Snapshot): string {
    return snapshotText(snapshot);
  }

  protected isFinal(error: unknown): boolean {
    return error instanceof ApiRejection && error.status === 403;
  }

  protected checkPhase(load: PhaseLoad): void {
    this.checkAnswered(load);
  }
}

/** Opens the address of the Service, or the API server's proxy to it. */
async function openRoute(
  api: ClusterApi,
  { target: { url, namespace, deployment, service }, apiKey }: ClusterDrillOptions,
  before: Snapshot,
): Promise<Route> {
  if (url !== undefined) {
    const bearer = apiKey === undefined ? undefined : { origin: url, key: apiKey };
    return { url, http: openHttpClient(512, bearer, { closeAfterResponse: true }) };
  }
  const named = service ?? (await selectingService(api, namespace, before));
  if (named === undefined) {
    throw new UserError(
      `namespace '${namespace}' has no Service that selects the pods of Deployment '${deployment}'`,
    );
  }
  return api.openService(namespace, named.name, named.port, service?.scheme);
}

/** The first Service that selects the pods. */
async function selectingService(
  api: ClusterApi,
  namespace: string,
  { pods }: Snapshot,
): Promise<DrillTarget["service"]> {
  const labels = pods[0]?.metadata.labels;
  const services = await api.list<ClusterService>(namespacedPath(namespace, "v1", "services"));
  const own = services.find(({ spec }) => selects(spec.selector, labels));
  const ports = own?.spec.ports ?? [];
  const port = ports.find(({ name }) => name === podPortNames.http) ?? ports[0];
  return own && port && { name: own.metadata.name, port: port.port };
}
