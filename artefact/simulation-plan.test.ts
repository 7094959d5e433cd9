import { expect, test } from "vitest";
import { parseArtefact } from "./artefact.ts";
import { planSimulation, shiftPort } from "./simulation-plan.ts";
import type { SimulationPlanOptions } from "./simulation-types.ts";
import {
  dockerDocument,
  kubernetesDocument,
  type TestDocument,
  volumesDocument,
} from "./test-artefact.ts";
import { describe } from "./workload.ts";

const firstFree = 50_000;

function planOf(document: TestDocument, changes: Partial<SimulationPlanOptions> = {}) {
  let next = firstFree;
  const artefact = {
    file: "cdk.tf.json",
    sha256: "",
    ...parseArtefact(JSON.stringify(document), "cdk.tf.json"),
  };
  return planSimulation(artefact, {
    moduleFolder: "/project/cdktf.out",
    modelRepository: "/project/model_repository",
    exists: () => true,
    temporaryFolder: "/tmp/run",
    portOffset: 0,
    freePort: () => next++,
    ...changes,
  });
}

const faultsOf = (document: TestDocument) =>
  planOf(document).faults.map(({ workload, message }) => `${describe(workload)}: ${message}`);

const container = (document: TestDocument, id: string) =>
  document.resource.docker_container?.[id] as Record<string, unknown>;

const instance = (plan: ReturnType<typeof planOf>, name: string) => {
  const found = plan.instances.find((it) => it.name === name);
  if (found === undefined) throw new Error(`no instance ${name}`);
  return found;
};

test("a container becomes one process on its published ports", () => {
  const plan = planOf(dockerDocument());
  expect(plan.faults).toEqual([]);
  expect(instance(plan, "two-services-triton-onnx").listeners).toEqual([
    { protocol: "oip-http", internal: 8000, local: 8010 },
    { protocol: "oip-grpc", internal: 8001, local: 8011 },
    { protocol: "metrics", internal: 8002, local: 8012 },
  ]);
});

test("the embed server has the container's environment with this machine's address, port and model", () => {
  expect(instance(planOf(dockerDocument()), "two-services-embed").env).toEqual({
    BACKEND: "onnxruntime",
    SHUTDOWN_GRACE_SECONDS: "20",
    HOST: "127.0.0.1",
    PORT: "8002",
    MODEL_REPOSITORY: "/tmp/run/two-services-embed",
  });
});

test("an embed server on CUDA runs on the CPU in the simulation, and a note records it", () => {
  const document = dockerDocument();
  container(document, "embed").env = ["BACKEND=onnxruntime", "EXECUTION_PROVIDER=cuda"];
  const plan = planOf(document);
  expect(instance(plan, "two-services-embed").env.EXECUTION_PROVIDER).toBe("cpu");
  expect(plan.notes).toEqual(["two-services-embed: runs the model on the CPU instead of CUDA"]);
});

test("an embed server has no authentication if its key is known only to Terraform, and a note records it", () => {
  const document = dockerDocument();
  container(document, "embed").env = ["BACKEND=onnxruntime", `API_KEY=$\{var.embed_api_key}`];
  const plan = planOf(document);
  expect(instance(plan, "two-services-embed").env).not.toHaveProperty("API_KEY");
  expect(plan.notes).toEqual([
    "two-services-embed: no authentication, because its key is known only to Terraform",
  ]);
});

/** `two-services` with the embed server replaced by a PyTorch baseline. */
function baselineDocument(): TestDocument {
  const document = dockerDocument();
  const [service] = document.output.environment.value.services;
  Object.assign(service!, {
    name: "pytorch",
    kind: "baseline",
    backend: "pytorch",
    endpoints: [{ protocol: "embed-http", url: "http://127.0.0.1:8006", name: "pytorch-http" }],
  });
  Object.assign(container(document, "embed"), {
    name: "two-services-pytorch",
    env: [
      "DEVICE=cuda",
      "MODEL_NAME=openclip-vit-b32",
      "MODEL_PATH=/models/openclip_vit_b32/1/model.onnx",
      "PORT=8006",
    ],
    ports: [{ internal: 8006, external: 8006, ip: "127.0.0.1" }],
    healthcheck: { test: ["CMD", "python", "-c", "…", "http://127.0.0.1:8006/readyz"] },
  });
  return document;
}

