import { Construct } from "constructs";
import { ApiServiceV1 } from "#providers/kubernetes/lib/api-service-v1/index.js";
import { ClusterRoleBindingV1 } from "#providers/kubernetes/lib/cluster-role-binding-v1/index.js";
import { ClusterRoleV1 } from "#providers/kubernetes/lib/cluster-role-v1/index.js";
import {
  DeploymentV1,
  type DeploymentV1SpecTemplateSpecContainer,
} from "#providers/kubernetes/lib/deployment-v1/index.js";
import { RoleBindingV1 } from "#providers/kubernetes/lib/role-binding-v1/index.js";
import { ServiceAccountV1 } from "#providers/kubernetes/lib/service-account-v1/index.js";
import { ServiceV1 } from "#providers/kubernetes/lib/service-v1/index.js";
import { check } from "../checks/findings.ts";
import { imageFindings } from "../checks/images.ts";
import type { ClusterAccess } from "../kubernetes/cluster-access.ts";
import { RolloutGate } from "../kubernetes/rollout-gate.ts";
import type { TerraformResource } from "../terraform/cdktf.ts";

export interface MetricsServerProps {
  readonly cluster: ClusterAccess;
  /** Image with a tag or digest: `registry.k8s.io/metrics-server/metrics-server:v0.7.2`. */
  readonly image: string;
}

const name = "metrics-server";
const namespace = "kube-system";
const labels = { "k8s-app": name };
const metadata = { name, namespace, labels };
const port = 10_250;
const group = "metrics.k8s.io";
const rbac = "rbac.authorization.k8s.io";

/** Maximum start time. metrics-server becomes ready after it has scraped the nodes twice. */
const startSeconds = 180;

/**
 * metrics-server, which provides the CPU utilisation of pods to autoscalers. Declares the objects of its release, because a
 * kind cluster has no metrics-server. Does not verify the certificates of the kubelets, which kind signs itself.
 */
export class MetricsServer extends Construct {
  readonly deployment: DeploymentV1;
  /** Gate that completes when the pod is ready. */
  readonly ready: RolloutGate;

  constructor(scope: Construct, id: string, { cluster, image }: MetricsServerProps) {
    super(scope, id);

    check(this, () => imageFindings(image));
    const dependsOn = cluster.resource === undefined ? undefined : [cluster.resource];
    const account = new ServiceAccountV1(this, "account", { metadata, dependsOn });
    const bindings = roleBindings(this, account, dependsOn);
    const service = new ServiceV1(this, "service", {
      metadata,
      spec: {
        selector: labels,
        port: [{ name: "https", port: 443, targetPort: "https", protocol: "TCP" }],
      },
      dependsOn,
    });
    this.deployment = new DeploymentV1(this, "deployment", {
      metadata,
      waitForRollout: false, // `ready` waits and reports the cause of a failure
      spec: {
        selector: { matchLabels: labels },
        strategy: {
          type: "RollingUpdate",
          rollingUpdate: { maxSurge: "25%", maxUnavailable: "0" },
        },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: account.metadata.name,
            priorityClassName: "system-cluster-critical",
            nodeSelector: { "kubernetes.io/os": "linux" },
            container: [container(image)],
            volume: [{ name: "tmp", emptyDir: {} }],
          },
        },
      },
      dependsOn: bindings,
    });
    const api = new ApiServiceV1(this, "api", {
      metadata: { name: `v1beta1.${group}`, labels },
      spec: {
        group,
        version: "v1beta1",
        groupPriorityMinimum: 100,
        versionPriority: 100,
        insecureSkipTlsVerify: true,
        service: { name: service.metadata.name, namespace: service.metadata.namespace },
      },
      dependsOn: [this.deployment],
    });
    this.ready = new RolloutGate(this, "ready", {
      cluster,
      declaredBy: this.deployment,
      deployment: name,
      namespace,
      timeoutSeconds: startSeconds,
      dependsOn: [api],
    });
  }
}

/** Roles of metrics-server and of users who read its metrics. Returns the bindings to its service account. */
function roleBindings(
  scope: Construct,
  account: ServiceAccountV1,
  dependsOn: TerraformResource[] | undefined,
): TerraformResource[] {
  const subject = [
    {
      kind: "ServiceAccount",
      name: account.metadata.name,
      namespace: account.metadata.namespace,
    },
  ];
  new ClusterRoleV1(scope, "reader", {
    metadata: {
      name: "system:aggregated-metrics-reader",
      labels: {
        ...labels,
        "rbac.authorization.k8s.io/aggregate-to-admin": "true",
        "rbac.authorization.k8s.io/aggregate-to-edit": "true",
        "rbac.authorization.k8s.io/aggregate-to-view": "true",
      },
    },
    rule: [{ apiGroups: [group], resources: ["pods", "nodes"], verbs: ["get", "list", "watch"] }],
    dependsOn,
  });
  const role = new ClusterRoleV1(scope, "role", {
    metadata: { name: `system:${name}`, labels },
    rule: [
      { apiGroups: [""], resources: ["nodes/metrics"], verbs: ["get"] },
      { apiGroups: [""], resources: ["pods", "nodes"], verbs: ["get", "list", "watch"] },
    ],
    dependsOn,
  });
  return [
    new RoleBindingV1(scope, "auth-reader", {
      metadata: { name: `${name}-auth-reader`, namespace, labels },
      roleRef: {
        apiGroup: rbac,
        kind: "Role",
        name: "extension-apiserver-authentication-reader",
      },
      subject,
    }),
    new ClusterRoleBindingV1(scope, "auth-delegator", {
      metadata: { name: `${name}:system:auth-delegator`, labels },
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: "system:auth-delegator" },
      subject,
    }),
    new ClusterRoleBindingV1(scope, "binding", {
      metadata: { name: `system:${name}`, labels },
      roleRef: { apiGroup: rbac, kind: "ClusterRole", name: role.metadata.name },
      subject,
    }),
  ];
}

function container(image: string): DeploymentV1SpecTemplateSpecContainer {
  const probe = (path: string) => ({
    httpGet: { path, port: "https", scheme: "HTTPS" },
    periodSeconds: 10,
    failureThreshold: 3,
  });
  return {
    name,
    image,
    imagePullPolicy: "IfNotPresent",
    args: [
      "--cert-dir=/tmp",
      `--secure-port=${port}`,
      "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
      "--kubelet-use-node-status-port",
      "--metric-resolution=15s",
      "--kubelet-insecure-tls",
    ],
    port: [{ name: "https", containerPort: port, protocol: "TCP" }],
    resources: { requests: { cpu: "100m", memory: "200Mi" } },
    livenessProbe: probe("/livez"),
    readinessProbe: { ...probe("/readyz"), initialDelaySeconds: 20 },
    securityContext: {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      readOnlyRootFilesystem: true,
      runAsNonRoot: true,
      runAsUser: "1000",
      seccompProfile: { type: "RuntimeDefault" },
    },
    volumeMount: [{ name: "tmp", mountPath: "/tmp" }],
  };
}
