import { describe, expect, test } from "vitest";
import type { HostRequirements } from "../../constructs/docker/host-requirements.ts";
import type { HostFacts } from "./host-facts.ts";
import { judgeHost } from "./host-findings.ts";
import type { Gpu } from "./host-parse.ts";

const gpu: Gpu = {
  index: 0,
  uuid: "GPU-8a56a4bc",
  name: "NVIDIA GeForce RTX 4080",
  memoryMiB: 16_376,
  freeMiB: 15_956,
  computeCapability: "8.9",
  driver: "580.95.05",
};
const gpuNeeds: NonNullable<HostRequirements["gpu"]> = {
  name: "rtx-4080",
  label: "NVIDIA GeForce RTX 4080",
  count: 1,
  vramMiB: 16_376,
  computeCapability: "8.9",
  dataCentre: false,
  uses: [{ service: "embed", gpus: [0], miB: 1_105 }],
  drivers: [{ image: "tritonserver:26.07-py3", cuda: 13, branch: 580 }],
};
const needs: HostRequirements = {
  schema: 1,
  environment: "single-gpu",
  docker: "unix:///var/run/docker.sock",
  gpu: gpuNeeds,
  ports: [{ service: "embed", setting: "port", port: 8002, address: "127.0.0.1" }],
  disk: [{ what: "tritonserver:26.07-py3", miB: 20_480, image: "tritonserver:26.07-py3" }],
  files: [{ path: "model.onnx", on: "here", what: "the weights" }],
};
const facts: HostFacts = {
  engine: {
    version: "28.3.0",
    osType: "linux",
    architecture: "x86_64",
    rootDir: "/var/lib/docker",
    runtimes: ["nvidia", "runc"],
    cdiDevices: [],
  },
  published: [],
  listeners: [],
  images: [],
  freeMiB: 100_000,
  files: [true],
  nvidia: { gpus: [gpu], hook: false },
};

const judge = (need: Partial<HostRequirements> = {}, fact: Partial<HostFacts> = {}) =>
  judgeHost({ ...needs, ...need }, { ...facts, ...fact });
/** Returns the messages and requires that all findings are problems. */
function messages(need: Partial<HostRequirements> = {}, fact: Partial<HostFacts> = {}) {
  const { problems, notes } = judge(need, fact);
  expect(notes).toEqual([]);
  for (const { fix } of problems) expect(fix).toMatch(/^.+[^.]$/);
  return problems.map(({ code, message }) => `${code}: ${message}`);
}
const withGpu = (changes: Partial<typeof gpuNeeds>) => ({ gpu: { ...gpuNeeds, ...changes } });
const withGpus = (gpus: NonNullable<HostFacts["nvidia"]>["gpus"]) => ({
  nvidia: { gpus, hook: false },
});

test("reports no problems on a complete host", () => {
  expect(judge()).toEqual({ problems: [], notes: [] });
});

describe("Docker", () => {
  const engine = (changes: Partial<HostFacts["engine"]>) => ({
    engine: { ...facts.engine, ...changes },
  });

  test("fails on an old version", () => {
    expect(messages({}, engine({ version: "19.03.15" }))).toEqual([
      "docker-version: Docker must be 20.10 or newer, got 19.03.15",
    ]);
    expect(messages({}, engine({ version: "20.10.24+dfsg1" }))).toEqual([]);
  });

  test("fails on another platform", () => {
    expect(messages({}, engine({ architecture: "ppc64le" }))).toEqual([
      "platform: the architecture of the host must be x86_64 or aarch64, got ppc64le",
    ]);
    expect(messages({}, engine({ osType: "windows" }))).toEqual([
      "platform: Docker must run Linux containers, got windows containers",
    ]);
  });
});

