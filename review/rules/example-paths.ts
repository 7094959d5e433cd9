/** Construct path of the ONNX Triton's container in `single-gpu`. */
export const tritonOnnx = "triton-onnx/container";

/** Path of an argument of a container, as rule examples edit it. */
export function containerPath(construct: string, ...path: readonly (string | number)[]) {
  return ["resource", "docker_container", construct, ...path] as const;
}
