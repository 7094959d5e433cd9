import type { Finding } from "../constructs/checks/findings.ts";
import { imageFindings } from "../constructs/checks/images.ts";
import type { WeightsSource } from "../constructs/docker/model-weights.ts";
import type { ImageSetting } from "./image-builds.ts";

/**
 * Rules between settings, as checks of the stack. In a schema they would be reported only after every single setting is
 * valid, and without the findings of the constructs.
 */

/** Findings about the model repository: a remote Docker host does not have the project, and images contain only its files. */
export function modelRepositoryFindings(settings: {
  readonly host: { readonly docker: string };
  readonly modelRepository: string;
  readonly weights: WeightsSource;
}): readonly Finding[] {
  if (settings.weights === "image" && settings.modelRepository !== "model_repository") {
    return [
      {
        path: "modelRepository",
        must: "be model_repository when weights is image: images are built with the weights of that folder",
        got: `'${settings.modelRepository}'`,
      },
    ];
  }
  return settings.weights === "host-path" &&
    settings.host.docker.startsWith("ssh://") &&
    !settings.modelRepository.startsWith("/")
    ? [
        {
          path: "modelRepository",
          must: "be an absolute path when weights is host-path and host.docker is ssh://",
          got: `'${settings.modelRepository}'`,
        },
      ]
    : [];
}

/** The embed image has a version, also where only its one-shot roles run. */
export function embedImageFindings(settings: {
  readonly embed: { readonly image: ImageSetting };
}): readonly Finding[] {
  const { image } = settings.embed;
  return image.source === "build" ? [] : imageFindings(image.name, "embed.image");
}

/** A gateway needs the Triton that it asks. */
export function upstreamFindings(settings: {
  readonly embed: { readonly upstream: "triton-onnx" | "triton-trt" };
  readonly tritonOnnx: { readonly enabled: boolean };
  readonly tritonTrt: { readonly enabled: boolean };
}): readonly Finding[] {
  const key = settings.embed.upstream === "triton-onnx" ? "tritonOnnx" : "tritonTrt";
  return settings[key].enabled
    ? []
    : [
        {
          path: "embed.upstream",
          must: `name a service that is enabled (${key}.enabled is false)`,
          got: `'${settings.embed.upstream}'`,
        },
      ];
}
