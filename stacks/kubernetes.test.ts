import { describe, expect, test } from "vitest";
import { findingsOf, warningsOf } from "../constructs/checks/findings.ts";
import { type ChartValues, chartValues } from "../constructs/kubernetes/chart-values.ts";
import type { ClusterRequirements } from "../constructs/kubernetes/cluster-requirements.ts";
import { Testing } from "../constructs/terraform/cdktf.ts";
import { environment } from "../contract/environment.ts";
import { KubernetesStack } from "./kubernetes.ts";
import { parseSettings } from "./settings/settings.ts";

const sha256 = "a".repeat(64);
/** Image pinned by digest. */
const pinned = `registry.example/triton@sha256:${sha256}`;

const stackOf = (yaml = "") =>
  new KubernetesStack(Testing.app(), "k8s-gpu", parseSettings("kubernetes", "test", yaml));
const findings = (yaml: string) =>
  findingsOf(stackOf(yaml)).map((line) => line.replace("k8s-gpu/inference: ", ""));
const warnings = (yaml: string) =>
  warningsOf(stackOf(yaml)).map((line) => line.replace("k8s-gpu/inference: ", ""));

/** Synthesized stack: Terraform JSON, release, chart values and environment output. */
function synthesized(yaml = "") {
  const json = JSON.parse(Testing.synth(stackOf(yaml), true));
  const [release] = Object.values(json.resource.helm_release) as { values: string[] }[];
  const values = JSON.parse(release?.values[0] ?? "") as ChartValues;
  return { json, release, values, environment: environment.parse(json.output.environment.value) };
}
/** Values with the chart's defaults. */
const values = (yaml = "") => chartValues.parse(synthesized(yaml).values);
const requirements = (yaml: string) => {
  const { resource } = synthesized(yaml).json;
  const [check] = Object.entries(resource.terraform_data)
    .filter(([name]) => name.startsWith("cluster_check"))
    .map(([, it]) => it) as { triggers_replace: ClusterRequirements }[];
  return check?.triggers_replace;
};

