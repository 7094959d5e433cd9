import { expect, test } from "vitest";
import { type ManifestOptions, manifestsOf } from "./terraform-manifests.ts";
import type { TerraformResources } from "./terraform-text.ts";

const file = "cdk.tf.json";

function manifests(resources: TerraformResources, options?: ManifestOptions) {
  return manifestsOf(resources, file, options).map(({ manifest }) => manifest);
}

/** Manifest of a resource. */
function manifestOf(type: string, body: object, options?: ManifestOptions) {
  return manifests({ [type]: { it: body } }, options)[0];
}

/** Deployment with a container, as written by the provider bindings. */
function deploymentWith(container: object, pod: object = {}) {
  return { spec: { template: { spec: { container: [{ name: "embed", ...container }], ...pod } } } };
}

/** Pod template of {@link deploymentWith} as a manifest. */
function podOf(container: object, pod?: object, options?: ManifestOptions) {
  const manifest = manifestOf("kubernetes_deployment_v1", deploymentWith(container, pod), options);
  return (manifest as unknown as { spec: { template: { spec: Record<string, unknown> } } }).spec
    .template.spec;
}

function containerOf(container: object, options?: ManifestOptions) {
  const pod = podOf(container, {}, options) as { containers: Record<string, unknown>[] };
  return pod.containers[0];
}

test("a container's blocks become lists with the names of the API", () => {
  const found = containerOf({
    env: [{ name: "POD", value_from: { field_ref: { field_path: "metadata.name" } } }],
    port: [{ container_port: 8002, name: "http" }],
    volume_mount: [{ mount_path: "/tmp", name: "tmp" }],
    readiness_probe: { http_get: { path: "/readyz", port: "http" }, period_seconds: 5 },
    lifecycle: { pre_stop: [{ exec: { command: ["sleep", "5"] } }] },
  });
  expect(found).toEqual({
    name: "embed",
    env: [{ name: "POD", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } }],
    ports: [{ containerPort: 8002, name: "http" }],
    volumeMounts: [{ mountPath: "/tmp", name: "tmp" }],
    readinessProbe: { httpGet: { path: "/readyz", port: "http" }, periodSeconds: 5 },
    lifecycle: { preStop: { exec: { command: ["sleep", "5"] } } },
  });
});

test("keys of labels, resources and selectors are data", () => {
  const manifest = manifestOf("kubernetes_deployment_v1", {
    metadata: { name: "embed", labels: { snake_case: "a" } },
    spec: {
      selector: { match_labels: { some_label: "b" } },
      template: {
        spec: {
          container: [
            { name: "embed", resources: { limits: { "nvidia.com/gpu": "1", cpu: "2" } } },
          ],
          node_selector: { node_pool: "c" },
        },
      },
    },
  });
  expect(manifest).toMatchObject({
    metadata: { labels: { snake_case: "a" } },
    spec: {
      selector: { matchLabels: { some_label: "b" } },
      template: {
        spec: {
          containers: [{ resources: { limits: { "nvidia.com/gpu": "1", cpu: "2" } } }],
          nodeSelector: { node_pool: "c" },
        },
      },
    },
  });
});

test("strings that are numbers in the API become numbers, and quantities stay strings", () => {
  const pod = podOf(
    {
      liveness_probe: { http_get: { port: "8002" } },
      resources: { requests: { cpu: "1", memory: "1Gi" } },
    },
    {
      security_context: { run_as_user: "1000", run_as_group: "1000", fs_group: "1000" },
      volume: [{ name: "settings", config_map: { name: "settings", default_mode: "0644" } }],
    },
  );
  expect(pod).toMatchObject({
    containers: [
      {
        livenessProbe: { httpGet: { port: 8002 } },
        resources: { requests: { cpu: "1", memory: "1Gi" } },
      },
    ],
    securityContext: { runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000 },
    volumes: [{ name: "settings", configMap: { name: "settings", defaultMode: 0o644 } }],
  });
});

test("a percentage of pods stays a string", () => {
  const rollingUpdate = { max_surge: "25%", max_unavailable: "0" };
  const manifest = manifestOf("kubernetes_deployment_v1", {
    spec: { strategy: { type: "RollingUpdate", rolling_update: rollingUpdate } },
  });
  expect(manifest?.spec).toEqual({
    strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: "25%", maxUnavailable: 0 } },
  });
});

test("required node affinity is an object, required pod affinity a list", () => {
  const pod = podOf(
    {},
    {
      affinity: {
        node_affinity: {
          required_during_scheduling_ignored_during_execution: [
            { node_selector_term: [{ match_expressions: [{ key: "gpu", operator: "Exists" }] }] },
          ],
        },
        pod_anti_affinity: {
          required_during_scheduling_ignored_during_execution: [{ topology_key: "host" }],
        },
      },
    },
  );
  expect(pod.affinity).toEqual({
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: [{ matchExpressions: [{ key: "gpu", operator: "Exists" }] }],
      },
    },
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [{ topologyKey: "host" }],
    },
  });
});

test("a Service has a map as its selector and its ports in a list", () => {
  const manifest = manifestOf("kubernetes_service_v1", {
    spec: {
      type: "NodePort",
      cluster_ip: "None",
      selector: { "app.kubernetes.io/name": "clipstack" },
      port: [{ port: 8002, target_port: "http", node_port: 30_092 }],
    },
  });
  expect(manifest?.spec).toEqual({
    type: "NodePort",
    clusterIP: "None",
    selector: { "app.kubernetes.io/name": "clipstack" },
    ports: [{ port: 8002, targetPort: "http", nodePort: 30_092 }],
  });
});