test("a PyTorch baseline runs on the CPU with the mounted weights", () => {
  const plan = planOf(baselineDocument());
  expect(plan.faults).toEqual([]);
  expect(plan.notes).toEqual(["two-services-pytorch: runs the model on the CPU instead of CUDA"]);
  expect(instance(plan, "two-services-pytorch")).toMatchObject({
    role: "baseline",
    args: [],
    readyUrl: "http://127.0.0.1:8006/readyz",
    env: {
      DEVICE: "cpu",
      HOST: "127.0.0.1",
      PORT: "8006",
      MODEL_PATH: "/project/model_repository/openclip_vit_b32/1/model.onnx",
    },
  });
});

test("a PyTorch baseline loads the chosen model file", () => {
  const modelFiles = new Map([["openclip-vit-b32", { image: "/tmp/tiny.onnx" }]]);
  const plan = planOf(baselineDocument(), { modelFiles, portOffset: 1_000 });
  expect(instance(plan, "two-services-pytorch").env).toMatchObject({
    MODEL_PATH: "/tmp/tiny.onnx",
    PORT: "9006",
  });
});

test("without PyTorch its baseline is left out, and a note gives the reason", () => {
  const plan = planOf(baselineDocument(), { noPytorch: "there is no PyTorch" });
  expect(plan.instances.map(({ name }) => name)).toEqual(["two-services-triton-onnx"]);
  expect(plan.targets.map(({ endpoint }) => endpoint.name)).not.toContain("pytorch-http");
  expect(plan.notes).toContain("two-services-pytorch is not run: there is no PyTorch");
});

test("a Triton server has the synthesized command, followed by this machine's addresses, ports and repository", () => {
  expect(instance(planOf(dockerDocument()), "two-services-triton-onnx").args).toEqual([
    "tritonserver",
    "--model-repository=/models",
    "--exit-timeout-secs=20",
    "--model-repository=/tmp/run/two-services-triton-onnx",
    "--http-address=127.0.0.1",
    "--http-port=8010",
    "--grpc-address=127.0.0.1",
    "--grpc-port=8011",
    "--metrics-address=127.0.0.1",
    "--metrics-port=8012",
  ]);
});

test("an emulator in place of tritonserver queues as much as it, and a deployed one keeps its bounds", () => {
  const document = dockerDocument();
  const envOf = () => instance(planOf(document), "two-services-triton-onnx").env;
  // 128 clients with 32 float32 images each; one client address may have three quarters
  expect(0.75 * Number(envOf().MAX_QUEUE_BYTES)).toBeGreaterThan(128 * 32 * 602_112);
  expect(Number(envOf().MAX_QUEUE_SIZE)).toBeGreaterThan(128 * 32);
  for (const service of document.output.environment.value.services) {
    if (service.kind === "triton") Object.assign(service, { server: "emulator" });
  }
  expect(envOf()).not.toHaveProperty("MAX_QUEUE_BYTES");
});

test("separately mounted models are assembled, outer folders first", () => {
  const document = dockerDocument();
  container(document, "triton").volumes = [
    { container_path: "/models/b/1", host_path: "/srv/a/1" },
    { container_path: "/models/b", host_path: "/srv/b" },
    { container_path: "/engine-cache", volume_name: "engines" },
  ];
  expect(instance(planOf(document), "two-services-triton-onnx").repository).toEqual({
    folder: "/tmp/run/two-services-triton-onnx",
    parts: [
      { path: "b", source: "/srv/b" },
      { path: "b/1", source: "/srv/a/1" },
    ],
    replacements: {},
  });
});