describe("k8s-gpu", () => {
  test("consists of an existing cluster, a namespace and the chart", () => {
    expect(stackOf().node.children.map(({ node }) => node.id)).toEqual([
      "backend",
      "cluster",
      "inference",
      "environment",
    ]);
  });

  test("offers the embed API and the Open Inference Protocol inside the cluster", () => {
    const { services, where, kubeconfig, namespace, gpu } = synthesized().environment;
    expect({ where, kubeconfig, namespace }).toEqual({
      where: "gpu-cluster",
      kubeconfig: "~/.kube/config",
      namespace: "clipstack",
    });
    expect(services.map(({ name, workload }) => [name, workload])).toEqual([
      ["embed", "clipstack-embed"],
      ["triton", "clipstack-triton"],
    ]);
    const paths = services.flatMap(({ endpoints }) => endpoints.map(({ name }) => name));
    expect(paths.filter((path) => path !== undefined)).toEqual([
      "embed-http",
      "onnx-http",
      "onnx-grpc",
    ]);
    expect(gpu).toMatchObject({ name: "l4", count: 4, usdPerHour: 3.22 });
  });

  test("costs as much as the whole node pool, however much of it is used", () => {
    const yaml = "nodePool: { gpu: a100-sxm4-80gb, nodes: 3, gpusPerNode: 8 }";
    expect(synthesized(yaml).environment.gpu).toMatchObject({ count: 24, usdPerHour: 36 });
  });

  test("uses the context of the settings and never the current one", () => {
    const { provider, resource } = synthesized(
      "cluster: { context: prod, kubeconfig: ~/.kube/prod }",
    ).json;
    const [[id, check]] = Object.entries(resource.terraform_data).filter(([name]) =>
      name.startsWith("cluster_check"),
    ) as [[string, object]];
    expect(check).toMatchObject({
      input: { kubeconfig: `\${pathexpand("~/.kube/prod")}`, context: "prod" },
    });
    const [[context]] = Object.entries(resource.terraform_data).filter(([name]) =>
      name.startsWith("cluster_context"),
    ) as [[string, object]];
    // through the check, so that nothing is created before it
    const access = {
      config_path: `\${terraform_data.${id}.input.kubeconfig}`,
      config_context: `\${terraform_data.${context}.input.context}`,
    };
    expect(provider.kubernetes).toEqual([access]);
    expect(provider.helm).toEqual([{ kubernetes: access }]);
  });

  test("rejects a plan with another context after the first deployment", () => {
    const { resource } = synthesized("cluster: { context: next }").json;
    const [context] = Object.entries(resource.terraform_data)
      .filter(([name]) => name.startsWith("cluster_context"))
      .map(([, it]) => it);
    expect(context).toMatchObject({
      input: { context: "next" },
      depends_on: [expect.stringMatching(/^terraform_data.cluster_check_doctor_/)],
      lifecycle: {
        ignore_changes: ["input"],
        postcondition: [
          {
            condition: `\${self.input.context == "next"}`,
            error_message: `cluster.context of a deployed environment cannot change: it is deployed to '\${self.input.context}', got 'next'. Restore the setting, or destroy the deployment first: 'npx cdktf destroy k8s-gpu', then deploy.`,
          },
        ],
      },
    });
  });

  test("creates a namespace that enforces the Pod Security Standard, or uses an existing one", () => {
    const [namespace] = Object.values(synthesized().json.resource.kubernetes_namespace_v1);
    expect(namespace).toMatchObject({
      metadata: {
        name: "clipstack",
        labels: { "pod-security.kubernetes.io/enforce": "restricted" },
      },
    });
    const { json, release } = synthesized("createNamespace: false\nnamespace: ml");
    expect(json.resource).not.toHaveProperty("kubernetes_namespace_v1");
    expect(release).toMatchObject({ namespace: "ml" });
  });

  test("waits until the minimum number of pods of each Deployment is ready", () => {
    const gates = Object.values(synthesized().json.resource.terraform_data) as {
      provisioner?: { "local-exec": { command: string } }[];
    }[];
    const commands = gates.map(({ provisioner }) => provisioner?.[0]?.["local-exec"].command);
    for (const workload of ["clipstack-embed", "clipstack-triton"]) {
      expect(commands).toContainEqual(
        expect.stringMatching(
          new RegExp(`wait-rollout ${workload} --context gpu-cluster .*--replicas 2 `),
        ),
      );
    }
  });

  test("allows the chart the time to replace every pod", () => {
    // six gateways, each on a new node that pulls the image and with a Triton server to start; the first Triton server also pulls its image
    expect(synthesized().release).toMatchObject({ timeout: 900 + 6 * (300 + 120 + 120 + 40) });
  });

  test("checks the cluster before it creates anything", () => {
    const { resource } = synthesized().json;
    const [check] = Object.entries(resource.terraform_data)
      .filter(([name]) => name.startsWith("cluster_check"))
      .map(([, it]) => it) as { triggers_replace: unknown; provisioner: object[] }[];
    expect(check?.triggers_replace).toEqual({
      schema: 1,
      environment: "k8s-gpu",
      kubeconfig: "~/.kube/config",
      context: "gpu-cluster",
      namespace: "clipstack",
      createNamespace: true,
      gpu: {
        label: "NVIDIA L4",
        vramMiB: 23_034,
        nodes: 4,
        gpusPerNode: 1,
        gpus: 4,
        gpusAtLeast: 2,
        runtimeClass: "nvidia",
        selector: {},
        tolerations: [{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }],
      },
      apis: [
        {
          groupVersion: "metrics.k8s.io/v1beta1",
          setting: "embed.autoscaler",
          program: "metrics-server",
        },
        {
          groupVersion: "keda.sh/v1alpha1",
          setting: "triton.autoscaler.source keda",
          program: "KEDA",
        },
        {
          groupVersion: "monitoring.coreos.com/v1",
          setting: "scraping service-monitor",
          program: "the Prometheus operator",
        },
      ],
      objects: [],
      serviceMonitor: {
        labels: {
          "app.kubernetes.io/name": "clipstack",
          "app.kubernetes.io/instance": "clipstack",
          "app.kubernetes.io/managed-by": "Helm",
        },
      },
    });
    expect(check?.provisioner).toMatchObject([
      { "local-exec": { command: "npx --no-install clipstack doctor k8s-gpu" } },
    ]);
  });

  test("checks the volume of the weights and the labels that Prometheus selects", () => {
    const pvc = "createNamespace: false\nmodel: { weights: pvc, claim: weights }\n";
    const mounted = (yaml: string) => requirements(pvc + yaml)?.objects[0]?.mountedBy;
    // the gateway reads no weights
    expect(mounted("")).toEqual({ pods: 4, nodes: 4 });
    expect(mounted("nodePool: { gpusPerNode: 8 }")).toEqual({ pods: 4, nodes: 1 });
    expect(mounted("accelerator: cpu\ntriton: { autoscaler: { metric: cpu } }")).toEqual({
      pods: 5,
      nodes: 1,
    });
    expect(
      mounted(
        "embed: { backend: onnxruntime, autoscaler: { maxReplicas: 3 } }\ntriton: { enabled: false }",
      ),
    ).toEqual({ pods: 3, nodes: 3 });
    const labelled = "serviceMonitor: { labels: { release: monitoring } }";
    expect(requirements(labelled)?.serviceMonitor?.labels).toMatchObject({ release: "monitoring" });
    expect(requirements("scraping: annotations")).not.toHaveProperty("serviceMonitor");
  });

  test("requires no GPU if the accelerator is cpu", () => {
    const cpu = "accelerator: cpu\ntriton: { server: emulator }";
    const { triton, embed, quota } = values(cpu);
    expect(triton).toMatchObject({ gpus: 0, runtimeClassName: "", tolerations: [] });
    expect(triton.modelConfig.texts.openclip_vit_b32).toContain("kind: KIND_CPU");
    expect(embed.accelerator).toBe("cpu");
    expect(quota.hard).not.toHaveProperty("requests.nvidia.com/gpu");
    expect(synthesized(cpu).environment).toMatchObject({ accelerator: "cpu" });
    expect(synthesized(cpu).environment.gpu).toBeUndefined();
  });
});

