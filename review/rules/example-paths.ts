import type { Path } from "../input/change.ts";

/** Paths into the shipped stacks, for the edits of rule examples. */

/** Construct path of the ONNX Triton's container in `single-gpu`. */
export const tritonOnnx = "triton-onnx/container";

export function containerPath(construct: string, ...path: Path): Path {
  return ["resource", "docker_container", construct, ...path];
}

export function tritonImagePath(...path: Path): Path {
  return ["resource", "docker_image", "host/triton-image/image", ...path];
}

/** Path into the spec of the embed server's Deployment in `kind-local`. */
export function deploymentPath(...path: Path): Path {
  return ["resource", "kubernetes_deployment_v1", "embed/deployment", "spec", ...path];
}

/** Path into the embed server's container in `kind-local`. */
export function podContainerPath(...path: Path): Path {
  return deploymentPath("template", "spec", "container", 0, ...path);
}

/** Chart values in `k8s-gpu`. */
export const chartValuesPath: Path = [
  ...["resource", "helm_release", "inference/chart/release"],
  ...["values", 0],
];
