import type { Construct } from "constructs";
import { check, finding } from "../constructs/checks/findings.ts";
import type { EmbedBackend } from "../constructs/docker/embed-plan.ts";
import { EmbedServer } from "../constructs/docker/embed-server.ts";
import { GpuHost } from "../constructs/docker/gpu-host.ts";
import { ModelWeights } from "../constructs/docker/model-weights.ts";
import { tlsProxy } from "../constructs/docker/tls-proxy.ts";
import { EnvironmentOutput } from "../constructs/stack/environment-output.ts";
import { networkName } from "./settings/docker-settings.ts";
import type { SingleGpuSettings } from "./settings/single-gpu-settings.ts";
import { baselines } from "./shared/baseline.ts";
import { embedImage } from "./shared/image-builds.ts";
import { InferenceStack } from "./shared/inference-stack.ts";
import { addMonitoring } from "./shared/monitoring.ts";
import {
  embedImageFindings,
  modelRepositoryFindings,
  upstreamFindings,
} from "./shared/settings-rules.ts";
import { remoteModels, tritonPerBackend } from "./shared/triton-servers.ts";

/** GPU host with one GPU: embed server, Triton with ONNX Runtime and Triton with TensorRT, each on its own ports. */
export class SingleGpuStack extends InferenceStack {
  constructor(scope: Construct, id: string, settings: SingleGpuSettings) {
    super(scope, id, settings.state);

    const { modelRepository, embed, accelerator } = settings;
    check(this, () => [...modelRepositoryFindings(settings), ...embedImageFindings(settings)]);
    const host = new GpuHost(this, "host", {
      ...settings.host,
      allowRandomWeights: settings.allowRandomWeights,
      accelerator,
      network: networkName(id, settings.network),
      tracing: settings.tracing,
      acme: settings.embed.tls?.acme,
    });
    this.host = host;
    tlsProxy(this, host);
    const onGpu = embed.enabled && embed.backend === "onnxruntime" && accelerator === "gpu";
    const kind = onGpu ? "embed-gpu" : "embed-cpu";
    const inImage = settings.weights === "image" ? settings.models : undefined;
    const image = host.image(
      kind,
      embedImage(kind, embed.image, inImage, embed.server?.modelPrecision),
    );
    const weights = new ModelWeights(this, "weights", {
      host,
      tools: image,
      source: settings.weights,
      downloads: settings.downloads,
      modelRepository,
      models: settings.models,
    });
    const tritons = tritonPerBackend(this, { host, tools: image, weights }, settings);
    const backend: EmbedBackend =
      embed.backend === "onnxruntime"
        ? { kind: "onnxruntime", weights, gpus: embed.gpus }
        : {
            kind: "triton",
            upstreams: tritons.filter(({ node }) => node.id === embed.upstream),
            remote: remoteModels(weights, settings),
          };
    if (embed.enabled && embed.backend === "triton") check(this, () => upstreamFindings(settings));
    const server = embed.enabled
      ? new EmbedServer(this, "embed", { ...embed, tls: embed.tls?.files, host, image, backend })
      : undefined;
    const own = server === undefined ? tritons : [server, ...tritons];
    const services = [...own, ...baselines(this, { host, weights }, embed.gpus, settings)];
    const monitoring = addMonitoring(this, { host, embed: server, tritons }, settings);
    if (own.length === 0) {
      const must = "be true, or tritonOnnx.enabled, or tritonTrt.enabled";
      check(this, () => [finding("embed.enabled", must, "false")]);
      return;
    }
    this.environment = new EnvironmentOutput(this, "environment", {
      where: host,
      services,
      monitoring: monitoring?.urls,
    });
  }
}
