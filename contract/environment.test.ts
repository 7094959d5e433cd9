import { expect, test } from "vitest";
import { environment } from "./environment.ts";
import { defaultModel } from "./models/index.ts";

const value = {
  schema: 4,
  name: "single-gpu",
  where: "unix:///var/run/docker.sock",
  accelerator: "cpu",
  models: [defaultModel],
};
const service = {
  name: "triton-trt",
  kind: "triton",
  backend: "tensorrt",
  server: "tritonserver",
  resources: { container: "docker_container.triton" },
  endpoints: [{ protocol: "oip-http", url: "http://127.0.0.1:8020", name: "trt-http" }],
};

test("fails when a service names a model that the environment does not describe", () => {
  const services = [{ ...service, models: ["dinov2-small"], modelKind: "fp32" }];
  expect(
    environment.safeParse({ ...value, services }).error?.issues.map(({ message }) => message),
  ).toEqual(["must be one of openclip-vit-b32, the models of the environment, got 'dinov2-small'"]);
});

test("fails on the schema of an earlier version", () => {
  const services = [{ ...service, models: ["openclip-vit-b32"], modelKind: "trt" }];
  const issues = environment.safeParse({ ...value, schema: 3, services }).error?.issues;
  expect(issues?.map(({ path }) => path)).toEqual([["schema"]]);
});
