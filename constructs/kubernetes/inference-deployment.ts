import { posix } from "node:path";
import { Construct } from "constructs";
import { ConfigMapV1 } from "#providers/kubernetes/lib/config-map-v1/index.js";
import { DeploymentV1 } from "#providers/kubernetes/lib/deployment-v1/index.js";
import { HorizontalPodAutoscalerV2 } from "#providers/kubernetes/lib/horizontal-pod-autoscaler-v2/index.js";
import { NetworkPolicyV1 } from "#providers/kubernetes/lib/network-policy-v1/index.js";
import { PodDisruptionBudgetV1 } from "#providers/kubernetes/lib/pod-disruption-budget-v1/index.js";
import { ServiceAccountV1 } from "#providers/kubernetes/lib/service-account-v1/index.js";
import { ServiceV1 } from "#providers/kubernetes/lib/service-v1/index.js";
import type { Service } from "../../contract/environment.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import {
  graceSeconds,
  podObjectName,
  podPortNames,
  preStopSeconds,
  progressDeadlineSeconds,
  selectorLabels,
  surge,
} from "../../contract/pods.ts";
import { embedPort } from "../../contract/ports.ts";
import { modelsFile, modelsText } from "../../contract/server/model-list.ts";
import {
  type ServerSettings,
  serverFindings,
  serverSettings,
} from "../../contract/server/server-settings.ts";
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
import { podMemoryFindings } from "../checks/memory.ts";
import { nodePortFindings } from "../checks/ports.ts";
import { checkedProps } from "../checks/props.ts";
import { stopTimeFindings } from "../checks/stop-times.ts";
import { addressOf } from "../terraform/cdktf.ts";
import type { ClusterAccess, ImageReference } from "./cluster-access.ts";
import type { InferenceNamespace } from "./inference-namespace.ts";
import { inferenceDeploymentSpec } from "./inference-pod.ts";
import { podSummary } from "./kubernetes-quantities.ts";
import { RolloutGate } from "./rollout-gate.ts";

export interface InferenceDeploymentProps {
  readonly cluster: ClusterAccess;
  readonly namespace: InferenceNamespace;
  /** Server image that contains the weights of the models. */
  readonly image: ImageReference;
  /**
   * NodePort of the Service. Must be the nodePort of one of the cluster's port mappings.
   *
   * @default - a ClusterIP Service
   */
  readonly nodePort?: number;
  /**
   * Models that the image contains; the first is the default of requests.
   *
   * @default - images with OpenCLIP ViT-B/32
   */
  readonly models?: readonly ModelSpec[];
  /** Resources of one pod. */
  readonly resources: Resources;
  readonly autoscaler: CpuScaling;
  /** Pods that may be unavailable while nodes are drained. */
  readonly budget: Budget;
  /**
   * Variables of the server that the construct does not set itself.
   *
   * @default - the defaults of the server
   */
  readonly server?: ServerSettings;
}

/** Embed server on CPU in a cluster, with Service, autoscaler, PodDisruptionBudget and network policy. */
export class InferenceDeployment extends Construct {
  /** Entry of the environment output. */
  readonly service: Service;
  /** Specs of the served models; the first is the default. */
  readonly models: readonly ModelSpec[];
  /** Name and number of pods, for one line about the stack. */
  readonly summary: string;
  readonly deployment: DeploymentV1;
  readonly kubernetesService: ServiceV1;
  /** Completes when the pods are ready. */
  readonly ready: RolloutGate;

  constructor(scope: Construct, id: string, props: InferenceDeploymentProps) {
    super(scope, id);

    const { cluster, namespace, image, autoscaler, resources, models = defaultModels } = props;
    this.models = models;
    this.summary = podSummary(id, autoscaler);
    checkInference(this, props);

    const name = podObjectName("embed");
    const labels = selectorLabels("embed");
    const metadata: Metadata = { name, namespace: namespace.namespace.namespaceName, labels };
    const account = new ServiceAccountV1(this, "account", {
      metadata,
      automountServiceAccountToken: false,
    });
    const modelsConfig = new ConfigMapV1(this, "models", {
      metadata: { ...metadata, name: `${name}-models` },
      data: { [posix.basename(modelsFile)]: modelsText(models) },
    });
    this.deployment = new DeploymentV1(this, "deployment", {
      metadata,
      waitForRollout: false, // `ready` waits, and prints the reason of a failure
      spec: inferenceDeploymentSpec({
        image,
        models,
        resources,
        server: props.server ?? {},
        labels,
        account: account.metadata.name,
        modelsConfig: modelsConfig.metadata.name,
      }),
      dependsOn: image.resource === undefined ? undefined : [image.resource],
    });
    check(this.deployment, () =>
      stopTimeFindings(
        "terminationGracePeriodSeconds",
        this.deployment.specInput?.template.spec?.terminationGracePeriodSeconds,
        props.server?.shutdownGraceSeconds ?? graceSeconds,
        preStopSeconds,
      ),
    );
    this.kubernetesService = serviceOf(this, metadata, props.nodePort);
    const scaler = autoscalerOf(this, metadata, this.deployment, autoscaler);
    disruptionBudgetOf(this, metadata, props.budget);
    networkPolicyOf(this, metadata, props.server?.imageUrlHosts ?? []);

    this.ready = new RolloutGate(this, "ready", {
      cluster,
      declaredBy: this.deployment,
      deployment: name,
      namespace: namespace.name,
      replicas: autoscaler.minReplicas,
      timeoutSeconds: progressDeadlineSeconds(),
      dependsOn: [scaler, this.kubernetesService],
    });
    this.service = {
      ...inferenceService(id, props),
      resources: {
        deployment: addressOf(this.deployment),
        service: addressOf(this.kubernetesService),
        ...(cluster.resource !== undefined && { cluster: addressOf(cluster.resource) }),
      },
    };
  }
}

