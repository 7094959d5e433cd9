import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { readArtefact } from "../../artefact/artefact.ts";
import { type ShippedEnvironment, shippedStacks } from "../../stacks/settings/environment-files.ts";
import { parseEnvironment } from "../../stacks/settings/settings.ts";
import { writeStacks } from "../../stacks/write-stacks.ts";
import { type LaunchOptions, launchSpec } from "./launch-spec.ts";
import { dockerRun, shellText } from "./launch-text.ts";

/** Launch specification of an environment with these settings. */
function launch(
  settings: Readonly<Record<string, unknown>>,
  { name = "single-gpu", ...options }: LaunchOptions & { readonly name?: ShippedEnvironment } = {},
) {
  const outdir = join(mkdtempSync(join(tmpdir(), "clipstack-launch-")), "cdktf.out");
  const yaml = stringify({ stack: shippedStacks[name], ...settings });
  const { rejected } = writeStacks([parseEnvironment(name, "test", yaml)], { outdir });
  expect(rejected).toEqual([]);
  const file = join(outdir, "stacks", name, "cdk.tf.json");
  return launchSpec(readArtefact(file), readFileSync(file, "utf8"), options);
}

const host = { docker: "ssh://root@gpu.example", gpu: "rtx-4080", count: 1 };
const triton = { image: "nvcr.io/nvidia/tritonserver:26.07-py3" };
const onGpu = {
  host,
  weights: "host-path",
  modelRepository: "/srv/models",
  embed: {},
  tritonOnnx: triton,
  tritonTrt: triton,
};

/** Options of the `docker run`, one per line. */
const linesOf = (settings: Readonly<Record<string, unknown>>, options?: LaunchOptions) =>
  shellText(dockerRun(launch(settings, options).spec)).split(" \\\n  ");

test("prints the docker run of every service, with the GPU, the ports and the privileges of the environment", () => {
  expect(linesOf(onGpu)).toEqual([
    "docker run",
    "--detach",
    "--name single-gpu",
    "--restart unless-stopped",
    "--user 1000:1000",
    "--read-only",
    "--tmpfs /tmp:rw,nosuid,nodev,size=576m",
    "--cap-drop ALL",
    "--security-opt no-new-privileges:true",
    "--memory 15360m",
    "--shm-size 2048m",
    "--ulimit memlock=-1:-1",
    "--ulimit stack=67108864:67108864",
    "--stop-timeout 60",
    "--log-driver json-file",
    "--log-opt max-file=3",
    "--log-opt max-size=10m",
    "--gpus device=0",
    "--env SERVICES=embed,triton-onnx,triton-trt",
    "--env TRITON_MODELS=openclip-vit-b32:image",
    "--env ALLOW_ANONYMOUS=true",
    "--env BACKEND=onnxruntime",
    "--env EXECUTION_PROVIDER=cuda",
    "--env MAX_PIXELS_IN_FLIGHT=320000000",
    `--env 'MODELS=[{"modalities":["image"],"name":"openclip-vit-b32"}]'`,
    "--env NODE_OPTIONS=--max-old-space-size=1024",
    "--env SHUTDOWN_GRACE_SECONDS=30",
    "--env NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "--env NVIDIA_VISIBLE_DEVICES=0",
    "--publish 127.0.0.1:8002:8002",
    "--publish 127.0.0.1:8010:8010",
    "--publish 127.0.0.1:8011:8011",
    "--publish 127.0.0.1:8012:8012",
    "--publish 127.0.0.1:8020:8020",
    "--publish 127.0.0.1:8021:8021",
    "--publish 127.0.0.1:8022:8022",
    "--volume single-gpu-engines:/engine-cache",
    "--volume /srv/models/openclip_vit_b32/1:/models/openclip_vit_b32/1:ro",
    "--volume /srv/models/openclip_vit_b32/1:/models/openclip_vit_b32_trt/1:ro",
    "clipstack/all-in-one:0.1.0",
  ]);
});

test("builds the image from the images in the settings", () => {
  expect(launch(onGpu).spec.build.join(" ")).toBe(
    "docker build --platform linux/amd64 --file model_repository/image/Dockerfile.all-in-one --build-arg EMBED_IMAGE=clipstack/embed:gpu --build-arg TRITON_SERVER=tritonserver --build-arg TRITON_IMAGE=nvcr.io/nvidia/tritonserver:26.07-py3 --tag clipstack/all-in-one:0.1.0 model_repository",
  );
});

