/** Probes, start and stop times of pods, used by the typed resources of `constructs/` and the defaults of the Helm chart. */

/** Times of a kubelet probe. */
export interface ProbeTimes {
  readonly periodSeconds: number;
  readonly timeoutSeconds: number;
  readonly failureThreshold: number;
}

/** Kubernetes' recommended label names. */
export const labelNames = {
  name: "app.kubernetes.io/name",
  instance: "app.kubernetes.io/instance",
  component: "app.kubernetes.io/component",
  version: "app.kubernetes.io/version",
  managedBy: "app.kubernetes.io/managed-by",
} as const;

/** Value of `app.kubernetes.io/name`, default of `app.kubernetes.io/instance` and prefix of all object names. */
export const podAppName = "clipstack";

/** Component to which a pod belongs. It is also the name of the container, and the suffix in the names of its objects (`clipstack-embed`). */
export type PodComponent = "embed" | "triton";

/** Returns the labels of a selector. `instance` is the Helm release. */
export function selectorLabels(component: PodComponent, instance: string = podAppName) {
  return {
    [labelNames.name]: podAppName,
    [labelNames.instance]: instance,
    [labelNames.component]: component,
  };
}

/** Returns the name of a component's Deployment, Service, autoscaler, PodDisruptionBudget, service account and network policy. */
export function podObjectName(component: PodComponent, fullName: string = podAppName): string {
  return `${fullName}-${component}`;
}

/** Names of a pod's ports; Triton has all three. */
export const podPortNames = { http: "http", grpc: "grpc", metrics: "metrics" } as const;

/** Seconds of `preStop: sleep`, in which all nodes stop sending new connections. */
export const preStopSeconds = 5;

/** Seconds in which accepted requests complete after SIGTERM. */
export const graceSeconds = 30;

/** Seconds between the end of the server's grace period and SIGKILL. */
export const stopMarginSeconds = 5;

/** Returns `terminationGracePeriodSeconds` of a pod whose server has a grace period of `grace` seconds. */
export function terminationSeconds(grace: number = graceSeconds, preStop: number = preStopSeconds) {
  return preStop + grace + stopMarginSeconds;
}

/** Maximum seconds in which the embed server loads the model and warms up. */
export const startSeconds = 120;

/** `maxSurge` of a rolling update on CPU nodes. */
export const surge = 1;

/** `minReadySeconds` of a rolling update, so that a crash right after the start stops it. */
export const minReadySeconds = 5;

/** Old ReplicaSets kept for a rollback. */
export const revisionHistoryLimit = 3;

/**
 * Startup probe, active while the model loads; {@link startupProbeOf} adds the `failureThreshold`. A gateway probes `/healthz` instead
 * of `/readyz`, because the kubelet would otherwise restart it while the first Triton server's image is pulled.
 */
export const startupProbe = { periodSeconds: 2, timeoutSeconds: 2 } as const;

/** Returns the startup probe of a container that is restarted if it is not ready within `seconds`. */
export function startupProbeOf(seconds: number = startSeconds): ProbeTimes {
  return { ...startupProbe, failureThreshold: Math.ceil(seconds / startupProbe.periodSeconds) };
}

/** Readiness probe: removes a draining pod, or one without a model, from the Service. */
export const readinessProbe = {
  periodSeconds: 5,
  timeoutSeconds: 2,
  failureThreshold: 2,
} as const satisfies ProbeTimes;

/** Liveness probe: restarts a hung process, but not one with a slow model or a full queue. */
export const livenessProbe = {
  periodSeconds: 10,
  timeoutSeconds: 5,
  failureThreshold: 3,
} as const satisfies ProbeTimes;

/**
 * Seconds before the containers of a pod start on a new node: node start, image pull (NVIDIA's image has many GB) and weights. No
 * probe runs during this time.
 */
export const imagePullSeconds = { embed: 300, triton: 900 } as const satisfies Readonly<
  Record<PodComponent, number>
>;

/**
 * Returns `progressDeadlineSeconds`, which allows a pod to time out once and start again.
 *
 * @param pullSeconds - Time to pull the image if the node does not have it.
 */
export function progressDeadlineSeconds(seconds: number = startSeconds, pullSeconds = 0): number {
  return 2 * seconds + 60 + pullSeconds;
}

/**
 * `behavior` of an autoscaler of GPU pods, one pod per step. A pod incurs cost from the start of its node but serves minutes later, and
 * the queue time covers one minute, so the effect of a step is visible before the next.
 */
export const gpuScaling = {
  scaleUp: {
    /** Shorter bursts add no pod. */
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
 * Label by which a Deployment distinguishes the pods of each template version. Spread constraints list it in `matchLabelKeys` (enabled
 * by default since Kubernetes 1.27); otherwise a rolling update counts the old pods too and spreads the new ones unevenly.
 */
export const templateHashLabel = "pod-template-hash";

/** User and group in the images: `node` and `triton-server`. */
export const podUser = { uid: 1000, gid: 1000 } as const;

/** Size of `/tmp`, which is in memory and counts towards the memory limit. */
export const podTmpMiB = 64;

/** Size of `/tmp` of a Triton server, whose Python model may unpack files there. */
export const tritonTmpMiB = 256;

/** Namespace label and the Pod Security Standard that all pods meet. */
export const podSecurity = {
  label: "pod-security.kubernetes.io/enforce",
  level: "restricted",
} as const;
