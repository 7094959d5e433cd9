import { expect, test } from "vitest";
import { defaultModels, modelCatalogue } from "../../contract/models/index.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { expression } from "../terraform/expression.ts";
import { dependenciesIn, findings, hostIn, synth } from "../test-synth.ts";
import type { EmbedServerProps } from "./embed-plan.ts";
import { EmbedServer } from "./embed-server.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { GpuHostProps } from "./host-plan.ts";
import { ModelWeights } from "./model-weights.ts";
import { TritonServer } from "./triton-server.ts";

/** Creates an embed server with ONNX Runtime. */
function embedIn(
  stack: TerraformStack,
  host: GpuHost,
  props: Partial<EmbedServerProps> = {},
  gpus: readonly number[] = [0],
): EmbedServer {
  const { tools, weights } = dependenciesIn(stack, host);
  return new EmbedServer(stack, "embed", {
    host,
    image: tools,
    backend: { kind: "onnxruntime", weights, gpus },
    port: 8002,
    expose: "loopback",
    ...props,
  });
}

function synthEmbed(props: Partial<EmbedServerProps> = {}, host: Partial<GpuHostProps> = {}) {
  let server: EmbedServer | undefined;
  const result = synth((stack) => {
    server = embedIn(stack, hostIn(stack, host), props);
  });
  if (server === undefined) throw new Error("not built");
  return { ...result, server, container: result.at("test/embed/container") };
}

/** Synthesizes a gateway to two Triton servers. */
function synthGateway() {
  let server: EmbedServer | undefined;
  const result = synth((stack) => {
    const host = hostIn(stack);
    const parts = dependenciesIn(stack, host);
    const image = { source: "pull", name: "tritonserver:26.07-py3" } as const;
    const tritons = [0, 1].map(
      (gpu) =>
        new TritonServer(stack, `triton-${gpu}`, {
          host,
          ...parts,
          server: { kind: "tritonserver", image },
          backend: "tensorrt",
          ports: { http: 8010 + 10 * gpu, grpc: 8011 + 10 * gpu, metrics: 8012 + 10 * gpu },
          gpus: [gpu],
          expose: "loopback",
        }),
    );
    const backend = { kind: "triton", upstreams: tritons } as const;
    server = new EmbedServer(stack, "embed", {
      host,
      image: parts.tools,
      backend,
      port: 8002,
      expose: "loopback",
    });
  });
  if (server === undefined) throw new Error("not built");
  return { ...result, server, container: result.at("test/embed/container") };
}

const settingsOf = (container: { env: string[] }) =>
  serverEnv.parse(
    Object.fromEntries(container.env.map((line) => line.split(/=(.*)/s).slice(0, 2))),
  );

test.each([
  [undefined, "http://otel:4318", "http/protobuf"],
  ["http://otel:4317", "http://otel:4317", "grpc"],
])("exports traces with the gRPC endpoint %s", (grpcEndpoint, endpoint, protocol) => {
  const tracing = { endpoint: "http://otel:4318", grpcEndpoint, ratio: 0.05 };
  const { env } = synthEmbed({}, { tracing }).container;
  expect(env.filter((it: string) => it.startsWith("OTEL_")).sort()).toEqual([
    `OTEL_EXPORTER_OTLP_ENDPOINT=${endpoint}`,
    `OTEL_EXPORTER_OTLP_PROTOCOL=${protocol}`,
    "OTEL_SERVICE_NAME=embed",
    "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
    "OTEL_TRACES_SAMPLER_ARG=0.05",
  ]);
});

test("fails on a collector that is not a URL", () => {
  const tracing = { endpoint: "otel:4318", ratio: 1 };
  expect(findings((stack) => embedIn(stack, hostIn(stack, { tracing })))).toEqual([
    "test/host: tracing.endpoint must be http://host:port or https://host:port, got 'otel:4318'",
  ]);
});

test("loads the model from a read-only mount", () => {
  const { container } = synthEmbed();
  expect(settingsOf(container)).toMatchObject({
    BACKEND: "onnxruntime",
    PORT: 8002,
    MODELS: defaultModels,
    MODEL_REPOSITORY: "/models",
  });
  expect(container.volumes).toEqual([
    {
      host_path: "/srv/models/openclip_vit_b32/1",
      container_path: "/models/openclip_vit_b32/1",
      read_only: true,
    },
  ]);
});

test("requests a GPU only for ONNX Runtime on a GPU host", () => {
  expect(synthEmbed().container.gpus).toBe("device=0");
  expect(synthEmbed({}, { accelerator: "cpu" }).container).not.toHaveProperty("gpus");
  expect(synthGateway().container).not.toHaveProperty("gpus");
});

