import type { Finding } from "../constructs/checks/findings.ts";

/**
 * Rules between settings. A schema that had them would keep them to itself until every single setting is right, and a
 * broken one would keep the stack from being built and checked: here they are checks of the stack, as all others are.
 */

/** Docker on another machine does not have this project. */
export function modelRepositoryFindings(settings: {
  readonly host: { readonly docker: string };
  readonly modelRepository: string;
}): readonly Finding[] {
  return settings.host.docker.startsWith("ssh://") && !settings.modelRepository.startsWith("/")
    ? [
        `modelRepository must be an absolute path when host.docker is ssh://, got '${settings.modelRepository}'`,
      ]
    : [];
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