test("maps other ports of the host to those of the image", () => {
  const lines = linesOf({
    ...onGpu,
    embed: { port: 9002 },
    tritonOnnx: { ...triton, ports: { http: 9010, grpc: 9011, metrics: 9012 } },
  });
  expect(lines.filter((line) => line.startsWith("--publish")).slice(0, 4)).toEqual([
    "--publish 127.0.0.1:9002:8002",
    "--publish 127.0.0.1:9010:8010",
    "--publish 127.0.0.1:9011:8011",
    "--publish 127.0.0.1:9012:8012",
  ]);
});

test("runs only the enabled services, and requests no GPU on CPU", () => {
  const { spec } = launch({
    accelerator: "cpu",
    weights: "image",
    embed: { backend: "triton", upstream: "triton-trt" },
    tritonOnnx: { enabled: false },
    tritonTrt: { server: "emulator", modelControl: "explicit" },
  });
  expect(spec).toMatchObject({
    image: "clipstack/all-in-one:0.1.0-emulator",
    env: {
      SERVICES: "embed,triton-trt",
      BACKEND: "triton",
      TRITON_GRPC_URLS: "127.0.0.1:8021",
      MODELS: '[{"modalities":["image"],"name":"openclip-vit-b32"}]',
      TRITON_MODELS: "openclip-vit-b32:image",
      TRITON_MODEL_KIND: "trt",
    },
    volumes: [],
  });
  expect(spec.gpu).toBeUndefined();
  expect(spec.build.join(" ")).toContain("--build-arg WEIGHTS=image");
});

test("builds the image with the models of the environment", () => {
  const { spec } = launch({
    accelerator: "cpu",
    weights: "image",
    models: ["dinov2-small", "openclip-vit-b32"],
    embed: { enabled: false },
    tritonOnnx: { server: "emulator" },
    tritonTrt: { enabled: false },
  });
  const models = "dinov2-small,openclip-vit-b32";
  expect(spec.build.join(" ")).toContain(`--build-arg WEIGHTS=image --build-arg MODELS=${models} `);
  expect(spec.env).toMatchObject({ SERVICES: "triton-onnx", TRITON_MODELS: models });
});

test("reads the key of a public port from the shell, with a note", () => {
  const { spec } = launch({ ...onGpu, embed: { expose: "all-interfaces", allowPlaintext: true } });
  expect(spec.secrets).toEqual(["API_KEY"]);
  expect(JSON.stringify(spec.env)).not.toContain("API_KEY");
  expect(shellText(dockerRun(spec))).toContain("--env API_KEY \\\n  --publish 0.0.0.0:8002:8002");
  expect(spec.notes).toContain("API_KEY must be set in the shell of docker run");
});

test("prints the environment for marketplaces without a warning: a public gateway with a key, Triton ports on the loopback interface", () => {
  const { spec, changed } = launch(
    parse(readFileSync(new URL("../../environments/marketplace.yaml", import.meta.url), "utf8")),
  );
  expect(spec.notes).toEqual(["API_KEY must be set in the shell of docker run"]);
  expect(changed).toEqual([]);
  expect(spec.build).toEqual(expect.arrayContaining(["linux/amd64", "WEIGHTS=image"]));
  expect(spec.ports.map(({ address, container }) => `${address}:${container}`)).toEqual([
    "0.0.0.0:8002",
    "127.0.0.1:8010",
    "127.0.0.1:8011",
    "127.0.0.1:8012",
  ]);
});

test("downloads weights by URL into a volume, with the files of TensorRT", () => {
  const sha256 = "ab".repeat(32);
  const file = { url: "https://files.example/model.onnx", sha256 };
  const settings = { ...onGpu, weights: "url", modelRepository: "model_repository" };
  const downloads = { "openclip-vit-b32:image": { ...file, tensorrt: file } };
  const { spec } = launch({ ...settings, downloads });
  expect(spec.env.WEIGHTS_URLS?.split(" ").sort()).toEqual(
    ["model.onnx", "model.trt-fp16.onnx"].map(
      (name) => `openclip_vit_b32/1/${name}=${file.url}#sha256=${sha256}`,
    ),
  );
  expect(spec.build.join(" ")).not.toContain("WEIGHTS=image");
  expect(spec.volumes.filter(({ target }) => target.startsWith("/models"))).toEqual([
    {
      source: "single-gpu-weights-openclip_vit_b32",
      target: "/models/openclip_vit_b32/1",
      readOnly: false,
    },
  ]);
});