describe("NVIDIA", () => {
  const withoutRuntime = { engine: { ...facts.engine, runtimes: ["runc"] } };

  test("requires the runtime nvidia for several GPUs, despite a hook", () => {
    const four = withGpu({
      uses: [{ service: "triton-onnx", gpus: [0, 1, 2, 3], miB: 1_105 }],
      count: 1,
    });
    const gpus = [0, 1, 2, 3].map((index) => ({ ...gpu, index }));
    expect(messages(four, { ...withoutRuntime, ...withGpus(gpus) })).toEqual([
      "nvidia-runtime: Docker must have the runtime 'nvidia' for the 4 GPUs of triton-onnx, got runc",
    ]);
  });

  test("accepts the hook, or a CDI device, in place of the runtime when each service takes one GPU", () => {
    const hook = { nvidia: { gpus: [gpu], hook: true } };
    expect(messages({}, { ...withoutRuntime, ...hook })).toEqual([]);
    const cdi = {
      engine: { ...facts.engine, runtimes: ["runc"], cdiDevices: ["nvidia.com/gpu=0"] },
    };
    expect(messages({}, { ...cdi, nvidia: { gpus: [gpu], hook: false } })).toEqual([]);
  });

  test("fails without runtime, hook and CDI devices", () => {
    expect(messages({}, { ...withoutRuntime, nvidia: { gpus: [gpu], hook: false } })).toEqual([
      "nvidia-runtime: Docker must support GPUs, but has neither the runtime 'nvidia' nor NVIDIA's hook or CDI devices",
    ]);
  });

  test("is not required on a CPU", () => {
    const cpu = { gpu: undefined };
    expect(messages(cpu, { ...withoutRuntime, nvidia: undefined })).toEqual([]);
  });

  test("fails with a missing or broken driver", () => {
    expect(messages({}, withGpus("no-driver"))).toEqual([
      "nvidia-driver: the NVIDIA driver must be installed on the host, but nvidia-smi is missing",
    ]);
    expect(messages({}, withGpus({ failed: "Driver/library version mismatch" }))).toEqual([
      "nvidia-driver: nvidia-smi must work on the host, but fails: Driver/library version mismatch",
    ]);
  });

  test("fails with a driver whose nvidia-smi does not know the compute capability", () => {
    const failed = 'Field "compute_cap" is not a valid field to query.';
    expect(messages({}, withGpus({ failed }))).toEqual([
      `nvidia-driver: the NVIDIA driver must be 580 or newer for tritonserver:26.07-py3, got one before 510: nvidia-smi fails with '${failed}'`,
    ]);
    expect(messages(withGpu({ drivers: [] }), withGpus({ failed }))).toEqual([
      `nvidia-driver: the NVIDIA driver must be 510 or newer, got one before 510: nvidia-smi fails with '${failed}'`,
    ]);
  });
});