describe("the pods of k8s-gpu", () => {
  test("request GPUs on the node pool, but not for the gateway", () => {
    const yaml =
      "nodePool: { runtimeClass: none, selector: { nvidia.com/gpu.product: NVIDIA-L4 }, tolerations: [{ key: gpu, value: 'yes' }] }";
    const { triton, embed } = values(yaml);
    expect(triton).toMatchObject({
      gpus: 1,
      runtimeClassName: "",
      nodeSelector: { "nvidia.com/gpu.product": "NVIDIA-L4" },
      tolerations: [{ key: "gpu", operator: "Equal", value: "yes" }],
    });
    expect(embed).toMatchObject({ backend: "triton", accelerator: "cpu", nodeSelector: {} });
    expect(values().triton.runtimeClassName).toBe("nvidia");
  });

  test("are embed servers with one GPU each with the backend onnxruntime", () => {
    const yaml =
      "embed: { backend: onnxruntime, autoscaler: { maxReplicas: 4 } }\ntriton: { enabled: false }";
    const { triton, embed } = values(yaml);
    expect(triton.enabled).toBe(false);
    expect(embed).toMatchObject({
      backend: "onnxruntime",
      accelerator: "gpu",
      runtimeClassName: "nvidia",
    });
    const { services } = synthesized(yaml).environment;
    expect(services).toMatchObject([
      { name: "embed", backend: "onnxruntime", models: ["openclip-vit-b32"], modelKind: "fp32" },
    ]);
  });

  test.each([1, 2, 3, 4, 8, 16])("have an instance on each GPU with gpusPerPod %d", (gpus) => {
    const yaml = `nodePool: { nodes: 2, gpusPerNode: ${gpus} }\nquota: { gpus: ${2 * gpus} }\ntriton: { gpusPerPod: ${gpus}, autoscaler: { maxReplicas: 2 } }`;
    const { triton } = values(yaml);
    expect(triton.gpus).toBe(gpus);
    const indices = [...Array(gpus).keys()].join(", ");
    expect(triton.modelConfig.texts.openclip_vit_b32).toContain(`gpus: [${indices}]\n`);
  });

  test("name TensorRT engines by weights and image, and cache them on a volume", () => {
    const yaml = `model: { weights: init, url: https://models.example/model.onnx, sha256: ${sha256} }
triton: { backend: tensorrt, engineCache: { enabled: true, storageClass: nfs, sizeGiB: 3 } }`;
    const { triton, model } = values(yaml);
    expect(triton.modelConfig.texts.openclip_vit_b32_trt).toContain(
      "aaaaaaaaaaaa_26.07-1_openclip_vit_b32_trt",
    );
    expect(triton.engineCache).toMatchObject({
      enabled: true,
      accessMode: "ReadWriteMany",
      storageClass: "nfs",
      size: "3Gi",
    });
    expect(model).toMatchObject({ weights: "init", sha256 });
    expect(synthesized(yaml).environment.services[1]).toMatchObject({
      backend: "tensorrt",
      models: ["openclip-vit-b32"],
      modelKind: "trt",
    });
  });

  test("may start for as long as TensorRT builds engines, unlike the gateway", () => {
    const { triton, embed } = values(
      `triton: { backend: tensorrt, image: '${pinned}', instancesPerGpu: 2, engineCache: { enabled: true } }`,
    );
    expect(triton.startSeconds).toBe(120 + 2 * 300);
    expect(embed).not.toHaveProperty("startSeconds");
  });

  test("have no autoscaler if the minimum equals the maximum", () => {
    const { triton } = values("triton: { autoscaler: { minReplicas: 3, maxReplicas: 3 } }");
    expect(triton).toMatchObject({ replicas: 3, autoscaling: { enabled: false } });
  });

  test("are scaled on queue time by KEDA, by the Prometheus adapter, or on CPU", () => {
    expect(values().triton.autoscaling).toMatchObject({
      metric: "queue-time",
      source: "keda",
      prometheus: { url: "http://prometheus-operated.monitoring.svc:9090" },
    });
    const adapter = values("triton: { autoscaler: { source: prometheus-adapter } }");
    expect(adapter.triton.autoscaling).toMatchObject({ source: "prometheus-adapter" });
    const cpu = values("accelerator: cpu\ntriton: { autoscaler: { metric: cpu, cpuPercent: 70 } }");
    expect(cpu.triton.autoscaling).toMatchObject({ metric: "cpu", cpuPercent: 70 });
  });

  test("are discovered by Prometheus through a ServiceMonitor or annotations", () => {
    expect(values().serviceMonitor.enabled).toBe(true);
    const annotated = values("scraping: annotations");
    expect(annotated.serviceMonitor.enabled).toBe(false);
    const { enabled, labels, interval } = values(
      "serviceMonitor: { labels: { release: monitoring }, intervalSeconds: 30 }",
    ).serviceMonitor;
    expect({ enabled, labels, interval }).toEqual({
      enabled: true,
      labels: { release: "monitoring" },
      interval: "30s",
    });
    expect(annotated.triton.podAnnotations).toMatchObject({ "prometheus.io/port": "8002" });
  });

  test("require the keys and the certificate of Secrets, which the environment output declares", () => {
    const yaml =
      "createNamespace: false\nembed: { service: LoadBalancer, keySecret: embed-key, keysSecret: clients, tls: { secret: embed-tls } }\nscraping: annotations";
    expect(values(yaml).embed).toMatchObject({
      service: { type: "LoadBalancer" },
      auth: { existingSecret: "embed-key", existingSecretKey: "api-key", keysSecret: "clients" },
      tls: { secretName: "embed-tls" },
      podAnnotations: { "prometheus.io/scheme": "https" },
    });
    expect(synthesized(yaml).environment.services[0]).toMatchObject({ authorization: "bearer" });
    expect(synthesized().environment.services[0]).not.toHaveProperty("authorization");
  });

  test("mount the weights from a volume", () => {
    const { model } = values(
      "createNamespace: false\nmodel: { weights: pvc, claim: weights, folder: vit-b-32 }",
    );
    expect(model).toMatchObject({
      weights: "pvc",
      pvc: { claimName: "weights", subPath: "vit-b-32" },
    });
  });

  test("use the image pull secret of the settings", () => {
    expect(values("createNamespace: false\nimagePullSecret: registry").imagePullSecrets).toEqual([
      { name: "registry" },
    ]);
  });
});

