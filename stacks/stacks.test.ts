import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { findingsOf } from "../constructs/checks/findings.ts";
import { Testing } from "../constructs/terraform/cdktf.ts";
import { environment, environmentOutput } from "../contract/environment.ts";
import { KindStack } from "./kind.ts";
import { MultiGpuStack } from "./multi-gpu.ts";
import { parseSettings } from "./settings/settings.ts";
import { pytorchImage } from "./shared/image-builds.ts";
import { SingleGpuStack } from "./single-gpu.ts";

const project = fileURLToPath(new URL("../", import.meta.url));

const single = (yaml = "") =>
  new SingleGpuStack(Testing.app(), "single-gpu", parseSettings("single-gpu", "test", yaml));
const multi = (yaml = "") =>
  new MultiGpuStack(Testing.app(), "multi-gpu-4x", parseSettings("multi-gpu", "test", yaml));
const kind = (yaml = "") =>
  new KindStack(Testing.app(), "kind-local", parseSettings("kind", "test", yaml));

type Stack = ReturnType<typeof single> | ReturnType<typeof multi> | ReturnType<typeof kind>;

function synthesized(stack: Stack) {
  const json = JSON.parse(Testing.synth(stack, true));
  return {
    json,
    environment: environment.parse(json.output[environmentOutput].value),
    containers: Object.values(json.resource.docker_container ?? {}) as {
      name: string;
      env?: readonly string[];
      gpus?: string;
      upload?: readonly { content?: string }[];
    }[],
  };
}

/** Terraform addresses of all resources. */
function addresses(stack: Stack): readonly string[] {
  const { json } = synthesized(stack);
  return Object.entries(json.resource as Record<string, object>)
    .flatMap(([type, byId]) => Object.keys(byId).map((id) => `${type}.${id}`))
    .sort();
}

const servicesOf = (stack: Stack) => synthesized(stack).environment.services.map((it) => it.name);
/** Names of the constructs that the stack wires together; a review shows the addresses of their resources. */
const partsOf = (stack: Stack) => stack.node.children.map(({ node }) => node.id);

