import { expect, test } from "vitest";
import { gpuLayout, modelConfig } from "../../contract/model-config.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { parseTritonArgs, tritonCommandOf } from "../../contract/triton-flags.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { dependenciesIn, findings, hostIn, synth } from "../test-synth.ts";
import { EmbedServer } from "./embed-server.ts";
import type { GpuHostProps } from "./host-plan.ts";
import type { TritonServerProps } from "./triton-plan.ts";
import { TritonServer } from "./triton-server.ts";

const pulled = (name: string) =>
  ({ kind: "tritonserver", image: { source: "pull", name } }) as const;

interface Options {
  readonly source?: "volume" | "host-path" | "image";
  readonly props?: Partial<TritonServerProps>;
  readonly host?: Partial<GpuHostProps>;
}

function triton(stack: TerraformStack, { source, props, host: hostProps }: Options) {
  const host = hostIn(stack, hostProps);
  const shared = dependenciesIn(stack, host, source ?? "volume");
  const server = new TritonServer(stack, "triton", {
    host,
    ...shared,
    server: pulled("nvcr.io/nvidia/tritonserver:26.07-py3"),
    backend: "onnxruntime",
    ports: { http: 8010, grpc: 8011, metrics: 8012 },
    gpus: [0],
    jpegDecoder: "dali",
    ...props,
  });
  return { host, server, image: shared.tools };
}

function synthTriton(options: Options = {}) {
  let server: TritonServer | undefined;
  const result = synth((stack) => {
    ({ server } = triton(stack, options));
  });
  return { ...result, server: server!, container: result.at("test/triton/container") };
}

test.each([
  ["onnxruntime", "openclip_vit_b32_dali", "dali"],
  ["tensorrt", "openclip_vit_b32_dali_trt", "dali-trt"],
] as const)("a Triton server with %s also serves %s", (backend, ensemble, modelKind) => {
  const { container, server } = synthTriton({ props: { backend } });
  expect(parseTritonArgs(tritonCommandOf(container.command).slice(1))["load-model"]).toEqual([
    backend === "tensorrt" ? "openclip_vit_b32_trt" : "openclip_vit_b32",
    "openclip_vit_b32_dali_preprocess",
    ensemble,
  ]);
  expect(server.service).toMatchObject({ jpegKind: modelKind });
  const paths = container.volumes.map((each: { container_path: string }) => each.container_path);
  for (const model of ["openclip_vit_b32_dali_preprocess", ensemble]) {
    expect(paths).toContain(`/models/${model}/1`);
    expect(paths).toContain(`/models/${model}/configs`);
  }
});

test.each([
  ["gpu", "model.dali", 1],
  ["cpu", "model.cpu.dali", 0],
] as const)("on the %s the volume has %s, verified by checksum", (accelerator, file, gpus) => {
  const { at } = synthTriton({ host: { accelerator } });
  const check = at("test/triton/dali/pipeline-check/container");
  expect(check.command.slice(0, 5)).toEqual([
    "check-weights",
    ...["--folder", "/pipeline", "--file", file],
  ]);
  expect(check.upload).toEqual([
    {
      file: `/pipeline/${file}`,
      source: `/srv/models/openclip_vit_b32_dali_preprocess/1/${file}`,
      source_hash: check.command[6],
    },
  ]);
  const [{ content }] = at("test/triton/dali/configuration-preprocess/apply/container").upload;
  expect(content).toContain(`default_model_filename: "${file}"`);
  const config = modelConfig(openclipVitB32, "dali-preprocess", gpuLayout(gpus));
  expect(config.default_model_filename).toBe(file);
});

test("a missing pipeline fails the plan with the command that writes it", () => {
  const { at } = synthTriton();
  const [{ error_message }] = at("test/triton/dali/pipeline").lifecycle.precondition;
  expect(error_message).toBe(
    "There is no DALI pipeline at /srv/models/openclip_vit_b32_dali_preprocess/1/model.dali: 'npx clipstack model pipeline' writes it.",
  );
});

test("with host-path the folder of the pipeline is mounted", () => {
  const { container, all } = synthTriton({ source: "host-path" });
  expect(container.volumes).toContainEqual({
    host_path: "/srv/models/openclip_vit_b32_dali_preprocess/1",
    container_path: "/models/openclip_vit_b32_dali_preprocess/1",
    read_only: true,
  });
  const checks = all("docker_container").filter(({ command }) => command[0] === "check-weights");
  expect(checks).toEqual([]);
});

test("a gateway forwards JPEG files to it", () => {
  const { at } = synth((stack) => {
    const { host, server, image } = triton(stack, {});
    new EmbedServer(stack, "embed", {
      host,
      image,
      port: 8002,
      backend: { kind: "triton", upstreams: [server] },
    });
  });
  expect(at("test/embed/container").env).toContain("TRITON_MODEL_KIND=dali");
});

test("fails if the weights are in the image", () => {
  expect(findings((stack) => triton(stack, { source: "image" }))).toContain(
    "test/triton: jpegDecoder must be none when weights is image, because the image has no DALI pipeline, got 'dali'",
  );
});

test.each(["26.07-py3-min", "26.07-py3-sdk", "26.07-vllm-python-py3"])(
  "fails with NVIDIA's image %s, which has no DALI",
  (tag) => {
    const name = `nvcr.io/nvidia/tritonserver:${tag}`;
    expect(findings((stack) => triton(stack, { props: { server: pulled(name) } }))).toContain(
      `test/triton: jpegDecoder must be none for an image without DALI; of NVIDIA's images, <release>-py3 has it, got 'dali' with '${name}'`,
    );
  },
);

test("the GPU memory of its models includes the decoders", () => {
  const small = { host: { gpu: "rtx-4080" }, props: { instancesPerGpu: 16 } } as const;
  const needed = (options: Options) =>
    Number(/they need (\d+)/.exec(findings((stack) => triton(stack, options)).join())?.[1]);
  const without = { ...small, props: { ...small.props, jpegDecoder: "none" } } as const;
  // twice, because a reload loads new instances before it unloads the old ones
  expect(needed(small) - needed(without)).toBe(2 * (4 * 16 + 32 * 35));
});