const search = "models: [openclip-vit-b32, dinov2-small, efficientnet-lite0]\n";

test("k8s-gpu serves all models of an environment", () => {
  const { values: chart, environment: output } = synthesized(search);
  expect(chart.models).toEqual(["openclip-vit-b32", "dinov2-small", "efficientnet-lite0"]);
  expect(Object.keys(chart.triton?.modelConfig?.texts ?? {})).toEqual([
    "openclip_vit_b32",
    "openclip_vit_b32_text",
    "dinov2_small",
    "efficientnet_lite0",
  ]);
  const models = ["openclip-vit-b32", "dinov2-small", "efficientnet-lite0"];
  expect(output.models.map(({ name }) => name)).toEqual(models);
  expect(output.services).toMatchObject([{ models }, { models }]);
});

describe("MIG devices and time-sliced GPUs", () => {
  const mig =
    "nodePool: { gpu: h100, nodes: 1, gpusPerNode: 2, resourceName: nvidia.com/mig-1g.10gb, devicesPerGpu: 7 }\ntriton: { instancesPerGpu: 1 }";

  test("are requested by the name of their resource, and paid for by the GPU", () => {
    expect(values(mig)).toMatchObject({
      gpuResourceName: "nvidia.com/mig-1g.10gb",
      quota: { hard: { "requests.nvidia.com/mig-1g.10gb": "4" } },
      triton: { gpus: 1 },
    });
    expect(requirements(mig)?.gpu).toMatchObject({
      resourceName: "nvidia.com/mig-1g.10gb",
      gpusPerNode: 14,
      gpus: 4,
    });
    expect(synthesized(mig).environment.gpu).toMatchObject({
      count: 2,
      share: "nvidia.com/mig-1g.10gb",
    });
    expect(synthesized().values).not.toHaveProperty("gpuResourceName");
  });

  test("have the memory of their profile or of their part", () => {
    const models = "\nmodels: [openclip-vit-l14, siglip2-base-224]";
    const large = mig.replace("instancesPerGpu: 1", "instancesPerGpu: 3");
    expect(findings(`${large}${models}`)).toEqual([
      expect.stringContaining("GPU 0 has 9536 MiB, 8582 usable"),
    ]);
    const shared = large
      .replace("mig-1g.10gb", "gpu.shared")
      .replace("devicesPerGpu: 7", "devicesPerGpu: 8");
    expect(findings(`${shared}${models}`)).toEqual([
      expect.stringContaining("GPU 0 has 10194 MiB"),
    ]);
  });

  test("are one per pod", () => {
    expect(findings(mig.replace("triton: {", "triton: { gpusPerPod: 2,"))).toContain(
      "triton.gpusPerPod must be 1 if nodePool.resourceName is a part of a GPU (nvidia.com/mig-1g.10gb, 7 per GPU), got 2",
    );
    const shared = "nodePool: { resourceName: nvidia.com/gpu.shared }";
    expect(findings(shared)).toContain(
      "nodePool.devicesPerGpu must be at least 2 with nodePool.resourceName nvidia.com/gpu.shared, got 1",
    );
  });
});

