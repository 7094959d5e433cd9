import { expect, test } from "vitest";
import { environment } from "./environment.ts";

test("reads schema 1 with its former names", () => {
  const first = {
    schema: 1,
    name: "single-gpu",
    where: "unix:///var/run/docker.sock",
    accelerator: "cpu",
    services: [
      {
        name: "triton-onnx",
        kind: "triton",
        backend: "onnx",
        engine: "bundled",
        model: "openclip_vit_b32",
        resources: { container: "docker_container.triton" },
        endpoints: [
          { protocol: "oip-http", url: "http://127.0.0.1:8010", path: "onnx-http" },
          { protocol: "metrics", url: "http://127.0.0.1:8012" },
        ],
      },
    ],
  };
  expect(environment.parse(first)).toEqual({
    ...first,
    schema: 2,
    services: [
      {
        name: "triton-onnx",
        kind: "triton",
        backend: "onnxruntime",
        server: "emulator",
        model: "openclip_vit_b32",
        resources: { container: "docker_container.triton" },
        endpoints: [
          { protocol: "oip-http", url: "http://127.0.0.1:8010", name: "onnx-http" },
          { protocol: "metrics", url: "http://127.0.0.1:8012" },
        ],
      },
    ],
  });
});