interface Metadata {
  readonly name: string;
  readonly namespace: string;
  readonly labels: { [name: string]: string };
}

function serviceOf(scope: Construct, metadata: Metadata, nodePort: number | undefined): ServiceV1 {
  return new ServiceV1(scope, "service", {
    metadata,
    spec: {
      type: nodePort === undefined ? "ClusterIP" : "NodePort",
      selector: metadata.labels,
      port: [
        {
          name: podPortNames.http,
          port: embedPort,
          targetPort: podPortNames.http,
          nodePort,
          protocol: "TCP",
        },
      ],
    },
  });
}

function autoscalerOf(
  scope: Construct,
  metadata: Metadata,
  deployment: DeploymentV1,
  { minReplicas, maxReplicas, cpuPercent, scaleDownWindowSeconds }: CpuScaling,
): HorizontalPodAutoscalerV2 {
  return new HorizontalPodAutoscalerV2(scope, "autoscaler", {
    metadata,
    spec: {
      minReplicas,
      maxReplicas,
      scaleTargetRef: {
        apiVersion: "apps/v1",
        kind: "Deployment",
        name: deployment.metadata.name,
      },
      metric: [
        {
          type: "Resource",
          resource: {
            name: "cpu",
            target: { type: "Utilization", averageUtilization: cpuPercent },
          },
        },
      ],
      behavior: {
        scaleDown: [
          {
            stabilizationWindowSeconds: scaleDownWindowSeconds,
            selectPolicy: "Max",
            policy: [{ type: "Percent", value: 100, periodSeconds: 15 }],
          },
        ],
      },
    },
  });
}

function disruptionBudgetOf(scope: Construct, metadata: Metadata, budget: Budget): void {
  const text = (value: number | undefined) => (value === undefined ? undefined : String(value));
  new PodDisruptionBudgetV1(scope, "budget", {
    metadata,
    spec: {
      maxUnavailable: text(budget.maxUnavailable),
      minAvailable: text(budget.minAvailable),
      selector: { matchLabels: metadata.labels },
    },
  });
}

function networkPolicyOf(
  scope: Construct,
  metadata: Metadata,
  imageHosts: readonly string[],
): void {
  const tcp = (port: string) => ({ port, protocol: "TCP" });
  const imagePorts = imageHosts.map((host) => {
    const url = new URL(host.includes("://") ? host : `https://${host}`);
    return url.port || (url.protocol === "http:" ? "80" : "443");
  });
  new NetworkPolicyV1(scope, "network-policy", {
    metadata,
    spec: {
      podSelector: { matchLabels: metadata.labels },
      policyTypes: ["Ingress", "Egress"],
      // any source: traffic over a NodePort has the address of a node
      ingress: [{ ports: [{ port: podPortNames.http, protocol: "TCP" }] }],
      // none without hosts of image URLs: the image contains the models
      ...(imagePorts.length > 0 && {
        egress: [
          { ports: [{ port: "53", protocol: "UDP" }, tcp("53")] },
          ...[...new Set(imagePorts)].map((port) => ({ ports: [tcp(port)] })),
        ],
      }),
    },
  });
}

/** Checks the embed server in a cluster, for typed resources and the chart alike. */
export function checkInference(construct: Construct, props: InferenceDeploymentProps): void {
  const { cluster, namespace, autoscaler, resources, nodePort, models = defaultModels } = props;
  checkedProps(construct, props, { server: serverSettings.optional() });
  check(construct, () => serverFindings(props.server, "cpu"));
  check(construct, () => autoscalerFindings(autoscaler));
  check(construct, () => budgetFindings(props.budget, autoscaler));
  check(construct, () => quotaFindings(autoscaler, surge, resources, namespace.quota));
  check(construct, () => resourceFindings(resources, namespace.limitRange.max));
  check(construct, () => podMemoryFindings(resources, models));
  if (nodePort === undefined) return;
  const mapped = (cluster.portMappings ?? []).map((mapping) => mapping.nodePort);
  check(construct, () => nodePortFindings(nodePort, mapped));
}

/** Entry of the environment output, without the addresses of its resources. */
export function inferenceService(
  id: string,
  { cluster, namespace, nodePort, models = defaultModels }: InferenceDeploymentProps,
): Omit<Service, "resources"> {
  const url =
    nodePort === undefined
      ? `http://${podObjectName("embed")}.${namespace.name}.svc:${embedPort}`
      : `http://127.0.0.1:${hostPortOf(cluster, nodePort)}`;
  return {
    name: id,
    kind: "embed",
    backend: "onnxruntime",
    models: models.map(({ name }) => name),
    modelKind: "fp32",
    workload: podObjectName("embed"),
    endpoints: [
      { protocol: "embed-http", url, name: "embed-http" },
      { protocol: "metrics", url },
    ],
  };
}

function hostPortOf({ portMappings = [] }: ClusterAccess, nodePort: number): number {
  return portMappings.find((mapping) => mapping.nodePort === nodePort)?.hostPort ?? nodePort;
}