describe("k8s-gpu fails", () => {
  test("with no findings for the defaults", () => {
    expect(findings("")).toEqual([]);
    expect(warnings("")).toEqual([]);
  });

  test.each(
    Object.entries({
      "triton: { gpusPerPod: 4 }": [
        "triton.gpusPerPod must be at most nodePool.gpusPerNode (1): the GPUs of a pod are on one node, got 4",
        "triton.autoscaler.maxReplicas must be at most 1 to fit quota.gpus 4 (4 per pod), got 4",
      ],
      "quota: { gpus: 3 }": [
        "triton.autoscaler.maxReplicas must be at most 3 to fit quota.gpus 3 (1 per pod), got 4",
      ],
      "triton: { spareGpu: true }": [
        "triton.autoscaler.maxReplicas must be at most 3 to fit nodePool (4 × 1 GPUs, 1 per pod, and a rolling update adds 1 pod), got 4",
        "triton.autoscaler.maxReplicas must be at most 3 to fit quota.gpus 4 (1 per pod, and a rolling update adds 1 pod), got 4",
      ],
      "embed: { backend: onnxruntime }": [
        "embed.autoscaler.maxReplicas must be at most 4 to fit nodePool (4 × 1 GPUs, 1 per pod), got 6",
        "embed.autoscaler.maxReplicas must be at most 4 to fit quota.gpus 4 (1 per pod), got 6",
      ],
      "nodePool: { gpu: t4 }\nmodels: [openclip-vit-l14, siglip2-base-224]\ntriton: { instancesPerGpu: 3 }":
        [
          expect.stringMatching(
            /^nodePool.gpu must have room for the models: GPU 0 has 15360 MiB, 13824 usable, and they need \d+ \(triton \d+; by model: openclip-vit-l14 image \d+ \+ openclip-vit-l14 text \d+ \+ siglip2-base-224 image \d+ \+ siglip2-base-224 text \d+ \+ CUDA of 1 process 512\): serve fewer models /,
          ),
        ],
      [`model: { weights: init, url: https://models.example/model.onnx, sha256: ${sha256} }\nmodels: [openclip-vit-b32]`]:
        [
          "model.url must be in model.towers, by the name of its tower, got 'https://models.example/model.onnx'",
          `model.sha256 must be in model.towers, by the name of its tower, got '${sha256}'`,
          "model.towers.openclip-vit-b32:image must have the url and sha256 of the weights, got nothing",
          "model.towers.openclip-vit-b32:text must have the url and sha256 of the weights, got nothing",
        ],
      "triton: { budget: { minAvailable: 2 } }": [
        "triton.budget.minAvailable must be less than triton.autoscaler.minReplicas (2), or no node can be drained, got 2",
      ],
      "embed: { resources: { requests: { cpuMillicores: 500, memoryMiB: 2000 } } }": [
        "embed.resources.requests.memoryMiB must not exceed embed.resources.limits.memoryMiB (1536), got 2000",
        "quota.requests.memoryMiB must be at least 30384 (triton 4 × 4096 + embed 7 × 2000), got 26624",
      ],
      "embed: { image: registry.example/embed }\ntriton: { image: 'registry.example/triton:latest' }":
        [
          "embed.image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'registry.example/embed'",
          "triton.image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'registry.example/triton:latest'",
        ],
      "triton: { image: 'nvcr.io/nvidia/tritonserver:26.07-py3' }": [
        "model.weights must be pvc or init when triton.image is NVIDIA's own, which has no weights, got 'image'",
      ],
      "triton: { enabled: false }": [
        "triton.enabled must be true when embed.backend is triton, got false",
      ],
      "embed: { service: NodePort }": [
        "embed.keySecret must name a Secret with the key when embed.service is NodePort, or embed.allowAnonymous must be true, got nothing",
        "embed.tls must name a Secret with a certificate when embed.service is NodePort, because requests would be sent in clear text; allowPlaintext: true exposes the port anyway, got nothing",
      ],
      [`accelerator: cpu
model: { weights: init, url: https://models.example/m, sha256: ${sha256} }
embed: { backend: onnxruntime, server: { modelPrecision: int8 } }
triton: { enabled: false }`]: [
        "embed.server.modelPrecision must be fp32 when weights is init: with pvc or image, the file of the precision is beside model.onnx, got 'int8'",
      ],
      "createNamespace: false\nembed: { keysSecret: clients }": [
        "embed.keySecret must name a Secret with the key of Prometheus when embed.keysSecret has those of the clients, got nothing",
      ],
      "chartValues: { ingress: { enabled: true, host: a.example } }": [
        "chartValues.ingress.tlsSecretName must name a Secret, because requests would be sent in clear text, got nothing",
      ],
      "createNamespace: false\nembed: { keySecret: key, allowAnonymous: true }": [
        "embed.allowAnonymous must be false when embed.keySecret names a Secret, got true",
      ],
      [`triton: { backend: tensorrt, image: '${pinned}', engineCache: { enabled: true, accessMode: ReadWriteOnce } }`]:
        [
          "triton.engineCache.accessMode must be ReadWriteMany for triton.autoscaler.maxReplicas 4: one node has GPUs for 1 of them, got 'ReadWriteOnce'",
        ],
      "triton: { backend: tensorrt, image: 'registry.example/triton:1', engineCache: { enabled: true } }":
        [
          "triton.image must be pinned by digest, like 'name@sha256:…', when triton.engineCache.enabled is true and model.weights is image: the weights behind a tag can change, and engines of the old weights would be used, got 'registry.example/triton:1'",
        ],
      "createNamespace: false\nmodel: { weights: pvc, claim: weights }\ntriton: { backend: tensorrt, engineCache: { enabled: true } }":
        [
          "model.sha256 must be set when triton.engineCache.enabled is true: otherwise engines of other weights could be used, got nothing",
        ],
      "imagePullSecret: registry\nembed: { keySecret: key, tls: { secret: cert } }\nmodel: { weights: pvc, claim: weights }":
        [
          "createNamespace must be false when imagePullSecret names an existing object of the namespace ('registry'), got true",
          "createNamespace must be false when embed.keySecret names an existing object of the namespace ('key'), got true",
          "createNamespace must be false when embed.tls.secret names an existing object of the namespace ('cert'), got true",
          "createNamespace must be false when model.claim names an existing object of the namespace ('weights'), got true",
        ],
      "triton: { cudaGraphs: true }": [
        "triton.cudaGraphs must be false if ONNX Runtime runs openclip_vit_b32: its CUDA graphs can return the result of an earlier request (microsoft/onnxruntime#20050), got true",
      ],
    }),
  )("%s", (yaml, expected) => {
    expect([...findings(yaml)].sort()).toEqual([...expected].sort());
  });

  test("on KEDA without the address of Prometheus", () => {
    const yaml = "triton: { autoscaler: { prometheus: ftp://x } }";
    expect(() => parseSettings("kubernetes", "test", yaml)).toThrow(/triton.autoscaler.prometheus/);
  });
});