test("notes a changed model configuration, and mounts it from a folder", () => {
  const slower = { ...triton, maxQueueDelayMicroseconds: 9_000 };
  const settings = { ...onGpu, tritonOnnx: slower };
  const { changed, spec } = launch(settings);
  expect(changed.map(({ model }) => model)).toEqual(["openclip_vit_b32"]);
  expect(changed[0]?.text).toContain("max_queue_delay_microseconds: 9000");
  expect(spec.notes).toContain(
    "openclip_vit_b32: the settings change its configuration, but the image contains the repository's: --configs <folder> writes configs/deployed.pbtxt and mounts it",
  );
  expect(linesOf(settings, { configs: "/srv/configs" })).toContain(
    "--volume /srv/configs/openclip_vit_b32:/models/openclip_vit_b32/configs:ro",
  );
});

test.each<[ShippedEnvironment, string]>([
  [
    "multi-gpu-4x",
    "multi-gpu-4x cannot be one container: it runs on 4 GPUs of one host; launch-spec requires an environment of the stack single-gpu",
  ],
  [
    "kind-local",
    "kind-local cannot be one container: embed is a Deployment of a cluster; launch-spec requires an environment of the stack single-gpu",
  ],
])("fails for %s with the reason", (name, message) => {
  expect(() => launch({}, { name })).toThrow(message);
});

test("fails for services behind a proxy with TLS", () => {
  const tls = { acme: { domain: "gpu.example.com", email: "ops@example.com" } };
  expect(() => launch({ embed: { expose: "all-interfaces", tls } })).toThrow(
    "single-gpu cannot be one container: embed is behind the proxy of embed.tls.acme; launch-spec requires an environment of the stack single-gpu",
  );
});

test("fails if the Triton servers have different images", () => {
  const other = { image: "nvcr.io/nvidia/tritonserver:26.06-py3" };
  expect(() => launch({ ...onGpu, tritonTrt: other })).toThrow(
    "single-gpu cannot be one container: its Triton servers have different settings (image: nvcr.io/nvidia/tritonserver:26.07-py3, nvcr.io/nvidia/tritonserver:26.06-py3), and the all-in-one image has one Triton server",
  );
});

test("is built from images in the settings, not from names that Terraform computes", () => {
  const argsOf = (embed: unknown, image: unknown) =>
    launch({ ...onGpu, embed: { image: embed }, tritonOnnx: { image }, tritonTrt: { image } })
      .spec.build.filter((word) => /^(EMBED|TRITON)_IMAGE=/.test(word))
      .join(" ");
  const base = "nvcr.io/nvidia/tritonserver:26.06-py3";
  expect(argsOf("ghcr.io/a/embed:1.2", base)).toBe(
    `EMBED_IMAGE=ghcr.io/a/embed:1.2 TRITON_IMAGE=${base}`,
  );
  const built = { source: "build", buildArgs: { TRITON_IMAGE: base } };
  expect(argsOf({ source: "build" }, built)).toBe(
    `EMBED_IMAGE=clipstack/embed:gpu TRITON_IMAGE=${base}`,
  );
  expect(argsOf({ source: "build" }, { source: "build" })).toBe("EMBED_IMAGE=clipstack/embed:gpu");
});

test("notes different CUDA versions of the embed server and its Triton server", () => {
  const notes = (settings: Readonly<Record<string, unknown>>) =>
    launch({ ...onGpu, ...settings }).spec.notes.filter((line) => line.includes("CUDA"));
  expect(notes({})).toEqual([
    "the embed server requires CUDA 12, and nvcr.io/nvidia/tritonserver:26.07-py3 has CUDA 13: it may fail to start because of missing libraries; set embed.backend: triton to run the model in Triton",
  ]);
  expect(notes({ embed: { backend: "triton" } })).toEqual([]);
  expect(notes({ accelerator: "cpu" })).toEqual([]);
});

test("notes that kept engines must be removed for other weights", () => {
  const notes = (settings: Readonly<Record<string, unknown>>) =>
    launch({ ...onGpu, ...settings }).spec.notes.join("\n");
  expect(notes({})).toContain(
    "remove the volume before using other weights ('docker volume rm single-gpu-engines')",
  );
  expect(notes({ tritonTrt: { enabled: false } })).not.toContain("engines");
});
