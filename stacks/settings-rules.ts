import type { Finding } from "../constructs/checks/findings.ts";
import { imageFindings } from "../constructs/checks/images.ts";
import type { WeightsSource } from "../constructs/docker/model-weights.ts";
import type { ImageSetting } from "./image-builds.ts";

/**
 * Rules between settings. A schema that had them would keep them to itself until every single setting is right, and a
 * broken one would keep the stack from being built and checked: here they are checks of the stack, as all others are.
 */

/** Docker on another machine does not have this project, and an image is built of the project and nothing else. */
export function modelRepositoryFindings(settings: {
  readonly host: { readonly docker: string };
  readonly modelRepository: string;
  readonly weights: WeightsSource;
}): readonly Finding[] {
  if (settings.weights === "image" && settings.modelRepository !== "model_repository") {
    return [
      `modelRepository must be model_repository when weights is image: images are built with the weights of that folder, got '${settings.modelRepository}'`,
    ];
  }
  return settings.weights === "host-path" &&
    settings.host.docker.startsWith("ssh://") &&
    !settings.modelRepository.startsWith("/")
    ? [
        `modelRepository must be an absolute path when weights is host-path and host.docker is ssh://, got '${settings.modelRepository}'`,
      ]
    : [];
}

/** The embed image has a version, also where only its one-shot roles run. */
export function embedImageFindings(settings: {
  readonly embed: { readonly image: ImageSetting };
}): readonly Finding[] {
  const { image } = settings.embed;
  return image.source === "build" ? [] : imageFindings(image.name).map((line) => `embed.${line}`);
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
        `embed.upstream must name a service that is enabled (${key}.enabled is false), got '${settings.embed.upstream}'`,
      ];
}
