import { expect, test } from "vitest";
import { environment } from "./environment.ts";
import { defaultModel, defaultModels } from "./models/index.ts";

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
    schema: 4,
    models: defaultModels,
    services: [
      {
        name: "triton-onnx",
        kind: "triton",
        backend: "onnxruntime",
        server: "emulator",
        models: ["openclip-vit-b32"],
        modelKind: "fp32",
        resources: { container: "docker_container.triton" },
        endpoints: [
          { protocol: "oip-http", url: "http://127.0.0.1:8010", name: "onnx-http" },
          { protocol: "metrics", url: "http://127.0.0.1:8012" },
        ],
      },
    ],
  });
});

const second = {
  schema: 2,
  name: "single-gpu",
  where: "unix:///var/run/docker.sock",
  accelerator: "cpu",
};
const secondService = {
  name: "triton-trt",
  kind: "triton",
  backend: "tensorrt",
  server: "tritonserver",
  resources: { container: "docker_container.triton" },
  endpoints: [{ protocol: "oip-http", url: "http://127.0.0.1:8020", name: "trt-http" }],
};

test("reads schema 2, whose services had one model with its name in Triton", () => {
  const services = [{ ...secondService, model: "openclip_vit_b32_trt" }];
  const read = environment.parse({ ...second, services });
  expect(read.models).toEqual(defaultModels);
  expect(read.services).toEqual([
    { ...secondService, models: ["openclip-vit-b32"], modelKind: "trt" },
  ]);
});

test("fails when a service names a model that the environment does not describe", () => {
  const services = [{ ...secondService, models: ["dinov2-small"], modelKind: "fp32" }];
  const value = { ...second, schema: 4, models: [defaultModel], services };
  expect(environment.safeParse(value).error?.issues.map(({ message }) => message)).toEqual([
    "must be one of openclip-vit-b32, the models of the environment, got 'dinov2-small'",
  ]);
});

test("reads schema 3, in which model kinds had the name variant", () => {
  const former = [{ ...secondService, model: "openclip_vit_b32_trt" }];
  const { services, ...current } = environment.parse({ ...second, services: former });
  const third = {
    ...current,
    schema: 3,
    services: services.map(({ modelKind, ...service }) => ({
      ...service,
      variant: modelKind,
      jpegVariant: "dali",
    })),
  };
  expect(environment.parse(third)).toEqual({
    ...current,
    services: services.map((service) => ({ ...service, jpegKind: "dali" })),
  });
});
