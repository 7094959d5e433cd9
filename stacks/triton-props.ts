import type { WeightsSource } from "../constructs/docker/model-weights.ts";
import type { TritonServerKind } from "../constructs/docker/triton-server.ts";
import { type ImageSetting, tritonImage } from "./image-builds.ts";

/** Props of a Triton from its settings. */
export function tritonProps<
  Settings extends { readonly server: TritonServerKind["kind"]; readonly image: ImageSetting },
>({ server, image, ...others }: Settings, weights: WeightsSource) {
  const kind: TritonServerKind =
    server === "tritonserver"
      ? { kind: server, image: tritonImage(image, weights === "image") }
      : { kind: server };
  return { ...others, server: kind };
}
