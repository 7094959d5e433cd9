import { DeploymentV1 } from "@cdktf/provider-kubernetes/lib/deployment-v1/index.js";
import { HorizontalPodAutoscalerV2 } from "@cdktf/provider-kubernetes/lib/horizontal-pod-autoscaler-v2/index.js";
import { PodDisruptionBudgetV1 } from "@cdktf/provider-kubernetes/lib/pod-disruption-budget-v1/index.js";
import { ServiceV1 } from "@cdktf/provider-kubernetes/lib/service-v1/index.js";
import { Construct } from "constructs";
import { embedPaths } from "../inference-image/src/contract/embed-api.ts";
import type { Service } from "../inference-image/src/contract/environment.ts";
import { openclipVitB32 } from "../inference-image/src/contract/model-signature.ts";
import { embedPort } from "../inference-image/src/contract/ports.ts";
import {
  modelRepositoryMount,
  type ServerEnvName,
} from "../inference-image/src/contract/server-env.ts";
import { check } from "./checks/findings.ts";
import { imageFindings } from "./checks/images.ts";
import {
  autoscalerFindings,
  type Budget,
  budgetFindings,
  quotaFindings,
  type Replicas,
  type Resources,
  resourceFindings,
} from "./checks/kubernetes.ts";
import { nodePortFindings } from "./checks/ports.ts";
import { stopSeconds, stopTimeFindings } from "./checks/stop-times.ts";
import { type InferenceNamespace, kubernetesQuantities } from "./inference-namespace.ts";
import type { KindCluster } from "./kind-cluster.ts";

export interface Autoscaler extends Replicas {
  /** Average CPU of all pods, in percent of what they request. */
  readonly cpuPercent: number;
  /** How long the load must be low before pods go. */
  readonly scaleDownWindowSeconds: number;
}

export interface InferenceDeploymentProps {
  readonly cluster: KindCluster;
  readonly namespace: InferenceNamespace;
  /** Image with a version, which contains the model. */
  readonly image: string;
  /** NodePort of the Service: one that the cluster maps. */
  readonly nodePort: number;
  readonly resources: Resources;
  readonly autoscaler: Autoscaler;
  /** How many pods may be away at once when nodes are drained. */
  readonly budget: Budget;
}

/** Between the signal to stop and the moment when no node sends new connections any more. */
const preStopSeconds = 5;

/** How long a stop waits for accepted requests. */
const graceSeconds = 30;

/** Pods that a rolling update starts before it stops others: on CPU there is room for one more. */
const surge = 1;

/** Time to load the model and warm up. */
const startSeconds = 120;

/** The embed server in a cluster: pods, the Service that leads to them, autoscaler and disruption budget. */
export class InferenceDeployment extends Construct {
  /** What the environment output says of it. */
  readonly service: Service;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  readonly deployment: DeploymentV1;
  readonly nodePortService: ServiceV1;

