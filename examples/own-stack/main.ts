import { KubernetesProvider } from "@cdktf/provider-kubernetes/lib/provider/index.js";
import {
  EmbedServer,
  GpuHost,
  InferenceDeployment,
  InferenceNamespace,
  keepState,
  ModelWeights,
} from "@clipstack/constructs";
import { App, TerraformOutput, TerraformStack } from "cdktf";
import type { Construct } from "constructs";

const registry = "registry.example.com/clipstack";

/** Embed servers on two GPU hosts for bulk jobs, and one in an existing cluster for online requests. */
class SearchStack extends TerraformStack {
  constructor(scope: Construct, id: string) {
    super(scope, id);
    keepState(this, { backend: "local" });

    this.#bulkServer("gpu-1");
    this.#bulkServer("gpu-2");
    this.#onlineServer();
  }

  #bulkServer(name: string): void {
    const host = new GpuHost(this, name, {
      docker: `ssh://deploy@${name}.example.com`,
      gpu: "rtx-4090",
      count: 1,
    });
    const image = host.image("embed-gpu", { source: "pull", name: `${registry}/embed:1.0-gpu` });
    const weights = new ModelWeights(host, "weights", {
      host,
      tools: image,
      source: "host-path",
      modelRepository: "/srv/models",
    });
    const embed = new EmbedServer(host, "embed", {
      host,
      image,
      backend: { kind: "onnxruntime", weights, gpus: [0] },
    });
    new TerraformOutput(this, `${name}-endpoints`, { value: embed.service.endpoints });
  }

  #onlineServer(): void {
    const cluster = { kubeconfig: "/etc/clipstack/kubeconfig", context: "staging" };
    new KubernetesProvider(this, "kubernetes", {
      configPath: cluster.kubeconfig,
      configContext: cluster.context,
    });
    const resources = {
      requests: { cpuMillicores: 1_000, memoryMiB: 1_024 },
      limits: { cpuMillicores: 4_000, memoryMiB: 2_048 },
    };
    const namespace = new InferenceNamespace(this, "namespace", {
      name: "search",
      cluster,
      quota: {
        pods: 8,
        requests: { cpuMillicores: 8_000, memoryMiB: 8_192 },
        limits: { cpuMillicores: 32_000, memoryMiB: 16_384 },
      },
      limitRange: {
        defaultRequests: resources.requests,
        defaultLimits: resources.limits,
        max: resources.limits,
      },
    });
    new InferenceDeployment(this, "embed", {
      cluster,
      namespace,
      image: { name: `${registry}/embed:1.0-cpu` },
      resources,
      autoscaler: {
        minReplicas: 2,
        maxReplicas: 6,
        cpuPercent: 60,
        scaleDownWindowSeconds: 180,
      },
      budget: { maxUnavailable: 1 },
    });
  }
}

const app = new App();
new SearchStack(app, "search");
app.synth();