describe("single-gpu", () => {
  test("consists of a host, the embed server and two Triton servers", () => {
    expect(partsOf(single())).toEqual([
      "backend",
      "host",
      "weights",
      "triton-onnx",
      "triton-trt",
      "embed",
      "environment",
    ]);
  });

  test("declares all five endpoints", () => {
    const { services } = synthesized(single()).environment;
    const names = services.flatMap(({ endpoints }) => endpoints.map(({ name }) => name));
    expect(names.filter((name) => name !== undefined)).toEqual([
      "embed-http",
      "onnx-http",
      "onnx-grpc",
      "trt-http",
      "trt-grpc",
    ]);
  });

  test("adds a baseline and nothing else", () => {
    const settings = "{ embed: { gpus: [0] }, baseline: pytorch }";
    expect(servicesOf(single(settings))).toEqual(["embed", "triton-onnx", "triton-trt", "pytorch"]);
    expect(addresses(single(settings)).filter((it) => !addresses(single()).includes(it))).toEqual([
      "docker_container.pytorch_container_F19B35DD",
      "docker_image.host_pytorch-image_4D672203",
      "terraform_data.pytorch_ready_healthy_80A849D4",
    ]);
    expect(Testing.synth(single("baseline: none"))).toBe(Testing.synth(single()));
  });

  test("builds the baseline from files that exist", () => {
    const dockerfile = readFileSync(join(project, pytorchImage.build.dockerfile), "utf8");
    const copied = [...dockerfile.matchAll(/^COPY (.+) \S+$/gm)].flatMap(([, files = ""]) =>
      files.split(" "),
    );
    expect(copied.length).toBeGreaterThan(3);
    for (const file of copied)
      expect(existsSync(join(project, file.replace("*.py", "app.py")))).toBe(true);
  });

  test("requires one of its own services beside a baseline", () => {
    const none = "{ enabled: false }";
    const stack = single(
      `{ embed: ${none}, tritonOnnx: ${none}, tritonTrt: ${none}, baseline: pytorch }`,
    );
    expect(findingsOf(stack)).toContain(
      "single-gpu: embed.enabled must be true, or tritonOnnx.enabled, or tritonTrt.enabled, got false",
    );
  });

  test("omits disabled services", () => {
    expect(servicesOf(single("tritonTrt: { enabled: false }"))).toEqual(["embed", "triton-onnx"]);
    expect(servicesOf(single("embed: { enabled: false }"))).toEqual(["triton-onnx", "triton-trt"]);
  });

  const front = (upstreams: string) =>
    `accelerator: cpu\nembed: { backend: triton, upstreams: [${upstreams}] }\ntritonOnnx: { enabled: false }\ntritonTrt: { enabled: false }`;

  test("a gateway forwards to Triton servers on other hosts, beside its own or alone", () => {
    const upstreams = "{ grpc: 'gpu-2:8011' }, { grpc: '[fd00::3]:8011' }";
    const settings = (yaml: string) => JSON.stringify(synthesized(single(yaml)).json);
    expect(settings(`embed: { backend: triton, upstreams: [${upstreams}] }`)).toContain(
      '"TRITON_GRPC_URLS=single-gpu-triton-onnx:8001,gpu-2:8011,[fd00::3]:8011"',
    );
    const alone = synthesized(single(front(upstreams)));
    expect(JSON.stringify(alone.json)).toContain(
      '"TRITON_GRPC_URLS=gpu-2:8011,[fd00::3]:8011","TRITON_MODEL_KIND=fp32"',
    );
    expect(alone.environment.services).toMatchObject([
      { name: "embed", upstreams: ["gpu-2:8011", "[fd00::3]:8011"] },
    ]);
    expect(JSON.stringify(alone.json.resource.docker_network)).toContain('"ipv6":true');
    expect(settings(front("{ grpc: 'gpu-2:8011' }"))).not.toContain('"ipv6"');
  });

  test("a gateway reaches Triton servers on other hosts over TLS", () => {
    const tls = "tls: { ca: /etc/ca.pem, cert: /etc/c.pem, key: /etc/k.pem, serverName: triton }";
    const { json } = synthesized(single(front(`{ grpc: 'gpu-2:8011', ${tls} }`)));
    const text = JSON.stringify(json.resource.docker_container);
    for (const line of [
      "TRITON_TLS_CA_FILE=/tls/ca.pem",
      "TRITON_TLS_CERT_FILE=/tls/cert.pem",
      "TRITON_TLS_KEY_FILE=/tls/key.pem",
      "TRITON_TLS_SERVER_NAME=triton",
    ]) {
      expect(text).toContain(`"${line}"`);
    }
    expect(text).toContain(
      '{"container_path":"/tls/key.pem","host_path":"/etc/k.pem","read_only":true}',
    );
    expect(JSON.stringify(json.resource.terraform_data)).toContain(
      '{"on":"host","path":"/etc/ca.pem","what":"certificate authorities of the upstreams"}',
    );
  });

  test("makes the embed server a gateway with the backend triton", () => {
    const [embed] = synthesized(single("embed: { backend: triton, upstream: triton-trt }"))
      .environment.services;
    expect(embed).toMatchObject({
      backend: "triton",
      models: ["openclip-vit-b32"],
      modelKind: "trt",
    });
  });

  test("deploys the same services without a GPU", () => {
    const { json, environment: output } = synthesized(single("accelerator: cpu"));
    expect(output.services.map(({ name }) => name)).toEqual(["embed", "triton-onnx", "triton-trt"]);
    expect(output.accelerator).toBe("cpu");
    expect(JSON.stringify(json)).not.toMatch(/NVIDIA_|"gpus"|"runtime"/);
  });
});