test("a network policy that allows no egress keeps its empty selector", () => {
  const manifest = manifestOf("kubernetes_network_policy_v1", {
    metadata: { name: "embed" },
    spec: {
      pod_selector: {},
      ingress: [{ ports: [{ port: "8002", protocol: "TCP" }] }],
      policy_types: ["Ingress", "Egress"],
    },
  });
  expect(manifest).toEqual({
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "embed" },
    spec: {
      podSelector: {},
      ingress: [{ ports: [{ port: 8002, protocol: "TCP" }] }],
      policyTypes: ["Ingress", "Egress"],
    },
  });
});

test("an autoscaler has lists of metrics and policies", () => {
  const manifest = manifestOf("kubernetes_horizontal_pod_autoscaler_v2", {
    spec: {
      metric: [
        {
          type: "Resource",
          resource: { name: "cpu", target: { type: "Utilization", average_utilization: 60 } },
        },
      ],
      behavior: { scale_down: [{ policy: [{ type: "Percent", value: 100, period_seconds: 15 }] }] },
    },
  });
  expect(manifest).toMatchObject({
    apiVersion: "autoscaling/v2",
    kind: "HorizontalPodAutoscaler",
    spec: {
      metrics: [
        {
          type: "Resource",
          resource: { name: "cpu", target: { type: "Utilization", averageUtilization: 60 } },
        },
      ],
      behavior: { scaleDown: { policies: [{ type: "Percent", value: 100, periodSeconds: 15 }] } },
    },
  });
});

test("converts the resources of a metrics server: account, roles and API service", () => {
  const found = manifests({
    kubernetes_cluster_role_v1: {
      it: { rule: [{ api_groups: [""], resources: ["nodes/metrics"], verbs: ["get"] }] },
    },
    kubernetes_cluster_role_binding_v1: {
      it: {
        role_ref: { api_group: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" },
        subject: [{ kind: "ServiceAccount", name: "metrics-server", namespace: "kube-system" }],
      },
    },
    kubernetes_service_account_v1: { it: { automount_service_account_token: false } },
    kubernetes_api_service_v1: {
      it: {
        spec: {
          group: "metrics.k8s.io",
          insecure_skip_tls_verify: true,
          service: { name: "metrics-server", namespace: "kube-system" },
        },
      },
    },
  });
  expect(found.map(({ metadata: _, ...rest }) => rest)).toEqual([
    { apiVersion: "v1", kind: "ServiceAccount", automountServiceAccountToken: false },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      rules: [{ apiGroups: [""], resources: ["nodes/metrics"], verbs: ["get"] }],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" },
      subjects: [{ kind: "ServiceAccount", name: "metrics-server", namespace: "kube-system" }],
    },
    {
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      spec: {
        group: "metrics.k8s.io",
        insecureSkipTLSVerify: true,
        service: { name: "metrics-server", namespace: "kube-system" },
      },
    },
  ]);
});

test("drops the arguments of Terraform, and keeps the lifecycle of a container", () => {
  const manifest = manifestOf("kubernetes_deployment_v1", {
    "//": { metadata: {} },
    depends_on: ["terraform_data.cluster"],
    lifecycle: { ignore_changes: [] },
    timeouts: { create: "5m" },
    wait_for_rollout: true,
    metadata: { name: "embed" },
  });
  expect(manifest).toEqual({
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name: "embed" },
  });
});

test("a namespace precedes its objects, and references to names are resolved", () => {
  const found = manifests({
    kubernetes_deployment_v1: {
      it: {
        metadata: { name: "embed", namespace: `\${kubernetes_namespace_v1.it.metadata[0].name}` },
      },
    },
    kubernetes_namespace_v1: { it: { metadata: { name: "clipstack" } } },
    terraform_data: { cluster: {} },
  });
  expect(found.map(({ kind, metadata }) => [kind, metadata])).toEqual([
    ["Namespace", { name: "clipstack" }],
    ["Deployment", { name: "embed", namespace: "clipstack" }],
  ]);
});

test("unescapes Terraform's escaped braces", () => {
  expect(containerOf({ args: ["$${HOME}"] }, { complete: true })?.args).toEqual([`\${HOME}`]);
});

test("--image replaces only images that are Terraform expressions", () => {
  const image = "clipstack/embed:k8s-cpu";
  const unknown = containerOf({ image: `\${docker_image.embed.name}` }, { image, complete: true });
  const known = containerOf({ image: "busybox:1.36" }, { image, complete: true });
  expect([unknown?.image, known?.image]).toEqual([image, "busybox:1.36"]);
});

test("fails on an image that is a Terraform expression without --image", () => {
  expect(() => containerOf({ image: `\${docker_image.embed.name}` }, { complete: true })).toThrow(
    `cdk.tf.json: kubernetes_deployment_v1.it: spec.template.spec.containers.0.image: \${docker_image.embed.name} is known only to Terraform; set it with --image`,
  );
});

test("keeps an expression in a partial manifest", () => {
  const image = `\${docker_image.embed.name}`;
  expect(containerOf({ image })?.image).toBe(image);
});

test("fails on an unsupported resource type", () => {
  expect(() => manifestOf("kubernetes_labels", {})).toThrow(
    "cdk.tf.json: kubernetes_labels.it: unsupported resource type 'kubernetes_labels'",
  );
});