const severalModels = [
  { container_path: "/models/openclip_vit_b32/1", host_path: "/srv/a/1" },
  { container_path: "/models/dinov2_small/1", host_path: "/srv/b/1" },
];

test("an embed server with several models reads them from one assembled repository", () => {
  const document = dockerDocument();
  container(document, "embed").volumes = severalModels;
  const { env, repository } = instance(planOf(document), "two-services-embed");
  expect(env.MODEL_REPOSITORY).toBe("/tmp/run/two-services-embed");
  expect(repository).toEqual({
    folder: "/tmp/run/two-services-embed",
    parts: [
      { path: "dinov2_small/1", source: "/srv/b/1" },
      { path: "openclip_vit_b32/1", source: "/srv/a/1" },
    ],
    replacements: {},
  });
});

test("a named volume has the files that other containers put into it", () => {
  const plan = planOf(volumesDocument("the configuration"));
  expect(plan.faults).toEqual([]);
  expect(instance(plan, "two-services-embed").repository?.parts).toEqual([
    { path: "openclip_vit_b32/1", source: "/project/model_repository/openclip_vit_b32/1" },
  ]);
  const triton = instance(plan, "two-services-triton-onnx");
  expect(triton.args).toContain("--model-repository=/tmp/run/two-services-triton-onnx");
  expect(triton.repository?.parts).toEqual([
    {
      path: "openclip_vit_b32/1",
      source: "/project/model_repository/openclip_vit_b32/1",
    },
    { path: "openclip_vit_b32/configs", files: { "deployed.pbtxt": "the configuration" } },
  ]);
  expect(plan.notes).toEqual([
    "docker_container.weights is not run: the files that it puts into its volume are read from the artefact",
    "docker_container.config is not run: the files that it puts into its volume are read from the artefact",
  ]);
});

test("a volume for further versions of a model is empty", () => {
  const document = volumesDocument("the configuration");
  const triton = container(document, "triton") as { volumes: unknown[] };
  for (const name of ["openclip_vit_b32", "openclip_vit_b32.next"]) {
    triton.volumes.unshift({ container_path: `/models/${name}`, volume_name: "versions" });
  }
  const { notes, instances } = planOf(document);
  const without = planOf(volumesDocument("the configuration"));
  expect(instances.map(({ repository }) => repository)).toEqual(
    without.instances.map(({ repository }) => repository),
  );
  expect(notes).toEqual(without.notes);
});

test("weights inside the image are replaced by the project's, beside a configuration of the artefact", () => {
  const document = volumesDocument("the configuration");
  const triton = container(document, "triton") as { volumes: unknown[] };
  triton.volumes = triton.volumes.slice(1);
  const plan = planOf(document);
  expect(instance(plan, "two-services-triton-onnx").repository?.parts).toEqual([
    { path: "openclip_vit_b32/configs", files: { "deployed.pbtxt": "the configuration" } },
    {
      path: "openclip_vit_b32/1",
      source: "/project/model_repository/openclip_vit_b32/1",
    },
  ]);
  expect(plan.notes).toContain(
    "two-services-triton-onnx: no volume is mounted at /models/openclip_vit_b32/1; the project's model repository is used instead",
  );
});

test("an empty volume is replaced by the project's folder, and a note records it", () => {
  const document = volumesDocument("");
  delete document.resource.docker_container?.weights;
  expect(planOf(document).notes).toContain(
    "two-services-embed: the volume at /models/openclip_vit_b32/1 is on another host; the project's model repository is used instead",
  );
});

test("a configuration reload that is sent to another server is a fault", () => {
  const document = volumesDocument("");
  container(document, "triton").name = "two-services-triton";
  expect(faultsOf(document)).toContain(
    "docker_container.triton (container 'two-services-triton'): docker_container.config reloads its configuration at http://two-services-triton-onnx:8000, but it listens on http://two-services-triton:8000",
  );
});