describe("k8s-gpu warns about", () => {
  test.each(
    Object.entries({
      "embed: { backend: onnxruntime, autoscaler: { maxReplicas: 4 } }\ntriton: { enabled: false }":
        [
          "embed.autoscaler scales on CPU, but its pods run on GPUs: CPU utilisation does not reflect GPU utilisation",
        ],
      "createNamespace: false\nembed: { keySecret: key }\nscraping: annotations": [
        "scraping is annotations, and embed.keySecret names a Secret: Prometheus sends no key and receives 401 from /metrics of the embed server; service-monitor provides the key",
      ],
      "triton: { autoscaler: { minReplicas: 1 } }": [
        "triton.autoscaler.minReplicas is 1: a node drain interrupts the service until the next pod is ready",
      ],
      "triton: { autoscaler: { metric: cpu } }": [
        "triton.autoscaler scales on CPU, but its pods run on GPUs: CPU utilisation does not reflect GPU utilisation",
      ],
      "triton: { server: emulator }": [
        "triton.server is emulator, which runs on the CPU and requests no GPU",
      ],
      "triton: { backend: tensorrt }": [
        "triton.engineCache.enabled is false: each new pod builds TensorRT engines for up to 420 s before it is ready",
      ],
    }),
  )("%s", (yaml, expected) => {
    expect(warnings(yaml)).toEqual(expected);
  });
});