describe("GPUs", () => {
  test("fail once if there are fewer than declared", () => {
    const four = withGpu({
      count: 4,
      uses: [0, 1, 2, 3].map((index) => ({
        service: `triton-${index}`,
        gpus: [index],
        miB: 1_105,
      })),
    });
    expect(messages(four, withGpus([gpu, { ...gpu, index: 1 }]))).toEqual([
      "gpu-count: the host must have 4 GPUs (host.count), got 2",
    ]);
    expect(messages({}, withGpus([]))).toEqual([
      "gpu-count: the host must have 1 GPUs (host.count), got 0",
    ]);
  });

  test("fail on a missing UUID, with the existing ones", () => {
    const other = withGpu({ uses: [{ service: "embed", gpus: ["GPU-other"], miB: 1_105 }] });
    expect(messages(other)).toEqual([
      "gpu-missing: GPU-other of embed must exist on the host, got 1 GPU: GPU-8a56a4bc",
    ]);
    expect(
      messages(withGpu({ uses: [{ service: "embed", gpus: ["GPU-8a56a4bc"], miB: 1_105 }] })),
    ).toEqual([]);
  });

  test("note a MIG device, which the list of GPUs does not contain", () => {
    const mig = withGpu({ uses: [{ service: "embed", gpus: ["MIG-8a56a4bc"], miB: 1_105 }] });
    expect(judge(mig)).toEqual({
      problems: [],
      notes: [
        "MIG-8a56a4bc of embed was not checked: 'nvidia-smi -L' on the host lists MIG devices",
      ],
    });
  });

  test("fail with less memory than declared, apart from the share for ECC", () => {
    expect(messages({}, withGpus([{ ...gpu, memoryMiB: 12_282 }]))).toEqual([
      "gpu-memory: GPU 0 (NVIDIA GeForce RTX 4080) must have the memory of rtx-4080 (host.gpu), 16376 MiB, got 12282 MiB",
    ]);
    expect(messages({}, withGpus([{ ...gpu, memoryMiB: 15_352 }]))).toEqual([]);
  });

  test("fail if other processes use the memory, unless they belong to this environment", () => {
    const busy = withGpus([{ ...gpu, freeMiB: 476 }]);
    expect(messages({}, busy)).toEqual([
      "gpu-memory: GPU 0 must have about 1105 MiB free, got 476 of 16376 MiB (required: embed 1105)",
    ]);
    const published = [
      { port: 8002, address: "127.0.0.1", container: "a", environment: "single-gpu" },
    ];
    expect(messages({}, { ...busy, published })).toEqual([]);
  });

  test("fail on another model", () => {
    const a10 = { ...gpu, name: "NVIDIA A10", computeCapability: "8.6", memoryMiB: 23_028 };
    expect(messages({}, withGpus([a10]))).toEqual([
      "gpu-kind: GPU 0 must have compute capability 8.9 of rtx-4080 (NVIDIA GeForce RTX 4080, host.gpu), got 8.6 (NVIDIA A10)",
    ]);
  });

  test("that no service uses are not checked", () => {
    expect(messages({}, withGpus([gpu, { ...gpu, index: 1, memoryMiB: 2_000 }]))).toEqual([]);
  });

  test("fail if the driver is older than the image's CUDA requires", () => {
    const old = withGpus([{ ...gpu, driver: "570.86.15" }]);
    expect(messages({}, old)).toEqual([
      "nvidia-driver: the NVIDIA driver must be 580 or newer for CUDA 13 of tritonserver:26.07-py3, got 570.86.15",
    ]);
    expect(judge(withGpu({ dataCentre: true }), old)).toEqual({
      problems: [],
      notes: [
        "the NVIDIA driver must be 580 or newer for CUDA 13 of tritonserver:26.07-py3, got 570.86.15; on a data-centre GPU the compatibility package of the image may suffice",
      ],
    });
  });
});

describe("ports", () => {
  const listen = (address: string, process?: string) => ({
    listeners: [{ port: 8002, address, process }],
  });

  test("fail if a program uses one", () => {
    expect(messages({}, listen("127.0.0.1", "nginx (pid 812)"))).toEqual([
      "port: port 8002 of the host (embed, port) must be free, in use by nginx (pid 812)",
    ]);
    expect(messages({}, listen("0.0.0.0"))).toEqual([
      "port: port 8002 of the host (embed, port) must be free, in use by another program",
    ]);
  });

  test.each(["*", "::", "0.0.0.0", "127.0.0.1", "::ffff:127.0.0.1"])(
    "on the loopback interface collide with %s",
    (address) => {
      expect(messages({}, listen(address))).toHaveLength(1);
    },
  );

  test.each(["::1", "127.0.0.53", "192.0.2.1"])(
    "on the loopback interface do not collide with %s",
    (address) => {
      expect(messages({}, listen(address))).toEqual([]);
    },
  );

  test("on all interfaces collide with every IPv4 address", () => {
    const ports = [{ ...needs.ports[0]!, address: "0.0.0.0" }];
    expect(messages({ ports }, listen("192.0.2.1"))).toHaveLength(1);
    expect(messages({ ports }, listen("::1"))).toEqual([]);
  });

  test("fail if a container uses one, with the name of its environment", () => {
    const published = [{ port: 8002, address: "127.0.0.1", container: "web" }];
    expect(
      judge({}, { published, ...listen("127.0.0.1", "docker-proxy (pid 3)") }).problems,
    ).toEqual([
      {
        code: "port",
        message: "port 8002 of the host (embed, port) must be free, in use by container web",
        fix: "stop it ('docker stop web'), or change port of embed to a free port such as 18002",
      },
    ]);
    const other = [
      { ...published[0]!, container: "multi-gpu-4x-embed", environment: "multi-gpu-4x" },
    ];
    expect(judge({}, { published: other }).problems).toEqual([
      {
        code: "port",
        message:
          "port 8002 of the host (embed, port) must be free, in use by container multi-gpu-4x-embed of multi-gpu-4x",
        fix: "destroy multi-gpu-4x first ('npx cdktf destroy multi-gpu-4x'), or change port of embed to a free port such as 18002",
      },
    ]);
  });

  test("of the environment's own containers are free", () => {
    const published = [
      {
        port: 8002,
        address: "127.0.0.1",
        container: "single-gpu-embed",
        environment: "single-gpu",
      },
    ];
    expect(messages({}, { published, ...listen("127.0.0.1", "docker-proxy (pid 3)") })).toEqual([]);
  });

  test("are compared only with containers if listeners cannot be read", () => {
    const unknown = { listeners: { unknown: "ss is not there" } };
    expect(judge({}, unknown)).toEqual({
      problems: [],
      notes: ["ports were compared only with those of containers: ss is not there"],
    });
  });
});