test("requires the execution provider of its device", () => {
  const provider = (container: { env: string[] }) => settingsOf(container).EXECUTION_PROVIDER;
  expect(provider(synthEmbed().container)).toBe("cuda");
  expect(provider(synthEmbed({}, { accelerator: "cpu" }).container)).toBe("cpu");
  expect(provider(synthGateway().container)).toBe("cpu");
});

test("connects to its Triton servers over gRPC by their names on the network", () => {
  const { container, at } = synthGateway();
  expect(settingsOf(container)).toMatchObject({
    BACKEND: "triton",
    TRITON_GRPC_URLS: ["test-triton-0:8001", "test-triton-1:8001"],
    MODELS: defaultModels,
    TRITON_MODEL_KIND: "trt",
  });
  expect(at("test/triton-0/container").name).toBe("test-triton-0");
  expect(container.networks_advanced).toEqual(at("test/triton-0/container").networks_advanced);
});

test("does not depend on the containers of its Triton servers", () => {
  const { container, address } = synthGateway();
  const text = JSON.stringify(container);
  expect(container).not.toHaveProperty("depends_on");
  expect(text).not.toContain(address("test/triton-0/container"));
});

test("has time for the engine builds of its Triton servers", () => {
  const { container, at } = synthGateway();
  expect(at("test/triton-0/container").healthcheck.start_period).toBe("7m0s");
  expect(container.healthcheck.start_period).toBe("9m0s");
  const gate = at("test/embed/ready/healthy").provisioner[0]["local-exec"];
  expect(gate.command).toMatch(/ wait-healthy test-embed --timeout 603$/);
  expect(synthEmbed().container.healthcheck.start_period).toBe("2m0s");
});

const exposed = { expose: "all-interfaces", allowPlaintext: true } as const;
const tls = { certificate: "/etc/clipstack/tls/tls.crt", key: "/etc/clipstack/tls/tls.key" };

test("binds to the loopback interface unless it is exposed", () => {
  expect(synthEmbed({ port: 9000 }).container.ports).toEqual([
    { internal: 8002, external: 9000, ip: "127.0.0.1" },
  ]);
  expect(synthEmbed(exposed).container.ports[0].ip).toBe("0.0.0.0");
});

test("requires no key on the loopback interface", () => {
  const { container, server, json } = synthEmbed();
  expect(settingsOf(container)).toMatchObject({ ALLOW_ANONYMOUS: "true" });
  expect(server.service.authorization).toBeUndefined();
  expect(json).not.toHaveProperty("variable");
});

test("requires a key from a sensitive variable if it is exposed", () => {
  const { container, server, json } = synthEmbed(exposed);
  expect(container.env).toContain(`API_KEY=${expression("var.embed_api_key")}`);
  expect(settingsOf(container).ALLOW_ANONYMOUS).toBe("false");
  expect(json.variable.embed_api_key).toMatchObject({
    type: "string",
    sensitive: true,
    nullable: false,
    validation: [
      {
        condition: expression("length(var.embed_api_key) >= 16"),
        error_message: "The key must have at least 16 characters.",
      },
    ],
  });
  expect(json.variable.embed_api_key).not.toHaveProperty("default");
  expect(server.service.authorization).toBe("bearer");
});

test("serves HTTPS with files of the host, and mounts their folder so that a rename replaces them", () => {
  const { container, server, json } = synthEmbed({
    expose: "all-interfaces",
    tls,
    keys: "/etc/clipstack/keys.json",
  });
  expect(container.volumes).toEqual(
    expect.arrayContaining(
      ["/etc/clipstack/tls", "/etc/clipstack"].map((host_path) => ({
        host_path,
        container_path: `/host${host_path}`,
        read_only: true,
      })),
    ),
  );
  expect(container.env).toEqual(
    expect.arrayContaining([
      "TLS_CERT_FILE=/host/etc/clipstack/tls/tls.crt",
      "TLS_KEY_FILE=/host/etc/clipstack/tls/tls.key",
      "API_KEYS_FILE=/host/etc/clipstack/keys.json",
    ]),
  );
  expect(container.healthcheck.test.at(-1)).toBe("https://127.0.0.1:8002/readyz");
  expect(server.service.endpoints[0]?.url).toMatch(/^https:/);
  expect(server.service.authorization).toBe("bearer");
  // the key is in no state and in no variable of the container
  expect(json).not.toHaveProperty("variable");
  expect(JSON.stringify(container)).not.toMatch(/API_KEY=|ALLOW_ANONYMOUS|allow-plaintext/);
});

