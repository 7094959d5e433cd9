import { createHash } from "node:crypto";
import { posix } from "node:path";
import type { DeploymentV1Config } from "#providers/kubernetes/lib/deployment-v1/index.js";
import { embedPaths } from "../../contract/embed-api.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import {
  graceSeconds,
  livenessProbe,
  minReadySeconds,
  podPortNames,
  podTmpMiB,
  podUser,
  preStopSeconds,
  progressDeadlineSeconds,
  readinessProbe,
  revisionHistoryLimit,
  startupProbeOf,
  surge,
  templateHashLabel,
  terminationSeconds,
} from "../../contract/pods.ts";
import { embedPort } from "../../contract/ports.ts";
import { modelsFile, modelsText } from "../../contract/server/model-list.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { type ServerSettings, serverVariables } from "../../contract/server/server-settings.ts";
import type { Resources } from "../checks/kubernetes.ts";
import type { ImageReference } from "./cluster-access.ts";
import { kubernetesQuantities } from "./kubernetes-quantities.ts";

type DeploymentSpec = DeploymentV1Config["spec"];
type PodTemplate = DeploymentSpec["template"];

export interface InferencePodProps {
  readonly image: ImageReference;
  readonly models: readonly ModelSpec[];
  readonly resources: Resources;
  readonly server: ServerSettings;
  /** Labels of the pods, by which the Deployment selects them. */
  readonly labels: Readonly<Record<string, string>>;
  /** ServiceAccount of the pods. */
  readonly account: string;
  /** ConfigMap with the list of models. */
  readonly modelsConfig: string;
}

/** Spec of the Deployment of the embed server on CPU. */
export function inferenceDeploymentSpec(props: InferencePodProps): DeploymentSpec {
  return {
    // no `replicas`: the autoscaler owns it
    selector: { matchLabels: props.labels },
    strategy: {
      type: "RollingUpdate",
      rollingUpdate: { maxSurge: String(surge), maxUnavailable: "0" },
    },
    minReadySeconds,
    revisionHistoryLimit,
    progressDeadlineSeconds: progressDeadlineSeconds(),
    template: podTemplate(props),
  };
}

function podTemplate({
  image,
  models,
  resources,
  server,
  labels,
  account,
  modelsConfig,
}: InferencePodProps): PodTemplate {
  return {
    metadata: {
      labels,
      annotations: {
        // the server reads the list at start, so a change replaces the pods
        "checksum/models": createHash("sha256").update(modelsText(models)).digest("hex"),
        ...image.annotations,
      },
    },
    spec: {
      serviceAccountName: account,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: terminationSeconds(server.shutdownGraceSeconds),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: String(podUser.uid),
        runAsGroup: String(podUser.gid),
        seccompProfile: { type: "RuntimeDefault" },
      },
      topologySpreadConstraint: [
        {
          maxSkew: 1,
          topologyKey: "kubernetes.io/hostname",
          whenUnsatisfiable: "ScheduleAnyway",
          labelSelector: [{ matchLabels: labels }],
          matchLabelKeys: [templateHashLabel],
        },
      ],
      container: [
        {
          name: "embed",
          image: image.name,
          imagePullPolicy: "IfNotPresent",
          env: Object.entries(podVariables(resources, server)).map(([name, value]) => ({
            name,
            value,
          })),
          port: [{ name: podPortNames.http, containerPort: embedPort, protocol: "TCP" }],
          resources: {
            requests: kubernetesQuantities(resources.requests),
            limits: kubernetesQuantities(resources.limits),
          },
          ...probes(),
          // the Service still routes new connections for a moment after the pod starts to terminate
          lifecycle: { preStop: [{ exec: { command: ["sleep", String(preStopSeconds)] } }] },
          securityContext: {
            // repeated: for an unset value the provider writes `false`, which the namespace rejects
            runAsNonRoot: true,
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          },
          volumeMount: [
            { name: "tmp", mountPath: "/tmp" },
            { name: "models", mountPath: posix.dirname(modelsFile), readOnly: true },
          ],
        },
      ],
      volume: [
        { name: "tmp", emptyDir: { medium: "Memory", sizeLimit: `${podTmpMiB}Mi` } },
        { name: "models", configMap: { name: modelsConfig } },
      ],
    },
  };
}

function probes() {
  const ready = { path: embedPaths.readyz, port: podPortNames.http };
  return {
    // loading the models: probe often, with a long limit
    startupProbe: { httpGet: ready, ...startupProbeOf() },
    // draining or without its models: no new requests
    readinessProbe: { httpGet: ready, ...readinessProbe },
    // a hung process is restarted, a slow model is not
    livenessProbe: {
      httpGet: { path: embedPaths.healthz, port: podPortNames.http },
      ...livenessProbe,
    },
  };
}

function podVariables(
  { limits }: Resources,
  server: ServerSettings,
): Partial<Record<ServerEnvName, string>> {
  return {
    BACKEND: "onnxruntime",
    EXECUTION_PROVIDER: "cpu",
    // the CPU limit, not the number of cores of the node
    INTRA_OP_THREADS: String(Math.max(1, Math.floor(limits.cpuMillicores / 1000))),
    MODELS_FILE: modelsFile,
    PORT: String(embedPort),
    // reachable from the cluster, or over a NodePort on the loopback interface
    ALLOW_ANONYMOUS: "true",
    SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
    ...serverVariables(server),
  };
}