test("a repository in one volume is used in place", () => {
  const document = dockerDocument();
  container(document, "triton").volumes = [{ container_path: "/models", host_path: "/srv/models" }];
  const triton = instance(planOf(document), "two-services-triton-onnx");
  expect(triton.repository).toBeUndefined();
  expect(triton.args).toContain("--model-repository=/srv/models");
});

test("a given model file replaces the model of every service", () => {
  const plan = planOf(dockerDocument(), {
    modelFiles: new Map([["openclip-vit-b32", { image: "/tiny.onnx" }]]),
  });
  const [embed, triton] = ["two-services-embed", "two-services-triton-onnx"].map((name) =>
    instance(plan, name),
  );
  expect(embed?.env.MODEL_REPOSITORY).toBe(embed?.repository?.folder);
  expect(embed?.repository?.replacements).toEqual({ openclip_vit_b32: "/tiny.onnx" });
  expect(triton?.repository?.replacements).toEqual({ openclip_vit_b32: "/tiny.onnx" });
});

test("a folder of another host is replaced by the project's, and a note records it", () => {
  const document = dockerDocument();
  container(document, "embed").volumes = [
    { container_path: "/models/openclip_vit_b32", host_path: "/srv/models/openclip_vit_b32" },
  ];
  const plan = planOf(document, {
    exists: (path) => path === "/project/model_repository/openclip_vit_b32",
  });
  expect(instance(plan, "two-services-embed").repository?.parts).toEqual([
    { path: "openclip_vit_b32", source: "/project/model_repository/openclip_vit_b32" },
  ]);
  expect(plan.notes).toEqual([
    "two-services-embed: /srv/models/openclip_vit_b32 is not on this machine; the project's model repository is used instead",
  ]);
});

test("a model inside the image is replaced by the project's, and a note records it", () => {
  const document = dockerDocument();
  container(document, "embed").volumes = [];
  expect(planOf(document).notes).toEqual([
    "two-services-embed: no volume is mounted at /models; the project's model repository is used instead",
  ]);
});

test("an offset moves every port of this machine", () => {
  const plan = planOf(dockerDocument(), { portOffset: 10_000 });
  expect(plan.hostPorts.map(({ port }) => port)).toEqual([18_002, 18_010, 18_011, 18_012]);
  expect(plan.targets.map(({ url }) => url)).toEqual([
    "http://127.0.0.1:18002",
    "http://127.0.0.1:18002",
    "http://127.0.0.1:18010",
    "127.0.0.1:18011",
    "http://127.0.0.1:18012",
  ]);
});

test("fails when an offset leaves the range of ports", () => {
  expect(() => shiftPort(8_002, 60_000)).toThrow(
    "--port-offset: port 8002 + 60000 must be 1 to 65535",
  );
  expect(() => shiftPort(8_002, -8_002)).toThrow(
    "--port-offset: port 8002 + -8002 must be 1 to 65535",
  );
  expect(shiftPort(8_002, -8_001)).toBe(1);
});

test("an unpublished port is mapped to a free one", () => {
  const document = dockerDocument();
  const triton = container(document, "triton");
  triton.ports = [
    { internal: 8000, external: 8010 },
    { internal: 8001, external: 8011 },
  ];
  document.output.environment.value.services[1]?.endpoints.pop();
  const plan = planOf(document);
  expect(plan.faults).toEqual([]);
  expect(instance(plan, "two-services-triton-onnx").listeners[2]?.local).toBe(firstFree);
});

test("the health check is sent to this machine's port", () => {
  const plan = planOf(dockerDocument(), { portOffset: 1 });
  expect(plan.instances.map(({ readyUrl }) => readyUrl)).toEqual([
    "http://127.0.0.1:8003/readyz",
    "http://127.0.0.1:8011/v2/health/ready",
  ]);
});

