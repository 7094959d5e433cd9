import { createRequire } from "node:module";
import { z } from "zod";
import type { Software } from "../subject/subject.ts";

/** Variables of NVIDIA's Triton image with the versions of its libraries. Other variables may be secrets and are not recorded. */
const variables = {
  tritonRelease: "NVIDIA_TRITON_SERVER_VERSION",
  cuda: "CUDA_VERSION",
  tensorrt: "TRT_VERSION",
} as const;

/** Folder of the ONNX Runtime backend in NVIDIA's Triton image. */
export const onnxRuntimeFolder = "/opt/tritonserver/backends/onnxruntime";

/**
 * Versions of the libraries of a container.
 *
 * @param env - Variables of the container with those of its image: `NAME=value`.
 * @param files - Names in {@link onnxRuntimeFolder}.
 */
export function softwareOfContainer(
  env: readonly string[],
  files: readonly string[],
): Software | undefined {
  const values = Object.entries(variables).flatMap(([name, variable]) => {
    const line = env.find((each) => each.startsWith(`${variable}=`));
    const value = line?.slice(variable.length + 1).trim() ?? "";
    return value === "" ? [] : [[name, value] as const];
  });
  const library = files
    .map((file) => /^libonnxruntime\.so\.(\d+\.\d+\.\d+)$/.exec(file)?.[1])
    .find((version) => version !== undefined);
  const all: Software = {
    ...Object.fromEntries(values),
    ...(library !== undefined && { onnxRuntime: library }),
  };
  return Object.keys(all).length === 0 ? undefined : all;
}

/** Versions of the libraries of clipstack's server on this machine. */
export function softwareHere(): Software | undefined {
  try {
    const require = createRequire(import.meta.url);
    const { version } = z
      .object({ version: z.string() })
      .parse(require("onnxruntime-node/package.json"));
    return { onnxRuntime: version };
  } catch {
    return undefined;
  }
}
