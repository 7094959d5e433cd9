import { findingIf } from "../../constructs/checks/findings.ts";
import { imageFindings } from "../../constructs/checks/images.ts";
import type { MultiGpuSettings } from "../settings/multi-gpu-settings.ts";
import type { SingleGpuSettings } from "../settings/single-gpu-settings.ts";

/**
 * Rules between settings, as checks of the stack. In a schema they would be reported only after every single setting is
 * valid, and without the findings of the constructs.
 */

/**
 * Checks the path of the model repository. With `weights: image` it must be `model_repository`,
 * because images are built with the weights of that folder. With `weights: host-path` on an `ssh://`
 * host it must be absolute, because the host has no checkout.
 */
export function modelRepositoryFindings({
  host,
  modelRepository,
  weights,
}: Pick<SingleGpuSettings, "host" | "modelRepository" | "weights">): readonly string[] {
  return [
    ...findingIf(
      weights === "image" && modelRepository !== "model_repository",
      "modelRepository",
      "be model_repository when weights is image: images are built with the weights of that folder",
      `'${modelRepository}'`,
    ),
    ...findingIf(
      weights === "host-path" &&
        host.docker.startsWith("ssh://") &&
        !modelRepository.startsWith("/"),
      "modelRepository",
      "be an absolute path when weights is host-path and host.docker is ssh://",
      `'${modelRepository}'`,
    ),
  ];
}

/** Findings about the embed image, which one-shot containers also use if the embed server is disabled. */
export function embedImageFindings(settings: {
  readonly embed: Pick<SingleGpuSettings["embed"], "image">;
}): readonly string[] {
  const { image } = settings.embed;
  return image === undefined || image.source === "build"
    ? []
    : imageFindings(image.name, "embed.image");
}

/** Findings about the Triton server that a gateway forwards to. */
export function upstreamFindings(
  settings: Pick<MultiGpuSettings, "tritonOnnx" | "tritonTrt"> & {
    readonly embed: Pick<SingleGpuSettings["embed"], "upstream" | "upstreams">;
  },
): readonly string[] {
  // the setting is then that of the Triton servers on other hosts
  if (settings.embed.upstreams !== undefined) return [];
  const key = settings.embed.upstream === "triton-onnx" ? "tritonOnnx" : "tritonTrt";
  return findingIf(
    !settings[key].enabled,
    "embed.upstream",
    `name a service that is enabled (${key}.enabled is false)`,
    `'${settings.embed.upstream}'`,
  );
}