describe("multi-gpu-4x", () => {
  test.each(["instance-group", "per-gpu"])("places a baseline on the first GPU, %s", (topology) => {
    const settings = `{ topology: ${topology}, baseline: pytorch }`;
    const { containers } = synthesized(multi(settings));
    expect(containers.find(({ name }) => name === "multi-gpu-4x-pytorch")).toMatchObject({
      gpus: "device=0",
    });
  });

  test("consists of a host, a gateway and two Triton servers on all GPUs", () => {
    expect(partsOf(multi())).toEqual([
      "backend",
      "host",
      "weights",
      "triton-onnx",
      "triton-trt",
      "embed",
      "environment",
    ]);
  });

  test("forwards to the ONNX Triton by default", () => {
    const grpcUrls = (yaml: string) =>
      JSON.stringify(synthesized(multi(yaml)).json).match(/TRITON_GRPC_URLS=([^"]*)/)?.[1];
    expect(grpcUrls("")).toBe("multi-gpu-4x-triton-onnx:8001");
    expect(grpcUrls("embed: { upstream: triton-trt }")).toBe("multi-gpu-4x-triton-trt:8001");
    expect(grpcUrls("topology: per-gpu")).toBe(
      [0, 1, 2, 3].map((index) => `multi-gpu-4x-triton-${index}:8001`).join(","),
    );
  });

  test("gives each Triton server one GPU and its own ports with the topology per-gpu", () => {
    const { containers, environment: output } = synthesized(multi("topology: per-gpu"));
    const devices = containers
      .filter(({ name }) => /-triton-\d$/.test(name))
      .map((container) => container.gpus);
    expect(devices).toEqual(["device=0", "device=1", "device=2", "device=3"]);
    expect(output.services.slice(1).map(({ endpoints }) => endpoints[0]?.url)).toEqual([
      "http://127.0.0.1:8010",
      "http://127.0.0.1:8020",
      "http://127.0.0.1:8030",
      "http://127.0.0.1:8040",
    ]);
  });

  test("gives each Triton server its own engine cache with TensorRT for each GPU", () => {
    const { json } = synthesized(multi("topology: per-gpu\nperGpu: { backend: tensorrt }"));
    const volumes = Object.values(json.resource.docker_volume as Record<string, { name: string }>);
    const caches = volumes.map(({ name }) => name).filter((name) => name.includes("-engines-"));
    expect(new Set(caches).size).toBe(4);
  });

  test.each([1, 2, 3, 4, 8, 16])("uses all of %d GPUs by default", (count) => {
    const host = `host: { count: ${count} }`;
    const indices = [...Array(count).keys()];
    const group = synthesized(multi(host));
    expect(group.environment.gpu?.count).toBe(count);
    for (const backend of ["onnx", "trt"]) {
      const name = `multi-gpu-4x-triton-${backend}`;
      const container = group.containers.find((it) => it.name === name);
      expect(container?.env).toContain(`NVIDIA_VISIBLE_DEVICES=${indices.join(",")}`);
    }
    const instances = group.containers.flatMap(({ upload = [] }) =>
      upload.flatMap(({ content = "" }) => /^ {4}gpus: .*$/m.exec(content)?.[0] ?? []),
    );
    expect(instances).toEqual(Array(2).fill(`    gpus: [${indices.join(", ")}]`));

    const { containers } = synthesized(multi(`topology: per-gpu\n${host}`));
    const devices = containers.flatMap(({ name, gpus }) => (/-triton-\d+$/.test(name) ? gpus : []));
    expect(new Set(devices)).toEqual(new Set(indices.map((index) => `device=${index}`)));
  });
});

describe("MIG devices", () => {
  const mig = (digit: number) => `MIG-8a56a4bc-184b-a047-2620-be16fdbd5b4${digit}`;
  const settings = (profile: string) =>
    multi(
      `topology: per-gpu\nhost: { gpu: h100, count: 1, migProfile: ${profile} }\nperGpu: { gpus: [${mig(0)}, ${mig(1)}] }`,
    );

  test("have a Triton server each, and the cost of the whole GPU", () => {
    const { containers, environment } = synthesized(settings("1g.10gb"));
    expect(containers.flatMap(({ gpus }) => gpus ?? [])).toEqual([
      `device=${mig(0)}`,
      `device=${mig(1)}`,
    ]);
    expect(environment.gpu).toMatchObject({ count: 1, share: "1g.10gb" });
    expect(findingsOf(settings("1g.10gb"))).toEqual([]);
  });
});

describe("GPUs by UUID", () => {
  const uuid = (digit: number) => `GPU-8a56a4bc-184b-a047-2620-be16fdbd5b4${digit}`;

  test("are requested by UUID by every service of the host", () => {
    const gpus = `gpus: [${uuid(0)}]`;
    const yaml = `embed: { ${gpus} }\ntritonOnnx: { ${gpus} }\ntritonTrt: { ${gpus} }`;
    const stack = single(yaml);
    expect(findingsOf(stack)).toEqual([]);
    expect(JSON.stringify(synthesized(stack).json)).not.toMatch(/device=0|DEVICES=0/);
  });
});

describe("the state", () => {
  const backend = (yaml: string) => synthesized(single(`state: ${yaml}`)).json.terraform.backend;

  test("is a file of the project, by a relative path", () => {
    expect(backend("{ backend: local, path: state/a.tfstate }")).toEqual({
      local: { path: "../../../state/a.tfstate" },
    });
  });

  test("is kept in S3, encrypted and locked", () => {
    expect(backend("{ backend: s3, bucket: my-bucket, region: eu-central-1 }")).toEqual({
      s3: {
        bucket: "my-bucket",
        key: "clipstack/single-gpu.tfstate",
        region: "eu-central-1",
        encrypt: true,
        use_lockfile: true,
      },
    });
  });

  test("is kept in S3-compatible storage", () => {
    const yaml =
      "{ backend: s3, bucket: my-bucket, region: main, endpoint: 'https://storage.example' }";
    expect(backend(yaml).s3).toMatchObject({
      endpoints: { s3: "https://storage.example" },
      use_path_style: true,
    });
  });

  test("is kept in Google's storage, or behind HTTP", () => {
    expect(backend("{ backend: gcs, bucket: my-bucket }")).toEqual({
      gcs: { bucket: "my-bucket", prefix: "clipstack/single-gpu" },
    });
    expect(backend("{ backend: http, address: 'https://state.example/a' }")).toEqual({
      http: { address: "https://state.example/a" },
    });
  });
});

describe("images", () => {
  const images = (stack: Stack) =>
    Object.values(
      synthesized(stack).json.resource.docker_image as Record<string, { name: string }>,
    ).map(({ name }) => name.replace(/\$\{.*\}/, "HASH"));

  test("exist once per kind on a host and are shared by its services", () => {
    const triton = "nvcr.io/nvidia/tritonserver:26.07-py3";
    expect(images(single())).toEqual(["clipstack/embed:gpu-HASH", triton]);
    expect(images(single("accelerator: cpu"))).toEqual(["clipstack/embed:cpu-HASH", triton]);
    expect(images(multi("topology: per-gpu"))).toEqual(["clipstack/embed:cpu-HASH", triton]);
  });

  test("are only the embed image if every Triton server is the emulator", () => {
    const yaml =
      "accelerator: cpu\ntritonOnnx: { server: emulator }\ntritonTrt: { server: emulator }";
    expect(images(single(yaml))).toEqual(["clipstack/embed:cpu-HASH"]);
  });
});

describe("kind-local", () => {
  test("consists of a cluster, a namespace and the embed server", () => {
    expect(partsOf(kind())).toEqual([
      "backend",
      "cluster",
      "image",
      "metrics-server",
      "namespace",
      "embed",
      "environment",
    ]);
  });

  test("is reachable on the port that kind maps", () => {
    const mapped = "cluster: { portMappings: [{ nodePort: 30092, hostPort: 9999 }] }";
    const [embed] = synthesized(kind(mapped)).environment.services;
    expect(embed?.endpoints[0]?.url).toBe("http://127.0.0.1:9999");
  });
});

describe("rules between settings", () => {
  test("fail on a relative path on a remote host", () => {
    const remote = "host: { docker: ssh://gpu@gpu-1 }\nweights: host-path";
    expect(findingsOf(multi(remote))).toEqual([
      "multi-gpu-4x: modelRepository must be an absolute path when weights is host-path and host.docker is ssh://, got 'model_repository'",
    ]);
    expect(findingsOf(multi(`${remote}\nmodelRepository: /srv/models`))).toEqual([]);
    // a volume is filled from the machine that deploys
    expect(findingsOf(multi("host: { docker: ssh://gpu@gpu-1 }"))).toEqual([]);
  });

  test("fail on a model repository from which no image is built", () => {
    const yaml = (folder: string) =>
      `weights: image\nmodelRepository: ${folder}\ntritonOnnx: { modelControl: explicit }\ntritonTrt: { modelControl: explicit }`;
    expect(findingsOf(multi(yaml("/srv/models")))).toEqual([
      "multi-gpu-4x: modelRepository must be model_repository when weights is image: images are built with the weights of that folder, got '/srv/models'",
    ]);
    expect(findingsOf(multi(yaml("model_repository")))).toEqual([]);
  });

  test("fail on an embed image without a version, even if the embed server is disabled", () => {
    const yaml = "embed: { enabled: false, image: 'clipstack/embed' }";
    expect(findingsOf(single(yaml))).toEqual([
      "single-gpu: embed.image must name a version, like 'name:1.2' or better 'name@sha256:…', got 'clipstack/embed'",
    ]);
  });

  test("fail if the gateway's Triton is disabled", () => {
    const gateway =
      "embed: { backend: triton, upstream: triton-trt }\ntritonTrt: { enabled: false }";
    expect(findingsOf(single(gateway))).toEqual([
      "single-gpu: embed.upstream must name a service that is enabled (tritonTrt.enabled is false), got 'triton-trt'",
    ]);
    expect(findingsOf(multi("tritonOnnx: { enabled: false }"))).toEqual([
      "multi-gpu-4x: embed.upstream must name a service that is enabled (tritonOnnx.enabled is false), got 'triton-onnx'",
    ]);
    expect(findingsOf(multi("topology: per-gpu\ntritonOnnx: { enabled: false }"))).toEqual([]);
    expect(findingsOf(single("tritonOnnx: { enabled: false }"))).toEqual([]);
  });

  test("fail if an upstream on another host is not one", () => {
    const findings = (more: string, ...upstreams: readonly string[]) =>
      findingsOf(single(`embed: { ${more}upstreams: [${upstreams.join(", ")}] }`));
    const gateway = "backend: triton, ";
    expect(findings("", "{ grpc: 'gpu-2:8011' }")).toEqual([
      "single-gpu/embed: upstreams must not be set unless the backend is triton, got 'gpu-2:8011'",
    ]);
    const address = "must be host:port with a port of 1 to 65535, an IPv6 address in brackets";
    expect(
      findings(gateway, "{ grpc: 'a:0' }", "{ grpc: '10.0.0.256:1' }", "{ grpc: '[fd00:::1]:1' }"),
    ).toEqual([
      `single-gpu/embed: upstreams.0.grpc ${address}, got 'a:0'`,
      `single-gpu/embed: upstreams.1.grpc ${address}, got '10.0.0.256:1'`,
      `single-gpu/embed: upstreams.2.grpc ${address}, got '[fd00:::1]:1'`,
    ]);
    const local =
      "must be an address of another host: in the container of the gateway, this is the container itself";
    for (const host of ["localhost", "127.0.0.2", "[::1]"]) {
      expect(findings(gateway, `{ grpc: '${host}:8011' }`)).toEqual([
        `single-gpu/embed: upstreams.0.grpc ${local}, got '${host}:8011'`,
      ]);
    }
    expect(findings(gateway, "{ grpc: 'a:1' }", "{ grpc: 'a:1' }")).toEqual([
      "single-gpu/embed: upstreams.1.grpc must be listed once, got 'a:1'",
    ]);
    const one = "a gateway has one TLS setting for all upstreams";
    expect(findings(gateway, "{ grpc: 'a:1', tls: { ca: /ca.pem, cert: /c.pem } }")).toEqual([
      `single-gpu/embed: upstreams.0.tls must not be set beside a Triton server of this host, which has no TLS: ${one}, got '/ca.pem'`,
      "single-gpu/embed: upstreams.0.tls must have both cert and key, or neither, got only cert",
    ]);
  });

  test("fail if every service is disabled", () => {
    const nothing =
      "embed: { enabled: false }\ntritonOnnx: { enabled: false }\ntritonTrt: { enabled: false }";
    expect(findingsOf(single(nothing))).toEqual([
      "single-gpu: embed.enabled must be true, or tritonOnnx.enabled, or tritonTrt.enabled, got false",
    ]);
  });

  test("fail if a PDB sets both properties or neither", () => {
    const rule = "kind-local/embed: budget must set either maxUnavailable or minAvailable, got";
    expect(findingsOf(kind("budget: { maxUnavailable: 1, minAvailable: 1 }"))).toEqual([
      `${rule} {"maxUnavailable":1,"minAvailable":1}`,
    ]);
    expect(findingsOf(kind("budget: {}"))).toEqual([`${rule} {}`]);
  });

  test("are reported together with the findings of the constructs", () => {
    const yaml =
      "host: { docker: ssh://gpu-1 }\nweights: host-path\nembed: { port: 8020 }\ntritonOnnx: { enabled: false }";
    expect(findingsOf(multi(yaml))).toEqual([
      "multi-gpu-4x: modelRepository must be an absolute path when weights is host-path and host.docker is ssh://, got 'model_repository'",
      "multi-gpu-4x: embed.upstream must name a service that is enabled (tritonOnnx.enabled is false), got 'triton-onnx'",
      "multi-gpu-4x/embed: port must be free on the host, got 8020, which triton-trt (ports.http) uses",
    ]);
  });
});

describe("every stack", () => {
  const stacks = [
    ["single-gpu", single],
    ["multi-gpu-4x", multi],
    ["multi-gpu-4x, per-gpu", () => multi("topology: per-gpu")],
    ["kind-local", kind],
  ] as const satisfies readonly (readonly [string, () => Stack])[];

  test.each(stacks)("%s passes its own checks", (_, build) => {
    expect(findingsOf(build())).toEqual([]);
  });

  test.each(stacks)("%s synthesizes the same text every time", (_, build) => {
    expect(Testing.synth(build(), true)).toBe(Testing.synth(build(), true));
  });

  test.each(stacks)("%s keeps its state in the project, by a relative path", (_, build) => {
    const stack = build();
    expect(synthesized(stack).json.terraform.backend).toEqual({
      local: { path: `../../../terraform.${stack.node.id}.tfstate` },
    });
  });

  test.each(stacks)("%s names the resource of every service", (_, build) => {
    const stack = build();
    const known = addresses(stack);
    const named = synthesized(stack).environment.services.flatMap(({ resources }) =>
      Object.values(resources),
    );
    expect(named.length).toBeGreaterThan(0);
    for (const address of named) expect(known).toContain(address);
  });

  test.each(stacks.slice(0, 3))("%s hardens the container of each service", (_, build) => {
    const { json, environment: output } = synthesized(build());
    for (const { resources } of output.services) {
      const [type = "", id = ""] = (resources.container ?? "").split(".");
      expect(json.resource[type][id]).toMatchObject({
        healthcheck: { test: expect.arrayContaining(["CMD"]) },
        init: true,
        user: "1000:1000",
        read_only: true,
        capabilities: { drop: ["ALL"] },
        security_opts: ["no-new-privileges:true"],
        restart: "unless-stopped",
        stop_timeout: 35,
        destroy_grace_seconds: 35,
        // the first Triton server of a GPU and the gateway wait for all prerequisites, the next for the one before
        provider: expect.stringMatching(/^docker\.(services|triton-\d)$/),
      });
    }
  });
});

interface ServiceContainer {
  readonly name: string;
  readonly env: readonly string[];
  readonly command: readonly string[];
  readonly volumes: readonly object[];
}

test("a host serves all models of an environment, texts included", () => {
  const stack = single("models: [openclip-vit-b32, dinov2-small]");
  const containers = synthesized(stack).containers as unknown as readonly ServiceContainer[];
  const of = (name: string) => containers.find((it) => it.name === `single-gpu-${name}`)!;
  expect(of("triton-onnx").command.filter((argument) => argument.includes("load-model"))).toEqual([
    "--load-model=openclip_vit_b32",
    "--load-model=openclip_vit_b32_text",
    "--load-model=dinov2_small",
  ]);
  expect(of("triton-trt").command).toContain("--load-model=openclip_vit_b32_text_trt");
  expect(of("embed").env).toContain('MODELS=["openclip-vit-b32","dinov2-small"]');
  expect(of("embed").volumes).toMatchObject([
    { container_path: "/models/openclip_vit_b32/1" },
    { container_path: "/models/openclip_vit_b32_text/1" },
    { container_path: "/models/dinov2_small/1" },
  ]);
});

test("images with weights contain the models of the environment", () => {
  const stack = single("weights: image\nmodels: [dinov2-small, openclip-vit-b32]");
  expect(findingsOf(stack)).toEqual([]);
});

test.each(["kubernetes", "helm"])("kind serves all models of an environment, with %s", (way) => {
  const stack = kind(`deployWith: ${way}\nmodels: [dinov2-small, openclip-vit-b32]`);
  expect(findingsOf(stack)).toEqual([]);
  const { json, environment: output } = synthesized(stack);
  expect(output.models.map(({ name, towers }) => [name, Object.keys(towers)])).toEqual([
    ["dinov2-small", ["image"]],
    ["openclip-vit-b32", ["image", "text"]],
  ]);
  expect(output.services).toMatchObject([{ models: ["dinov2-small", "openclip-vit-b32"] }]);
  const [resource] = Object.values<Record<string, never>>(
    json.resource[way === "helm" ? "helm_release" : "kubernetes_config_map_v1"],
  );
  const { values, data } = resource as unknown as {
    values: string[];
    data: { [file: string]: string };
  };
  const served = way === "helm" ? JSON.parse(values[0]!).models : JSON.parse(data["models.json"]!);
  expect(served).toEqual(["dinov2-small", "openclip-vit-b32"]);
});
