import { isDeepStrictEqual } from "node:util";
import {
  type ClusterAutoscaler,
  type ClusterDeployment,
  type ClusterPod,
  type ClusterReplicaSet,
  describeMetric,
  isReady,
  isTerminated,
  podProblem,
} from "../../artefact/cluster-objects.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  accessText,
  type ClusterAccess,
  type ClusterApi,
  namespacedPath,
  selectedBy,
} from "../cluster/cluster-api.ts";
import type { ReplicaPoint } from "./drill-record.ts";

/** Deployment under test. */
export interface DrillTarget {
  /** Name of the environment; absent if the cluster was selected by options. */
  readonly environment?: string;
  readonly access: ClusterAccess;
  readonly namespace: string;
  /** Name of the Deployment. */
  readonly deployment: string;
  /** Address of the Service from this machine. @default - through the API server */
  readonly url?: string;
  /** Service to reach through the API server. @default - the first one that selects the pods */
  readonly service?: {
    readonly name: string;
    readonly port: string | number;
    /** @default "http" */
    readonly scheme?: "http" | "https";
  };
  /** Whether the embed server requires an API key. */
  readonly requiresKey?: boolean;
}

/** Deployment, its pods, its revisions and its autoscaler at one moment. */
export interface Snapshot {
  readonly deployment: ClusterDeployment;
  readonly pods: readonly ClusterPod[];
  /** Revisions: the current one, and those available for a rollback. */
  readonly replicaSets: readonly ClusterReplicaSet[];
  readonly autoscaler?: ClusterAutoscaler;
}

export async function readSnapshot(api: ClusterApi, target: DrillTarget): Promise<Snapshot> {
  const { namespace, deployment: name } = target;
  const path = (group: string, plural: string, object?: string) =>
    namespacedPath(namespace, group, plural, object);
  const deployment = await api.get<ClusterDeployment>(path("apps/v1", "deployments", name));
  if (deployment === undefined) {
    throw new UserError(
      `Deployment '${name}' does not exist in namespace '${namespace}' of ${accessText(target.access)}`,
    );
  }
  const selected = selectedBy(deployment.spec.selector.matchLabels);
  const [pods, replicaSets, autoscalers] = await Promise.all([
    api.list<ClusterPod>(`${path("v1", "pods")}${selected}`),
    api.list<ClusterReplicaSet>(`${path("apps/v1", "replicasets")}${selected}`),
    api.list<ClusterAutoscaler>(path("autoscaling/v2", "horizontalpodautoscalers")),
  ]);
  return {
    deployment,
    pods: pods.filter((pod) => !isTerminated(pod)),
    replicaSets: replicaSets.filter(({ metadata: { ownerReferences } }) =>
      ownerReferences?.some(({ uid }) => uid === deployment.metadata.uid),
    ),
    autoscaler: autoscalers.find(
      ({ spec: { scaleTargetRef: of } }) => of.kind === "Deployment" && of.name === name,
    ),
  };
}

/** Minimum number of pods of the Deployment's autoscaler. */
export function minReplicas({ autoscaler }: Snapshot): number | undefined {
  return autoscaler && (autoscaler.spec.minReplicas ?? 1);
}

export function replicaPoint({
  deployment,
  pods,
  autoscaler,
}: Snapshot): Omit<ReplicaPoint, "atSeconds"> {
  return {
    desired: deployment.spec.replicas,
    ready: pods.filter(isReady).length,
    pods: pods.length,
    metric: autoscaler && describeMetric(autoscaler),
  };
}

/** State of the Deployment as text. */
export function snapshotText(snapshot: Snapshot): string {
  const { desired, ready, pods, metric } = replicaPoint(snapshot);
  const failure = snapshot.deployment.status?.conditions?.find(
    ({ type, status }) => type === "ReplicaFailure" && status === "True",
  );
  const more = [
    metric,
    failure?.message,
    snapshot.pods.map(podProblem).find((it) => it !== undefined),
  ];
  return [`${ready} of ${desired} pods are ready, ${pods} exist`, ...more.filter(Boolean)].join(
    "; ",
  );
}

/** Maximum duration of a rolling update of this Deployment, in seconds. */
export function deadlineSeconds({ deployment }: Snapshot): number {
  return deployment.spec.progressDeadlineSeconds + 60;
}

/** Changes that the drill has not reverted, one line each. */
export function differencesOf(before: Snapshot, now: Snapshot): readonly string[] {
  const owned = before.autoscaler !== undefined;
  const [was, is] = [before.deployment.spec, now.deployment.spec];
  const uidsOf = ({ replicaSets }: Snapshot) => replicaSets.map(({ metadata }) => metadata.uid);
  const gone = uidsOf(before).filter((uid) => !uidsOf(now).includes(uid)).length;
  const added = uidsOf(now).filter((uid) => !uidsOf(before).includes(uid)).length;
  return [
    ...(isDeepStrictEqual(was.template, is.template) ? [] : ["the pod template differs"]),
    ...(was.replicas === is.replicas || owned
      ? []
      : [`replicas is ${is.replicas}, was ${was.replicas}`]),
    ...(gone === 0 ? [] : [`${gone} earlier revisions are missing`]),
    ...(added === 0 ? [] : [`${added} revisions were added`]),
    ...(was.revisionHistoryLimit === is.revisionHistoryLimit
      ? []
      : [`revisionHistoryLimit is ${is.revisionHistoryLimit}, was ${was.revisionHistoryLimit}`]),
  ];
}