  constructor(scope: Construct, id: string, props: InferenceDeploymentProps) {
    super(scope, id);

    const { cluster, namespace, autoscaler, resources } = props;
    this.minReplicas = autoscaler.minReplicas;
    this.maxReplicas = autoscaler.maxReplicas;
    check(this, () => imageFindings(props.image));
    check(this, () => autoscalerFindings(autoscaler));
    check(this, () => budgetFindings(props.budget, autoscaler));
    check(this, () => quotaFindings(autoscaler, surge, resources, namespace.quota));
    check(this, () => resourceFindings(resources, namespace.limitRange.max));
    check(this, () =>
      nodePortFindings(
        props.nodePort,
        cluster.portMappings.map((mapping) => mapping.nodePort),
      ),
    );

    const labels = { "app.kubernetes.io/name": "clipstack", "app.kubernetes.io/component": id };
    const metadata = { name: id, namespace: namespace.namespace.metadata.name, labels };
    const ready = { path: embedPaths.readyz, port: "http" };

    this.deployment = new DeploymentV1(this, "deployment", {
      metadata,
      spec: {
        // no `replicas`: the autoscaler owns it
        selector: { matchLabels: labels },
        strategy: {
          type: "RollingUpdate",
          rollingUpdate: { maxSurge: String(surge), maxUnavailable: "0" },
        },
        minReadySeconds: 5,
        progressDeadlineSeconds: 2 * startSeconds + 60,
        template: {
          metadata: { labels },
          spec: {
            automountServiceAccountToken: false,
            enableServiceLinks: false,
            terminationGracePeriodSeconds: stopSeconds(graceSeconds, preStopSeconds),
            securityContext: {
              runAsNonRoot: true,
              runAsUser: "1000",
              runAsGroup: "1000",
              seccompProfile: { type: "RuntimeDefault" },
            },
            topologySpreadConstraint: [
              {
                maxSkew: 1,
                topologyKey: "kubernetes.io/hostname",
                whenUnsatisfiable: "ScheduleAnyway",
                labelSelector: [{ matchLabels: labels }],
              },
            ],
            container: [
              {
                name: "embed",
                image: props.image,
                imagePullPolicy: "IfNotPresent",
                env: Object.entries(serverSettings(resources)).map(([name, value]) => ({
                  name,
                  value,
                })),
                port: [{ name: "http", containerPort: embedPort, protocol: "TCP" }],
                resources: {
                  requests: kubernetesQuantities(resources.requests),
                  limits: kubernetesQuantities(resources.limits),
                },
                // the model loads: look often, give it all the time it may need
                startupProbe: {
                  httpGet: ready,
                  periodSeconds: 2,
                  timeoutSeconds: 2,
                  failureThreshold: startSeconds / 2,
                },
                // draining or no model: take no new requests, soon
                readinessProbe: {
                  httpGet: ready,
                  periodSeconds: 5,
                  timeoutSeconds: 2,
                  failureThreshold: 2,
                },
                // the process hangs: restart it, but never for a slow model
                livenessProbe: {
                  httpGet: { path: embedPaths.healthz, port: "http" },
                  periodSeconds: 10,
                  timeoutSeconds: 5,
                  failureThreshold: 3,
                },
                // the Service still sends connections for a moment after the pod is told to go
                lifecycle: { preStop: [{ exec: { command: ["sleep", String(preStopSeconds)] } }] },
                securityContext: {
                  allowPrivilegeEscalation: false,
                  readOnlyRootFilesystem: true,
                  capabilities: { drop: ["ALL"] },
                },
                volumeMount: [{ name: "tmp", mountPath: "/tmp" }],
              },
            ],
            volume: [{ name: "tmp", emptyDir: { medium: "Memory", sizeLimit: "64Mi" } }],
          },
        },
      },
      dependsOn: [cluster.images],
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
            name: "http",
            port: embedPort,
            targetPort: "http",
            nodePort: props.nodePort,
            protocol: "TCP",
          },
        ],
      },
    });

    new HorizontalPodAutoscalerV2(this, "autoscaler", {
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

    const hostPort = cluster.portMappings.find((it) => it.nodePort === props.nodePort)?.hostPort;
    const url = `http://127.0.0.1:${hostPort ?? props.nodePort}`;
    this.service = {
      name: id,
      kind: "embed",
      backend: "onnx",
      model: openclipVitB32.name,
      resources: {
        deployment: `kubernetes_deployment_v1.${this.deployment.friendlyUniqueId}`,
        service: `kubernetes_service_v1.${this.nodePortService.friendlyUniqueId}`,
        cluster: `terraform_data.${cluster.cluster.friendlyUniqueId}`,
      },
      endpoints: [
        { protocol: "embed-http", url, path: "embed-http" },
        { protocol: "metrics", url },
      ],
    };
  }
}

function serverSettings({ limits }: Resources): Partial<Record<ServerEnvName, string>> {
  return {
    ENGINE: "onnx",
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