test("a gateway's Triton servers are found by container name", () => {
  const document = dockerDocument();
  container(document, "embed").env = [
    "BACKEND=triton",
    "TRITON_GRPC_URLS=two-services-triton-onnx:8001",
  ];
  const plan = planOf(document, { portOffset: 10 });
  expect(plan.faults).toEqual([]);
  expect(instance(plan, "two-services-embed").env.TRITON_GRPC_URLS).toBe("127.0.0.1:8021");
});

test("a Deployment becomes a process for each replica, behind one port", () => {
  const plan = planOf(kubernetesDocument(), { portOffset: 5 });
  expect(plan.instances.map(({ name, env }) => [name, env.PORT])).toEqual([
    ["embed #1", "50000"],
    ["embed #2", "50001"],
  ]);
  expect(plan.proxies).toMatchObject([{ port: 8_097, backends: [50_000, 50_001] }]);
  expect(plan.hostPorts).toEqual([{ port: 8_097, neededBy: "embed" }]);
});

test("a Service inside the cluster gets a free port of this machine that is forwarded to its replicas", () => {
  const document = kubernetesDocument();
  const [service] = document.output.environment.value.services;
  const deployment = document.resource.kubernetes_service_v1?.embed as Record<string, unknown>;
  deployment.metadata = { name: "embed-service", namespace: "clipstack" };
  deployment.spec = {
    selector: { "app.kubernetes.io/component": "embed" },
    port: [{ port: 80, target_port: "http" }],
  };
  const url = "http://embed-service.clipstack.svc:80";
  Object.assign(service ?? {}, {
    endpoints: [
      { protocol: "embed-http", url, name: "embed-http" },
      { protocol: "metrics", url },
    ],
  });
  const plan = planOf(document);
  expect(plan.faults).toEqual([]);
  expect(plan.proxies).toMatchObject([{ port: 50_002, backends: [50_000, 50_001] }]);
  expect(plan.targets.map((target) => target.url)).toEqual([
    "http://127.0.0.1:50002",
    "http://127.0.0.1:50002",
  ]);
});

test("endpoints of a proxy with TLS, which is not simulated, are the containers' own ports", () => {
  const document = dockerDocument();
  const [embed, triton] = document.output.environment.value.services;
  Object.assign(embed?.endpoints[0] ?? {}, { url: "https://gpu.example.com" });
  Object.assign(triton?.endpoints[0] ?? {}, { url: "https://gpu.example.com:9010" });
  const plan = planOf(document);
  expect(plan.faults).toEqual([]);
  expect(plan.targets.map(({ url }) => url)).toEqual(
    planOf(dockerDocument()).targets.map(({ url }) => url),
  );
  container(document, "embed").env = ["TLS_CERT_FILE=/host/tls.crt"];
  expect(faultsOf(document)).toContain(
    "docker_container.embed (container 'two-services-embed'): publishes 8002, but the environment's embed-http endpoint is https://gpu.example.com",
  );
});

test("a Service without the endpoint's port is a fault that lists its ports", () => {
  const document = kubernetesDocument();
  const [service] = document.output.environment.value.services;
  Object.assign(service ?? {}, {
    endpoints: [
      { protocol: "embed-http", url: "http://embed.clipstack.svc:81", name: "embed-http" },
    ],
  });
  expect(faultsOf(document)).toEqual([
    "kubernetes_deployment_v1.embed (Deployment 'embed'): publishes 8002, but the environment's embed-http endpoint is http://embed.clipstack.svc:81",
  ]);
});

const triton = "docker_container.triton (container 'two-services-triton-onnx')";
const embed = "docker_container.embed (container 'two-services-embed')";

