import type { Construct } from "constructs";
import { check } from "../constructs/checks/findings.ts";
import { EmbedServer } from "../constructs/docker/embed-server.ts";
import { GpuHost } from "../constructs/docker/gpu-host.ts";
import { ModelWeights } from "../constructs/docker/model-weights.ts";
import { tlsProxy } from "../constructs/docker/tls-proxy.ts";
import { TritonServer } from "../constructs/docker/triton-server.ts";
import { EnvironmentOutput } from "../constructs/stack/environment-output.ts";
import { perGpuHostPorts } from "../contract/ports.ts";
import { networkName } from "./settings/docker-settings.ts";
import type { MultiGpuSettings } from "./settings/multi-gpu-settings.ts";
import { baselines } from "./shared/baseline.ts";
import { embedImage } from "./shared/image-builds.ts";
import { InferenceStack } from "./shared/inference-stack.ts";
import { addMonitoring } from "./shared/monitoring.ts";
import {
  embedImageFindings,
  modelRepositoryFindings,
  upstreamFindings,
} from "./shared/settings-rules.ts";
import {
  remoteModels,
  type SharedByTritons,
  tritonPerBackend,
  tritonProps,
} from "./shared/triton-servers.ts";

/** GPU host with several GPUs: one Triton server across all of them or one per GPU, behind the embed server as gateway. */
export class MultiGpuStack extends InferenceStack {
  constructor(scope: Construct, id: string, settings: MultiGpuSettings) {
    super(scope, id, settings.state);

    check(this, () => [...modelRepositoryFindings(settings), ...embedImageFindings(settings)]);
    if (settings.topology === "instance-group") check(this, () => upstreamFindings(settings));

    const host = new GpuHost(this, "host", {
      ...settings.host,
      allowRandomWeights: settings.allowRandomWeights,
      accelerator: settings.accelerator,
      network: networkName(id, settings.network),
      tracing: settings.tracing,
      acme: settings.embed.tls?.acme,
    });
    this.host = host;
    tlsProxy(this, host);
    // the gateway needs no GPU
    const image = host.image(
      "embed-cpu",
      embedImage(
        "embed-cpu",
        settings.embed.image,
        settings.weights === "image" ? settings.models : undefined,
      ),
    );
    const weights = new ModelWeights(this, "weights", {
      host,
      tools: image,
      source: settings.weights,
      downloads: settings.downloads,
      modelRepository: settings.modelRepository,
      models: settings.models,
    });
    const shared = { host, tools: image, weights };
    const { tritons, upstreams } = topologies[settings.topology](this, shared, settings);
    const embed = new EmbedServer(this, "embed", {
      ...settings.embed,
      tls: settings.embed.tls?.files,
      host,
      image,
      backend: { kind: "triton", upstreams, remote: remoteModels(weights, settings) },
    });

    const { gpus } = settings.topology === "per-gpu" ? settings.perGpu : settings.tritonOnnx;
    const others = baselines(this, { host, weights }, gpus ?? host.gpus, settings);
    const services = [embed, ...tritons, ...others];
    const monitoring = addMonitoring(this, { host, embed, tritons }, settings);
    this.environment = new EnvironmentOutput(this, "environment", {
      where: host,
      services,
      monitoring: monitoring?.urls,
    });
  }
}

interface Tritons {
  readonly tritons: readonly TritonServer[];
  /** Triton servers behind the gateway. */
  readonly upstreams: readonly TritonServer[];
}

const topologies = {
  /** One Triton server for each backend, with an instance of its model on every GPU. */
  "instance-group": (
    scope: Construct,
    shared: SharedByTritons,
    settings: MultiGpuSettings,
  ): Tritons => {
    const tritons = tritonPerBackend(scope, shared, settings);
    return {
      tritons,
      upstreams: tritons.filter((triton) => triton.node.id === settings.embed.upstream),
    };
  },
  /**
   * One Triton server for each GPU, with a process, a port range and an engine cache of its own. They are replaced one at a time,
   * so that the gateway always has the others.
   */
  "per-gpu": (scope: Construct, shared: SharedByTritons, { perGpu }: MultiGpuSettings): Tritons => {
    const tritons: TritonServer[] = [];
    for (const [index, gpu] of (perGpu.gpus ?? shared.host.gpus).entries()) {
      const triton = new TritonServer(scope, `triton-${index}`, {
        ...tritonProps(perGpu, shared.weights),
        ...shared,
        gpus: [gpu],
        ports: perGpuHostPorts(index),
        after: tritons.at(-1),
      });
      tritons.push(triton);
    }
    return { tritons, upstreams: tritons };
  },
};
