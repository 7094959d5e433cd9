import { DeploymentV1 } from "@cdktf/provider-kubernetes/lib/deployment-v1/index.js";
import { HorizontalPodAutoscalerV2 } from "@cdktf/provider-kubernetes/lib/horizontal-pod-autoscaler-v2/index.js";
import { NetworkPolicyV1 } from "@cdktf/provider-kubernetes/lib/network-policy-v1/index.js";
import { PodDisruptionBudgetV1 } from "@cdktf/provider-kubernetes/lib/pod-disruption-budget-v1/index.js";
import { ServiceAccountV1 } from "@cdktf/provider-kubernetes/lib/service-account-v1/index.js";
import { ServiceV1 } from "@cdktf/provider-kubernetes/lib/service-v1/index.js";
import { Construct } from "constructs";
import { embedPaths } from "../../contract/embed-api.ts";
import type { Service } from "../../contract/environment.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import {
  graceSeconds,
  livenessProbe,
  minReadySeconds,
  podObjectName,
  podPortNames,
  podTmpMiB,
  podUser,
  preStopSeconds,
  progressDeadlineSeconds,
  readinessProbe,
  revisionHistoryLimit,
  selectorLabels,
  startupProbeOf,
  surge,
  templateHashLabel,
  terminationSeconds,
} from "../../contract/pods.ts";
import { embedPort } from "../../contract/ports.ts";
import { modelRepositoryMount, type ServerEnvName } from "../../contract/server-env.ts";
import { check } from "../checks/findings.ts";
import {
  autoscalerFindings,
  type Budget,
  budgetFindings,
  type CpuScaling,
  quotaFindings,
  type Resources,
  resourceFindings,
} from "../checks/kubernetes.ts";
import { nodePortFindings } from "../checks/ports.ts";
import { stopTimeFindings } from "../checks/stop-times.ts";
import type { KindCluster } from "../kind/kind-cluster.ts";
import type { KindImage } from "../kind/kind-image.ts";
import type { InferenceNamespace } from "./inference-namespace.ts";
import { kubernetesQuantities } from "./kubernetes-quantities.ts";
import { RolloutGate } from "./rollout-gate.ts";

export interface InferenceDeploymentProps {
  readonly cluster: KindCluster;
  readonly namespace: InferenceNamespace;
  /** The embed image with its weights, in the nodes of the cluster. */
  readonly image: KindImage;
  /** NodePort of the Service: one that the cluster maps. */
  readonly nodePort: number;
  readonly resources: Resources;
  readonly autoscaler: CpuScaling;
  /** How many pods may be away at once when nodes are drained. */
  readonly budget: Budget;
}

/** The embed server in a cluster: pods, the Service that leads to them, autoscaler and disruption budget. */
export class InferenceDeployment extends Construct {
  /** What the environment output says of it. */
  readonly service: Service;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  readonly deployment: DeploymentV1;
  readonly nodePortService: ServiceV1;
  /** Done when the pods are ready. */
  readonly ready: RolloutGate;

