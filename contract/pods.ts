/**
 * How a pod of clipstack starts, answers probes and stops. The typed resources of `constructs/` and the defaults of the
 * Helm chart are both made of these numbers.
 */

/** A probe of the kubelet. */
export interface ProbeTimes {
  readonly periodSeconds: number;
  readonly timeoutSeconds: number;
  readonly failureThreshold: number;
}

/** Names of labels by Kubernetes' convention. The three of `selectorLabels` are what every selector asks for. */
export const labelNames = {
  name: "app.kubernetes.io/name",
  instance: "app.kubernetes.io/instance",
  component: "app.kubernetes.io/component",
  version: "app.kubernetes.io/version",
  managedBy: "app.kubernetes.io/managed-by",
} as const;

/** Value of `app.kubernetes.io/name`, the default of `app.kubernetes.io/instance`, and the beginning of every object's name. */
export const podAppName = "clipstack";

/** What runs in a pod: also the name of its container, and the end of its objects' names (`clipstack-embed`). */
export type PodComponent = "embed" | "triton";

/** Labels that a selector asks for. `instance` is the Helm release. */
export function selectorLabels(component: PodComponent, instance: string = podAppName) {
  return {
    [labelNames.name]: podAppName,
    [labelNames.instance]: instance,
    [labelNames.component]: component,
  };
}

/** Name of the Deployment, Service, autoscaler, budget, service account and network policy of a component. */
export function podObjectName(component: PodComponent, fullName: string = podAppName): string {
  return `${fullName}-${component}`;
}

/** Names of a pod's ports; Triton has all three. */
export const podPortNames = { http: "http", grpc: "grpc", metrics: "metrics" } as const;

/** Seconds between the signal to stop and the moment when no node sends new connections any more: `preStop: sleep`. */
export const preStopSeconds = 5;

/** Seconds that a server, once told to stop, waits for the requests that it accepted. */
export const graceSeconds = 30;

/** Seconds between the end of a server's own grace and the kill. */
export const stopMarginSeconds = 5;

/** `terminationGracePeriodSeconds` of a pod whose server waits `grace` seconds. */
export function terminationSeconds(grace: number = graceSeconds, preStop: number = preStopSeconds) {
  return preStop + grace + stopMarginSeconds;
}

/** Seconds that the embed server may take to load the model and warm up. */
export const startSeconds = 120;

/** Pods that a rolling update starts before it stops others. On CPU there is room for one more. */
export const surge = 1;

/** Seconds that a pod must be ready before a rolling update goes on: a crash right after the start is seen. */
export const minReadySeconds = 5;

/** Old ReplicaSets that are kept, to go back to. */
export const revisionHistoryLimit = 3;

/**
 * The model loads: looked at often, with all the time that it may need. `startSeconds` gives the `failureThreshold`. A gateway has no
 * model: its startup probe asks `/healthz`, because the kubelet would restart it while the first Triton's image is pulled.
 */
export const startupProbe = { periodSeconds: 2, timeoutSeconds: 2 } as const;

/** Not ready in `seconds`: the kubelet restarts the container. */
export function startupProbeOf(seconds: number = startSeconds): ProbeTimes {
  return { ...startupProbe, failureThreshold: Math.ceil(seconds / startupProbe.periodSeconds) };
}

/** Draining, or no model: take no new requests, soon. */
export const readinessProbe = {
  periodSeconds: 5,
  timeoutSeconds: 2,
  failureThreshold: 2,
} as const satisfies ProbeTimes;

/** The process hangs: restart it, but never for a slow model or a full queue. */
export const livenessProbe = {
  periodSeconds: 10,
  timeoutSeconds: 5,
  failureThreshold: 3,
} as const satisfies ProbeTimes;

/**
 * Seconds before the start of a pod on a node that has nothing yet: the node itself, its images (NVIDIA's has many GB), the
 * weights. No probe runs in that time.
 */
export const imagePullSeconds = { embed: 300, triton: 900 } as const satisfies Readonly<
  Record<PodComponent, number>
>;

/**
 * Seconds after which a rollout that makes no progress has failed: a pod may use up its whole start once, and start again.
 *
 * @param pullSeconds - Before the start, where the node does not have the image.
 */
export function progressDeadlineSeconds(seconds: number = startSeconds, pullSeconds = 0): number {
  return 2 * seconds + 60 + pullSeconds;
}

/**
 * `behavior` of an autoscaler of pods with GPUs, one pod per step. A pod is paid for from its node's start and serves minutes later,
 * and the queue time looks back one minute: a step shows its effect before the next.
 */
export const gpuScaling = {
  scaleUp: {
    /** A burst that is over within it adds no pod. */
    stabilizationWindowSeconds: 30,
    selectPolicy: "Max",
    policies: [{ type: "Pods", value: 1, periodSeconds: 60 }],
  },
  scaleDown: {
    selectPolicy: "Max",
    policies: [{ type: "Pods", value: 1, periodSeconds: 60 }],
  },
} as const;

/**
 * Label that a Deployment gives the pods of each version of its template. Spread constraints name it in `matchLabelKeys` (enabled by
 * default since Kubernetes 1.27), or a rolling update would count the old pods and crowd the new ones on the other nodes.
 */
export const templateHashLabel = "pod-template-hash";

/** User and group in the images: Node's `node`, Triton's `triton-server`. */
export const podUser = { uid: 1000, gid: 1000 } as const;

/** Size of `/tmp`, in memory; it counts against the memory limit. */
export const podTmpMiB = 64;

/** The same of a Triton, whose Python model may unpack there. */
export const tritonTmpMiB = 256;

/** Label of a namespace, and the Pod Security Standard that the pods keep. */
export const podSecurity = {
  label: "pod-security.kubernetes.io/enforce",
  level: "restricted",
} as const;
