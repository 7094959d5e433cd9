import { isDeepStrictEqual } from "node:util";
import {
  type ClusterAutoscaler,
  type ClusterDeployment,
  type ClusterPod,
  type ClusterReplicaSet,
  isOver,
  isReady,
  metricText,
  podTrouble,
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

/** Deployment that is drilled. */
export interface DrillTarget {
  /** Name of the environment; absent where the cluster was named by hand. */
  readonly environment?: string;
  readonly access: ClusterAccess;
  readonly namespace: string;
  /** Name of the Deployment. */
  readonly deployment: string;
  /** Address of the Service from this machine. @default - through the API server */
  readonly url?: string;
  /** The Service that leads to it, where it is reached through the API server; absent: the first that selects its pods. */
  readonly service?: { readonly name: string; readonly port: string | number };
  /** An embed server that strangers can reach asks for a key. */
  readonly asksForKey?: boolean;
}

/** The Deployment at one moment, and what belongs to it. */
export interface Snapshot {
  readonly deployment: ClusterDeployment;
  readonly pods: readonly ClusterPod[];
  /** Its versions: the present one, and those that a rollback can go to. */
  readonly replicaSets: readonly ClusterReplicaSet[];
  readonly autoscaler?: ClusterAutoscaler;
}

/** @throws {UserError} if there is no such Deployment. */
export async function readSnapshot(api: ClusterApi, target: DrillTarget): Promise<Snapshot> {
  const { namespace, deployment: name } = target;
  const path = (group: string, plural: string, object?: string) =>
    namespacedPath(namespace, group, plural, object);
  const deployment = await api.get<ClusterDeployment>(path("apps/v1", "deployments", name));
  if (deployment === undefined) {
    throw new UserError(
      `there is no Deployment '${name}' in namespace '${namespace}' of ${accessText(target.access)}`,
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
    pods: pods.filter((pod) => !isOver(pod)),
    replicaSets: replicaSets.filter(({ metadata: { ownerReferences } }) =>
      ownerReferences?.some(({ uid }) => uid === deployment.metadata.uid),
    ),
    autoscaler: autoscalers.find(
      ({ spec: { scaleTargetRef: of } }) => of.kind === "Deployment" && of.name === name,
    ),
  };
}

/** Fewest pods that the autoscaler of the Deployment keeps. */
export function minReplicas({ autoscaler }: Snapshot): number | undefined {
  return autoscaler && (autoscaler.spec.minReplicas ?? 1);
}

export function replicaPoint({
  deployment,
  pods,
  autoscaler,
}: Snapshot): Omit<ReplicaPoint, "atSeconds"> {
  return {
    wanted: deployment.spec.replicas,
    ready: pods.filter(isReady).length,
    pods: pods.length,
    metric: autoscaler && metricText(autoscaler),
  };
}

/** State of the Deployment, for a message about a wait that was too long. */
export function snapshotText(seen: Snapshot): string {
  const { wanted, ready, pods, metric } = replicaPoint(seen);
  const failure = seen.deployment.status?.conditions?.find(
    ({ type, status }) => type === "ReplicaFailure" && status === "True",
  );
  const more = [metric, failure?.message, seen.pods.map(podTrouble).find((it) => it !== undefined)];
  return [`${ready} of ${wanted} pods are ready, ${pods} are there`, ...more.filter(Boolean)].join(
    "; ",
  );
}

/** Seconds that a rolling update of this Deployment may take. */
export function deadlineSeconds({ deployment }: Snapshot): number {
  return deployment.spec.progressDeadlineSeconds + 60;
}

/** Changes that a drill has not restored yet, one line each. */
export function differencesOf(before: Snapshot, now: Snapshot): readonly string[] {
  const owned = before.autoscaler !== undefined;
  const [was, is] = [before.deployment.spec, now.deployment.spec];
  const uidsOf = ({ replicaSets }: Snapshot) => replicaSets.map(({ metadata }) => metadata.uid);
  const gone = uidsOf(before).filter((uid) => !uidsOf(now).includes(uid)).length;
  const added = uidsOf(now).filter((uid) => !uidsOf(before).includes(uid)).length;
  return [
    ...(isDeepStrictEqual(was.template, is.template) ? [] : ["the pod template is another one"]),
    ...(was.replicas === is.replicas || owned
      ? []
      : [`${is.replicas} pods are asked for in place of ${was.replicas}`]),
    ...(gone === 0 ? [] : [`earlier versions that are gone: ${gone}`]),
    ...(added === 0 ? [] : [`versions that were not there before: ${added}`]),
    ...(was.revisionHistoryLimit === is.revisionHistoryLimit
      ? []
      : [
          `revisionHistoryLimit is ${is.revisionHistoryLimit} in place of ${was.revisionHistoryLimit}`,
        ]),
  ];
}
