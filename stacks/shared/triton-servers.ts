import type { Construct } from "constructs";
import { jpegKind } from "../../constructs/docker/dali-models.ts";
import type { RemoteModels } from "../../constructs/docker/embed-plan.ts";
import type { GpuHost } from "../../constructs/docker/gpu-host.ts";
import type { ModelWeights } from "../../constructs/docker/model-weights.ts";
import type { ServerImage } from "../../constructs/docker/server-image.ts";
import type { TritonServerKind } from "../../constructs/docker/triton-plan.ts";
import { TritonServer } from "../../constructs/docker/triton-server.ts";
import type { MultiGpuSettings } from "../settings/multi-gpu-settings.ts";
import { type ImageSetting, tritonImage } from "./image-builds.ts";

/** Constructs that the Triton servers of a host share. */
export interface SharedByTritons {
  readonly host: GpuHost;
  readonly tools: ServerImage;
  readonly weights: ModelWeights;
}

/** Props of a Triton server from its settings. */
export function tritonProps<
  Settings extends { readonly server: TritonServerKind["kind"]; readonly image: ImageSetting },
>({ server, image, ...others }: Settings, weights: ModelWeights) {
  const kind: TritonServerKind =
    server === "tritonserver"
      ? {
          kind: server,
          image: tritonImage(image, weights.source === "image" ? weights.models : undefined),
        }
      : { kind: server };
  return { ...others, server: kind };
}

/** Returns the models of the Triton servers on other hosts. They are those of the Triton server on this host that `embed.upstream` names. */
export function remoteModels(
  weights: ModelWeights,
  { embed, tritonOnnx, tritonTrt }: RemoteSettings,
): RemoteModels {
  return embed.upstream === "triton-trt"
    ? { weights, modelKind: "trt", jpegKind: jpegKind("tensorrt", tritonTrt.jpegDecoder) }
    : {
        weights,
        modelKind: weights.modelKind,
        jpegKind: jpegKind("onnxruntime", tritonOnnx.jpegDecoder),
      };
}

type RemoteSettings = Pick<MultiGpuSettings, "tritonOnnx" | "tritonTrt"> & {
  readonly embed: Pick<MultiGpuSettings["embed"], "upstream">;
};

/** Triton of each enabled backend. */
export function tritonPerBackend(
  scope: Construct,
  shared: SharedByTritons,
  { tritonOnnx, tritonTrt }: Pick<MultiGpuSettings, "tritonOnnx" | "tritonTrt">,
): readonly TritonServer[] {
  const { weights } = shared;
  const tritons: TritonServer[] = [];
  if (tritonOnnx.enabled) {
    const props = {
      ...tritonProps(tritonOnnx, weights),
      ...shared,
      backend: "onnxruntime",
    } as const;
    tritons.push(new TritonServer(scope, "triton-onnx", props));
  }
  if (tritonTrt.enabled) {
    const props = { ...tritonProps(tritonTrt, weights), ...shared, backend: "tensorrt" } as const;
    tritons.push(new TritonServer(scope, "triton-trt", props));
  }
  return tritons;
}
