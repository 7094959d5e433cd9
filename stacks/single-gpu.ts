import type { Construct } from "constructs";
import { TerraformStack } from "../constructs/cdktf.ts";
import { type EmbedEngine, EmbedServer } from "../constructs/embed-server.ts";
import { EnvironmentOutput } from "../constructs/environment-output.ts";
import { GpuHost } from "../constructs/gpu-host.ts";
import { keepStateLocally } from "../constructs/local-state.ts";
import { TritonServer } from "../constructs/triton-server.ts";
import type { SingleGpuSettings } from "./settings.ts";

/** One host, one GPU: the embed server, Triton with ONNX Runtime and Triton with TensorRT, each on its own ports. */
export class SingleGpuStack extends TerraformStack {
  constructor(scope: Construct, id: string, settings: SingleGpuSettings) {
    super(scope, id);
    keepStateLocally(this);

    const { modelRepository, embed, tritonOnnx, tritonTrt } = settings;
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
    const upstream = embed.engine === "triton" ? tritons[embed.upstream] : undefined;
    const engine: EmbedEngine =
      upstream === undefined
        ? { kind: "onnx", modelRepository, gpus: embed.gpus }
        : { kind: "triton", upstreams: [upstream] };
    const services = [
      embed.enabled ? new EmbedServer(this, "embed", { ...embed, host, engine }) : undefined,
      tritons["triton-onnx"],
      tritons["triton-trt"],
    ];

    new EnvironmentOutput(this, "environment", {
      where: host,
      services: services.filter((service) => service !== undefined),
    });
  }
}
