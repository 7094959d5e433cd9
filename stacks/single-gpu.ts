import type { Construct } from "constructs";
import { TerraformStack } from "../constructs/cdktf.ts";
import { check } from "../constructs/checks/findings.ts";
import { type EmbedEngine, EmbedServer } from "../constructs/embed-server.ts";
import { EnvironmentOutput } from "../constructs/environment-output.ts";
import { GpuHost } from "../constructs/gpu-host.ts";
import { keepStateLocally } from "../constructs/local-state.ts";
import { TritonServer } from "../constructs/triton-server.ts";
import type { SingleGpuSettings } from "./settings.ts";
import { modelRepositoryFindings, upstreamFindings } from "./settings-rules.ts";

/** One host, one GPU: the embed server, Triton with ONNX Runtime and Triton with TensorRT, each on its own ports. */
export class SingleGpuStack extends TerraformStack {
  constructor(scope: Construct, id: string, settings: SingleGpuSettings) {
    super(scope, id);
    keepStateLocally(this);

    const { modelRepository, embed, tritonOnnx, tritonTrt } = settings;
    check(this, () => modelRepositoryFindings(settings));
    const host = new GpuHost(this, "host", {
      ...settings.host,
      accelerator: settings.accelerator,
      network: settings.network,
    });
    const tritons = {
      "triton-onnx": tritonOnnx.enabled
        ? new TritonServer(this, "triton-onnx", {
            ...tritonOnnx,
            host,
            modelRepository,
            backend: "onnx",
          })
        : undefined,
      "triton-trt": tritonTrt.enabled
        ? new TritonServer(this, "triton-trt", {
            ...tritonTrt,
            host,
            modelRepository,
            backend: "tensorrt",
          })
        : undefined,
    };
    const upstream = tritons[embed.upstream];
    const engine: EmbedEngine =
      embed.engine === "onnx"
        ? { kind: "onnx", modelRepository, gpus: embed.gpus }
        : { kind: "triton", upstreams: upstream === undefined ? [] : [upstream] };
    if (embed.enabled && embed.engine === "triton") check(this, () => upstreamFindings(settings));
    const services = [
      embed.enabled ? new EmbedServer(this, "embed", { ...embed, host, engine }) : undefined,
      tritons["triton-onnx"],
      tritons["triton-trt"],
    ].filter((service) => service !== undefined);

    if (services.length === 0) {
      check(this, () => [
        "embed.enabled must be true, or tritonOnnx.enabled, or tritonTrt.enabled, got false",
      ]);
      return;
    }
    new EnvironmentOutput(this, "environment", { where: host, services });
  }
}