  constructor(scope: Construct, id: string, props: InferenceDeploymentProps) {
    super(scope, id);

    const { cluster, namespace, autoscaler, resources } = props;
    this.minReplicas = autoscaler.minReplicas;
    this.maxReplicas = autoscaler.maxReplicas;
    checkInference(this, props);

    const name = podObjectName("embed");
    const labels = selectorLabels("embed");
    const metadata = { name, namespace: namespace.namespace.metadata.name, labels };
    const ready = { path: embedPaths.readyz, port: podPortNames.http };
    const account = new ServiceAccountV1(this, "account", {
      metadata,
      automountServiceAccountToken: false,
    });

    this.deployment = new DeploymentV1(this, "deployment", {
      metadata,
      waitForRollout: false, // `ready` waits, and says why
      spec: {
        // no `replicas`: the autoscaler owns it
        selector: { matchLabels: labels },
        strategy: {
          type: "RollingUpdate",
          rollingUpdate: { maxSurge: String(surge), maxUnavailable: "0" },
        },
        minReadySeconds,
        revisionHistoryLimit,
        progressDeadlineSeconds: progressDeadlineSeconds(),
        template: {
          metadata: { labels, annotations: props.image.annotations },
          spec: {
            serviceAccountName: account.metadata.name,
            automountServiceAccountToken: false,
            enableServiceLinks: false,
            terminationGracePeriodSeconds: terminationSeconds(),
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
                image: props.image.name,
                imagePullPolicy: "IfNotPresent",
                env: Object.entries(serverSettings(resources)).map(([name, value]) => ({
                  name,
                  value,
                })),
                port: [{ name: podPortNames.http, containerPort: embedPort, protocol: "TCP" }],
                resources: {
                  requests: kubernetesQuantities(resources.requests),
                  limits: kubernetesQuantities(resources.limits),
                },
                // the model loads: look often, give it all the time it may need
                startupProbe: { httpGet: ready, ...startupProbeOf() },
                // draining or no model: take no new requests, soon
                readinessProbe: { httpGet: ready, ...readinessProbe },
                // the process hangs: restart it, but never for a slow model
                livenessProbe: {
                  httpGet: { path: embedPaths.healthz, port: podPortNames.http },
                  ...livenessProbe,
                },
                // the Service still sends connections for a moment after the pod is told to go
                lifecycle: { preStop: [{ exec: { command: ["sleep", String(preStopSeconds)] } }] },
                securityContext: {
                  // said again: the provider writes `false` where a container says nothing, and the namespace refuses it
                  runAsNonRoot: true,
                  allowPrivilegeEscalation: false,
                  readOnlyRootFilesystem: true,
                  capabilities: { drop: ["ALL"] },
                },
                volumeMount: [{ name: "tmp", mountPath: "/tmp" }],
              },
            ],
            volume: [{ name: "tmp", emptyDir: { medium: "Memory", sizeLimit: `${podTmpMiB}Mi` } }],
          },
        },
      },
      dependsOn: [props.image.loaded],
    });

    check(this.deployment, () =>
      stopTimeFindings(
        "terminationGracePeriodSeconds",
        this.deployment.specInput?.template.spec?.terminationGracePeriodSeconds,
        graceSeconds,
        preStopSeconds,
      ),
    );

    this.nodePortService = new ServiceV1(this, "service", {
      metadata,
      spec: {
        type: "NodePort",
        selector: labels,
        port: [
          {
            name: podPortNames.http,
            port: embedPort,
            targetPort: podPortNames.http,
            nodePort: props.nodePort,
            protocol: "TCP",
          },
        ],
      },
    });

    const scaler = new HorizontalPodAutoscalerV2(this, "autoscaler", {
      metadata,
      spec: {
        minReplicas: autoscaler.minReplicas,
        maxReplicas: autoscaler.maxReplicas,
        scaleTargetRef: {
          apiVersion: "apps/v1",
          kind: "Deployment",
          name: this.deployment.metadata.name,
        },
        metric: [
          {
            type: "Resource",
            resource: {
              name: "cpu",
              target: { type: "Utilization", averageUtilization: autoscaler.cpuPercent },
            },
          },
        ],
        behavior: {
          scaleDown: [
            {
              stabilizationWindowSeconds: autoscaler.scaleDownWindowSeconds,
              selectPolicy: "Max",
              policy: [{ type: "Percent", value: 100, periodSeconds: 15 }],
            },
          ],
        },
      },
    });

    new PodDisruptionBudgetV1(this, "budget", {
      metadata,
      spec: {
        maxUnavailable: text(props.budget.maxUnavailable),
        minAvailable: text(props.budget.minAvailable),
        selector: { matchLabels: labels },
      },
    });

    new NetworkPolicyV1(this, "network-policy", {
      metadata,
      spec: {
        podSelector: { matchLabels: labels },
        policyTypes: ["Ingress", "Egress"],
        // from everywhere: what comes over a NodePort has the address of a node
        ingress: [{ ports: [{ port: podPortNames.http, protocol: "TCP" }] }],
        // no `egress`: the model is in the image, and nothing else is asked
      },
    });

    this.ready = new RolloutGate(this, "ready", {
      cluster,
      declaredBy: this.deployment,
      deployment: name,
      namespace: namespace.name,
      replicas: autoscaler.minReplicas,
      timeoutSeconds: progressDeadlineSeconds(),
      dependsOn: [scaler, this.nodePortService],
    });

    this.service = {
      ...inferenceService(id, props),
      resources: {
        deployment: `kubernetes_deployment_v1.${this.deployment.friendlyUniqueId}`,
        service: `kubernetes_service_v1.${this.nodePortService.friendlyUniqueId}`,
        cluster: `terraform_data.${cluster.cluster.friendlyUniqueId}`,
      },
    };
  }
}

/** What is wrong with the embed server in a cluster, whatever declares it. */
export function checkInference(construct: Construct, props: InferenceDeploymentProps): void {
  const { cluster, namespace, autoscaler, resources } = props;
  check(construct, () => autoscalerFindings(autoscaler));
  check(construct, () => budgetFindings(props.budget, autoscaler));
  check(construct, () => quotaFindings(autoscaler, surge, resources, namespace.quota));
  check(construct, () => resourceFindings(resources, namespace.limitRange.max));
  check(construct, () =>
    nodePortFindings(
      props.nodePort,
      cluster.portMappings.map((mapping) => mapping.nodePort),
    ),
  );
}

/** What the environment output says of the embed server in a kind cluster, whatever declares it. */
export function inferenceService(
  id: string,
  { cluster, nodePort }: InferenceDeploymentProps,
): Omit<Service, "resources"> {
  const hostPort = cluster.portMappings.find((it) => it.nodePort === nodePort)?.hostPort;
  const url = `http://127.0.0.1:${hostPort ?? nodePort}`;
  return {
    name: id,
    kind: "embed",
    backend: "onnxruntime",
    model: openclipVitB32.name,
    workload: podObjectName("embed"),
    endpoints: [
      { protocol: "embed-http", url, name: "embed-http" },
      { protocol: "metrics", url },
    ],
  };
}

function serverSettings({ limits }: Resources): Partial<Record<ServerEnvName, string>> {
  return {
    BACKEND: "onnxruntime",
    EXECUTION_PROVIDER: "cpu",
    // as many threads as the container may use, not as many as the node has cores
    INTRA_OP_THREADS: String(Math.max(1, Math.floor(limits.cpuMillicores / 1000))),
    MODEL_PATH: `${modelRepositoryMount}/${openclipVitB32.name}/1/model.onnx`,
    PORT: String(embedPort),
    // kind maps the NodePort to this machine's loopback interface
    ALLOW_ANONYMOUS: "true",
    SHUTDOWN_GRACE_SECONDS: String(graceSeconds),
  };
}

function text(value: number | undefined): string | undefined {
  return value === undefined ? undefined : String(value);
}