describe("disk", () => {
  test("fails if the required space exceeds the free space, with its parts", () => {
    const disk = [...needs.disk, { what: "the weights", miB: 512 }];
    expect(messages({ disk }, { freeMiB: 3_072 })).toEqual([
      "disk: /var/lib/docker must have 20.5 GiB free, got 3.0 (required: tritonserver:26.07-py3 20.0 + the weights 0.5)",
    ]);
  });

  test("is not needed for an existing image", () => {
    expect(messages({}, { freeMiB: 10, images: ["tritonserver:26.07-py3"] })).toEqual([]);
  });

  test("is a note if it cannot be read", () => {
    expect(judge({}, { freeMiB: { unknown: "no df" } })).toEqual({
      problems: [],
      notes: ["free space of Docker's data folder was not checked: no df"],
    });
  });
});

test.each([
  [
    "m/dinov2_small/1/model.onnx",
    "write it with 'npx clipstack model pull <model>' (docs/models.md names the command of each model), copy your own file to this path, or for tests 'npx clipstack model generate <model>' (a text tower with '--modality text') and allowRandomWeights: true",
  ],
  ["m/siglip2_base_224_text/1/tokenizer.model", "copy it to this path"],
])("fixes the missing file %s of this machine", (path, fix) => {
  const files = [{ path, on: "here" as const, what: "the file" }];
  expect(judge({ files }, { files: [false] }).problems).toMatchObject([{ fix }]);
});

test("names a GPU that nvidia-smi cannot read, and one in MIG mode", () => {
  const judged = (fact: Partial<Gpu>) =>
    messages({}, { nvidia: { gpus: [{ ...gpu, ...fact }], hook: true } });
  expect(judged({ failure: "[Unknown Error]", memoryMiB: Number.POSITIVE_INFINITY })).toEqual([
    "nvidia-driver: GPU 0 (NVIDIA GeForce RTX 4080) of embed must report its memory, but nvidia-smi prints '[Unknown Error]'",
  ]);
  expect(judged({ mig: "enabled" })).toEqual([
    "gpu-kind: GPU 0 (NVIDIA GeForce RTX 4080) of embed must be a whole GPU, but its MIG mode is enabled",
  ]);
});

describe("random weights", () => {
  const randomWeights = ["openclip-vit-b32", "my-vit"];
  const message =
    "the weights of openclip-vit-b32, my-vit must be trained, but are random, so that embeddings are meaningless";

  test("are rejected by model", () => {
    expect(judge({}, { randomWeights })).toEqual({
      problems: [
        {
          code: "random-weights",
          message,
          fix: "run 'npx clipstack model pull openclip-vit-b32', or set allowRandomWeights: true in the environment",
        },
      ],
      notes: [],
    });
  });

  test("are a note if the environment allows them, and in a kind cluster", () => {
    const allowed = { problems: [], notes: [message] };
    expect(judge({ allowRandomWeights: true }, { randomWeights })).toEqual(allowed);
    const kind = { cluster: "clipstack", images: [] };
    const kindFacts = { kind: "v0.30.0", clusters: [] };
    expect(judge({ kind }, { randomWeights, kind: kindFacts })).toEqual(allowed);
  });
});