const faults: readonly (readonly [string, (document: TestDocument) => void, readonly string[]])[] =
  [
    [
      "a published port that is not in the environment output",
      (it) => {
        container(it, "triton").ports = [
          { internal: 8000, external: 8019 },
          { internal: 8001, external: 8011 },
          { internal: 8002, external: 8012 },
        ];
      },
      [
        `${triton}: publishes 8019, 8011, 8012, but the environment's oip-http endpoint is http://127.0.0.1:8010`,
      ],
    ],
    [
      "a published port on which the container does not listen",
      (it) => {
        container(it, "triton").ports = [
          { internal: 8009, external: 8010 },
          { internal: 8001, external: 8011 },
          { internal: 8002, external: 8012 },
        ];
      },
      [`${triton}: publishes 8010 for its port 8009, but listens on 8000, 8001, 8002`],
    ],
    [
      "an environment variable with another port",
      (it) => {
        container(it, "embed").env = ["PORT=9000"];
      },
      [
        `${embed}: publishes 8002 for its port 8002, but listens on 9000`,
        `${embed}: its health check requests port 8002 (CMD node -e fetch("http://127.0.0.1:8002/readyz").then(() => {})), but it listens on 9000`,
      ],
    ],
    [
      "two ports that are swapped",
      (it) => {
        container(it, "triton").ports = [
          { internal: 8001, external: 8010 },
          { internal: 8000, external: 8011 },
          { internal: 8002, external: 8012 },
        ];
      },
      [
        `${triton}: serves oip-grpc at http://127.0.0.1:8010, but the environment declares oip-http`,
        `${triton}: serves oip-http at 127.0.0.1:8011, but the environment declares oip-grpc`,
      ],
    ],
    [
      "two containers on one port",
      (it) => {
        container(it, "triton").ports = [
          { internal: 8000, external: 8010 },
          { internal: 8001, external: 8011 },
          { internal: 8002, external: 8012 },
          { internal: 8002, external: 8002 },
        ];
      },
      [`${triton}: publishes port 8002, as does ${embed}`],
    ],
    [
      "a gateway that names a missing container",
      (it) => {
        container(it, "embed").env = ["BACKEND=triton", "TRITON_GRPC_URLS=triton:8001"];
      },
      [`${embed}: TRITON_GRPC_URLS names 'triton:8001', but no container is called 'triton'`],
    ],
    [
      "a gateway that names a port on which the Triton server does not listen",
      (it) => {
        container(it, "embed").env = [
          "BACKEND=triton",
          "TRITON_GRPC_URLS=two-services-triton-onnx:8011",
        ];
      },
      [
        `${embed}: TRITON_GRPC_URLS names 'two-services-triton-onnx:8011', but ${triton} does not listen on 8011`,
      ],
    ],
    [
      "a gateway on another network",
      (it) => {
        const gateway = container(it, "embed");
        gateway.env = ["BACKEND=triton", "TRITON_GRPC_URLS=two-services-triton-onnx:8001"];
        gateway.networks_advanced = [{ name: "other" }];
      },
      [
        `${embed}: TRITON_GRPC_URLS names 'two-services-triton-onnx:8001', but ${triton} shares no network with it`,
      ],
    ],
  ];
test.each(faults)("names the container of %s", (_name, change, messages) => {
  const document = dockerDocument();
  change(document);
  expect(faultsOf(document)).toEqual(messages);
});

test("fails on an unknown Triton option, naming the container", () => {
  const document = dockerDocument();
  container(document, "triton").command = ["tritonserver", "--model-repo=/models"];
  expect(() => planOf(document)).toThrow(
    `${triton}: command: unrecognized option '--model-repo=/models'`,
  );
});

test("fails on a command of another program, naming the container", () => {
  const document = dockerDocument();
  container(document, "triton").command = ["sleep", "1"];
  expect(() => planOf(document)).toThrow(
    `${triton}: command must be empty or start with 'tritonserver', got 'sleep 1'`,
  );
});

test("fails on an invalid setting of the embed server, naming the container", () => {
  const document = dockerDocument();
  container(document, "embed").env = ["PORT=http"];
  expect(() => planOf(document)).toThrow(`${embed}: env: PORT must be a number`);
});
