import { expect, test } from "vitest";
import { softwareHere, softwareOfContainer } from "./software.ts";

/** Variables of a container of NVIDIA's Triton image, with one that the environment added. */
const env = [
  "PATH=/opt/tritonserver/bin:/usr/local/cuda/bin:/usr/bin",
  "CUDA_VERSION=12.6.2.004",
  "CUDA_DRIVER_VERSION=560.35.03",
  "TRT_VERSION=10.5.0.18",
  "NVIDIA_TRITON_SERVER_VERSION=24.10",
  "TRITON_SERVER_VERSION=2.51.0",
  "INFERENCE_API_KEY=planted-0000000000",
];

test("the versions of a Triton container are those of its image and backend, without other variables", () => {
  const files = ["LICENSE.onnxruntime", "libonnxruntime.so", "libonnxruntime.so.1.19.2"];
  expect(softwareOfContainer(env, files)).toEqual({
    tritonRelease: "24.10",
    cuda: "12.6.2.004",
    tensorrt: "10.5.0.18",
    onnxRuntime: "1.19.2",
  });
});

test("unknown versions are absent", () => {
  expect(softwareOfContainer(["PATH=/bin", "CUDA_VERSION="], [])).toBeUndefined();
  expect(softwareOfContainer([], ["libonnxruntime.so.1.19.2"])).toEqual({ onnxRuntime: "1.19.2" });
});

test("a local simulation has the ONNX Runtime of this project", () => {
  expect(softwareHere()?.onnxRuntime).toMatch(/^\d+\.\d+\.\d+$/);
});