test("requires keys of a file on the loopback interface too", () => {
  const { container, server } = synthEmbed({ keys: "/etc/clipstack/keys.json" });
  expect(settingsOf(container).ALLOW_ANONYMOUS).toBe("false");
  expect(server.service.authorization).toBe("bearer");
});

test.each<[string, Partial<EmbedServerProps>, string]>([
  [
    "a public port without TLS",
    { expose: "all-interfaces" },
    "expose must be loopback unless tls is set, because requests would be sent in clear text; allowPlaintext: true exposes the port anyway, got 'all-interfaces'",
  ],
  [
    "a file in a folder that cannot be mounted",
    { keys: "/etc/keys.json" },
    "keys must be in a folder such as /etc/clipstack, because the container gets its folder, got '/etc/keys.json'",
  ],
])("rejects %s", (_, props, message) => {
  expect(findings((stack) => embedIn(stack, hostIn(stack), props))).toEqual([
    `test/embed: ${message}`,
  ]);
});

test("labels a container that may be exposed without TLS", () => {
  expect(synthEmbed(exposed).container.labels).toContainEqual({
    label: "clipstack.allow-plaintext",
    value: "true",
  });
});

test("checks its health with a program in its image", () => {
  expect(synthEmbed().container.healthcheck.test).toEqual([
    "CMD",
    "node",
    "/app/dist/healthcheck.js",
    "http://127.0.0.1:8002/readyz",
  ]);
});

test("outputs its endpoints, backend and model", () => {
  expect(synthEmbed({ port: 9000 }).server.service).toMatchObject({
    kind: "embed",
    backend: "onnxruntime",
    models: ["openclip-vit-b32"],
    modelKind: "fp32",
    endpoints: [
      { protocol: "embed-http", url: "http://127.0.0.1:9000", name: "embed-http" },
      { protocol: "metrics", url: "http://127.0.0.1:9000" },
    ],
  });
  expect(synthGateway().server.service).toMatchObject({
    backend: "triton",
    models: ["openclip-vit-b32"],
    modelKind: "trt",
  });
});

test("rejects a GPU that the host does not have", () => {
  expect(
    findings((stack) => {
      embedIn(stack, hostIn(stack), {}, [4]);
    }),
  ).toEqual(["test/embed: gpus must be 0 to 3 (host.count is 4), got 4"]);
});

test.each([
  ["embed", "backend.weights.modelKind must be fp32 unless backend.kind is triton, got 'u8'"],
  ["tensorrt", "weights.modelKind must be fp32 unless backend is onnxruntime, got 'u8'"],
  ["onnxruntime", undefined],
] as const)("fails on u8 files for servers that do not read them: %s", (server, problem) => {
  const found = findings((stack) => {
    const host = hostIn(stack);
    const { tools } = dependenciesIn(stack, host);
    const weights = new ModelWeights(stack, "u8", {
      ...{ host, tools, source: "host-path", modelRepository: "/srv/models", modelKind: "u8" },
    });
    const common = { host, tools, weights, gpus: [0] };
    if (server === "embed") {
      const backend = { kind: "onnxruntime", ...common } as const;
      return new EmbedServer(stack, "server", { host, image: tools, backend });
    }
    const ports = { http: 8010, grpc: 8011, metrics: 8012 };
    const triton = { server: { kind: "emulator" }, backend: server, ports } as const;
    return new TritonServer(stack, "server", { ...common, ...triton });
  });
  expect(found).toEqual(problem === undefined ? [] : [`test/server: ${problem}`]);
});

test("a gateway reads the SentencePiece model beside a text tower", () => {
  const { at } = synth((stack) => {
    const host = hostIn(stack);
    const { tools } = dependenciesIn(stack, host);
    const weights = new ModelWeights(stack, "siglip", {
      host,
      tools,
      source: "host-path",
      modelRepository: "/srv/models",
      models: [modelCatalogue.get("siglip2-base-224")!],
    });
    const triton = new TritonServer(stack, "triton", {
      host,
      tools,
      weights,
      server: { kind: "emulator" },
      backend: "onnxruntime",
      ports: { http: 8010, grpc: 8011, metrics: 8012 },
      gpus: [0],
    });
    const backend = { kind: "triton", upstreams: [triton] } as const;
    new EmbedServer(stack, "embed", { host, image: tools, backend });
  });
  const { env, volumes } = at("test/embed/container");
  expect(env).toContain('MODELS=["siglip2-base-224"]');
  expect(volumes).toEqual([
    {
      host_path: "/srv/models/siglip2_base_224_text/1",
      container_path: "/models/siglip2_base_224_text/1",
      read_only: true,
    },
  ]);
});