test("fails if a file does not exist at the path of the deployment", () => {
  expect(messages({}, { files: [false] })).toEqual([
    "file: the weights must be on this machine, but model.onnx does not exist",
  ]);
});

test("reports every problem at once", () => {
  const { problems } = judge(
    {},
    {
      ...withGpus([{ ...gpu, memoryMiB: 1, driver: "525.1" }]),
      listeners: [{ port: 8002, address: "*" }],
      freeMiB: 0,
      files: [false],
    },
  );
  expect(problems.map(({ code }) => code)).toEqual([
    "gpu-memory",
    "nvidia-driver",
    "port",
    "disk",
    "file",
  ]);
});

describe("a kind cluster", () => {
  const kind = { cluster: "clipstack", images: ["clipstack/embed:1"] };
  const own: Partial<HostRequirements> = { gpu: undefined, kind };
  const tools = { kind: "v0.30.0", clusters: [] };
  const there: Partial<HostFacts> = { kind: tools, images: ["clipstack/embed:1"] };

  test("passes if kind and the image exist", () => {
    expect(messages(own, there)).toEqual([]);
  });

  test("requires kind", () => {
    expect(messages(own, { ...there, kind: { kind: undefined, clusters: [] } })).toEqual([
      "kind: kind must be installed on this machine",
    ]);
    expect(
      messages(own, { ...there, kind: { ...tools, kind: { unknown: "no such file" } } }),
    ).toEqual(["kind: kind must work on this machine, but fails: no such file"]);
  });

  test("requires the image on this machine", () => {
    expect(messages(own, { ...there, images: [] })).toEqual([
      "image: the image clipstack/embed:1 (embed.image) must exist on this machine, because it is not pulled",
    ]);
  });

  test("owns its port; that of another cluster is in use", () => {
    const port = { port: 8002, address: "127.0.0.1" };
    const of = (container: string) => ({ ...there, published: [{ ...port, container }] });
    expect(messages(own, of("clipstack-control-plane"))).toEqual([]);
    expect(messages(own, of("other-control-plane"))).toEqual([
      "port: port 8002 of the host (embed, port) must be free, in use by container other-control-plane",
    ]);
  });

  test("is a note if a cluster of the same name exists", () => {
    const { problems, notes } = judge(own, {
      ...there,
      kind: { ...tools, clusters: ["clipstack"] },
    });
    expect(problems).toEqual([]);
    expect(notes).toEqual([
      expect.stringMatching(/^the kind cluster 'clipstack' already exists; /),
    ]);
  });
});

test("a sum of memory limits above the memory of the host is a note, because limits are upper bounds", () => {
  const memory = [
    { service: "embed", miB: 3_328 },
    { service: "triton-onnx", miB: 4_608 },
  ];
  const { problems, notes } = judge({ memory }, { engine: { ...facts.engine, memoryMiB: 7_900 } });
  expect(problems).toEqual([]);
  expect(notes).toContainEqual(
    "the host should have 7.8 GiB of memory for the limits of its containers, got 7.7 (limits: embed 3.3 + triton-onnx 4.5): use a host with more memory, disable a service, or set memoryMiB of the services to what they need",
  );
});

test("the memory limits of all services fit the host, and its cores are those of the settings", () => {
  const memory = [
    { service: "embed", miB: 3_328 },
    { service: "triton-onnx", miB: 4_608 },
  ];
  const engine = { ...facts.engine, cores: 16, memoryMiB: 7_936 };
  expect(messages({ memory, cores: 16 }, { engine })).toEqual([]);
  expect(messages({ memory, cores: 32 }, { engine: { ...engine, memoryMiB: 4_096 } })).toEqual([
    "memory: the host must have 4.5 GiB of memory for the limits of its containers, got 4.0 (limits: embed 3.3 + triton-onnx 4.5)",
    "cores: the host must have 32 CPU cores (host.cores), got 16",
  ]);
});
