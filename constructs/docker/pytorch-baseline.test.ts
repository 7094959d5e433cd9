import { expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { findings, hostIn, synth } from "../test-synth.ts";
import type { GpuHostProps } from "./host-plan.ts";
import { ModelWeights, type WeightsSource } from "./model-weights.ts";
import { PytorchBaseline, type PytorchBaselineProps } from "./pytorch-baseline.ts";

interface Options {
  readonly host?: Partial<GpuHostProps>;
  readonly props?: Partial<PytorchBaselineProps>;
  readonly source?: WeightsSource;
  readonly models?: readonly ModelSpec[];
}

function baselineIn(stack: TerraformStack, options: Options = {}): PytorchBaseline {
  const host = hostIn(stack, options.host);
  const image = host.image("pytorch", { source: "pull", name: "baseline:1" });
  const weights = new ModelWeights(stack, "weights", {
    host,
    tools: host.image("embed-cpu", { source: "pull", name: "embed:1" }),
    source: options.source ?? "host-path",
    modelRepository: "/srv/models",
    models: options.models,
  });
  const props = { host, image, weights, gpus: [2], ...options.props };
  return new PytorchBaseline(stack, "pytorch", props);
}

function synthBaseline(options: Options = {}) {
  let baseline: PytorchBaseline | undefined;
  const result = synth((stack) => {
    baseline = baselineIn(stack, options);
  });
  if (baseline === undefined) throw new Error("not built");
  return { ...result, baseline, container: result.at("test/pytorch/container") };
}

test("serves the image tower of the first model from a read-only mount, on one GPU", () => {
  const { container } = synthBaseline();
  expect(container).toMatchObject({
    gpus: "device=2",
    env: [
      "DEVICE=cuda",
      "HOST=0.0.0.0",
      "MODEL_NAME=openclip-vit-b32",
      "MODEL_PATH=/models/openclip_vit_b32/1/model.onnx",
      "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
      "NVIDIA_VISIBLE_DEVICES=2",
      "PORT=8006",
      "SHUTDOWN_GRACE_SECONDS=30",
    ],
    volumes: [
      {
        container_path: "/models/openclip_vit_b32/1",
        host_path: "/srv/models/openclip_vit_b32/1",
        read_only: true,
      },
    ],
    read_only: true,
    user: "1000:1000",
  });
});

test("listens on the loopback interface, and its health check requests the readiness route", () => {
  const { container } = synthBaseline({ props: { port: 9006 } });
  expect(container.ports).toEqual([{ internal: 8006, external: 9006, ip: "127.0.0.1" }]);
  expect(container.healthcheck.test.at(-1)).toBe("http://127.0.0.1:8006/readyz");
});

test("runs on the CPU of a host without a GPU", () => {
  const { container } = synthBaseline({ host: { accelerator: "cpu" } });
  expect(container.gpus).toBeUndefined();
  expect(container.env).toContain("DEVICE=cpu");
});

test("is an endpoint of the environment, of a kind that is not clipstack's", () => {
  expect(synthBaseline().baseline.service).toMatchObject({
    name: "pytorch",
    kind: "baseline",
    backend: "pytorch",
    models: ["openclip-vit-b32"],
    endpoints: [{ protocol: "embed-http", url: "http://127.0.0.1:8006", name: "pytorch-http" }],
  });
});

test("counts its weights in FP32 and FP16 in the GPU memory of the host", () => {
  const models = [modelCatalogue.get("openclip-vit-l14")!];
  expect(findings((stack) => baselineIn(stack, { models, host: { gpu: "t4" } }))).toEqual([]);
  expect(findings((stack) => baselineIn(stack, { props: { gpus: [4] } }))).toEqual([
    "test/pytorch: gpus must be 0 to 3 (host.count is 4), got 4",
  ]);
});

test("rejects models that are not vision transformers of OpenCLIP", () => {
  const models = [modelCatalogue.get("dinov2-small")!];
  expect(findings((stack) => baselineIn(stack, { models }))).toEqual([
    "test/pytorch: weights.models.0 must be the image tower of openclip-vit-b32, openclip-vit-b16, openclip-vit-l14, which the PyTorch baseline computes, got 'dinov2-small'",
  ]);
});

test("rejects weights that are only in other images", () => {
  expect(findings((stack) => baselineIn(stack, { source: "image" }))).toEqual([
    "test/pytorch: weights.source must be volume or host-path: the image of the PyTorch baseline contains no weights, got 'image'",
  ]);
});
