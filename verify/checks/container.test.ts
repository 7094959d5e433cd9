import { describe, expect, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { declaredContainer } from "../../artefact/declared-container.ts";
import type { InspectedContainer, Inspection } from "../../artefact/docker-inspect.ts";
import { dockerDocument, volumesDocument } from "../../artefact/test-artefact.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openService } from "../../target/service/service-under-test.ts";
import { declaredBody, imageId, inspected, moduleFolder } from "../test-containers.ts";
import { checkContainer } from "./container.ts";
import { type DeclaredBlock, declaredBlocks } from "./declared-blocks.ts";
import { checkContainerState } from "./start.ts";
import { checkWeights } from "./weights.ts";
import { checkDeployedService } from "./wiring.ts";

function blockOf(changes: Readonly<Record<string, unknown>> = {}): DeclaredBlock {
  const body = { ...declaredBody, ...changes };
  return {
    address: "docker_container.triton",
    image: "docker_image.triton",
    declared: declaredContainer.parse(body),
  };
}

function inspection(...containers: readonly InspectedContainer[]): Inspection {
  return { ok: true, containers: new Map(containers.map((it) => [it.Name, it])) };
}

const state = { ids: new Map([["docker_image.triton", imageId]]), names: new Map() };

/** Findings for a container with changed options. */
function findingsOf(
  change?: Parameters<typeof inspected>[0],
  declared = blockOf(),
): readonly string[] {
  return checkContainer("one", declared, inspection(inspected(change)), state, moduleFolder).map(
    ({ outcome, message }) => `${outcome}: ${message}`,
  );
}

describe("the model file of a deployed environment", () => {
  const sha256 = "0123456789abcdef".repeat(4);

  function compared(deployed: string) {
    const artefact = parseArtefact(JSON.stringify(volumesDocument("")), "one.json");
    const found = ["embed", "triton-onnx"].map((service) =>
      inspected((container) => {
        container.Name = `/two-services-${service}`;
        container.Mounts = [
          {
            Type: "volume",
            Name: deployed,
            Source: "/var/lib/docker/volumes/x/_data",
            Destination: "/models/openclip_vit_b32/1",
            RW: false,
          },
        ];
      }),
    );
    const blocks = declaredBlocks({ ...artefact, file: "one.json", sha256: "" }, state);
    const reference = {
      spec: defaultModel,
      modality: "image" as const,
      file: "/project/model.onnx",
      subject: { name: "generated", sha256 },
    };
    return checkWeights("two-services", blocks, inspection(...found), [reference]).map(
      ({ id, service, outcome, message }) => `${id} ${service}: ${outcome}: ${message}`,
    );
  }

  test("fails once if it is not the reference file, with both checksums", () => {
    expect(compared("two-services-weights-aaaabbbbcccc")).toEqual([
      "parity embed: fail: the sha256 of the deployed model.onnx must start with 0123456789ab as the reference file /project/model.onnx, got aaaabbbbcccc",
    ]);
  });

  test("passes if it is the reference file", () => {
    expect(compared("two-services-weights-0123456789ab")).toEqual([
      "parity embed: pass: the deployed model.onnx is the reference file, sha256 0123456789ab",
    ]);
  });

  test("is not compared if the name of its volume has no checksum", () => {
    expect(compared("two-services-weights-missing")).toEqual([]);
  });
});

test("a container as declared passes, with the compared aspects", () => {
  expect(findingsOf()).toEqual([
    expect.stringMatching(
      /^pass: \d+ aspects match: user 1000:1000; capabilities drop ALL; add none; root file system read-only; security options no-new-privileges:true; restart policy unless-stopped; GPU request device 0; NVIDIA_VISIBLE_DEVICES 0; published ports 0\.0\.0\.0:8011 → 8001\/tcp, 127\.0\.0\.1:8010 → 8000\/tcp; memory no limit; shared memory 1024 MiB$/,
    ),
  ]);
});

type Change = NonNullable<Parameters<typeof inspected>[0]>;

const changes: readonly (readonly [string, Change, string])[] = [
  ["another user", (c) => (c.Config.User = ""), "user must be 1000:1000, got root"],
  [
    "an added capability",
    (c) => (c.HostConfig.CapAdd = ["CAP_SYS_ADMIN"]),
    "capabilities must be drop ALL; add none, got drop ALL; add SYS_ADMIN",
  ],
  [
    "capabilities that were not dropped",
    (c) => (c.HostConfig.CapDrop = null),
    "capabilities must be drop ALL; add none, got drop none; add none",
  ],
  [
    "a writable root",
    (c) => (c.HostConfig.ReadonlyRootfs = false),
    "root file system must be read-only, got writable",
  ],
  [
    "no security options",
    (c) => (c.HostConfig.SecurityOpt = null),
    "security options must be no-new-privileges:true, got none",
  ],
  ["all privileges", (c) => (c.HostConfig.Privileged = true), "privileges must be none, got all"],
  [
    "another restart policy",
    (c) => (c.HostConfig.RestartPolicy = { Name: "on-failure", MaximumRetryCount: 3 }),
    "restart policy must be unless-stopped, got on-failure:3",
  ],
  [
    "another GPU",
    (c) => (c.HostConfig.DeviceRequests = [{ DeviceIDs: ["1"], Capabilities: [["gpu"]] }]),
    "GPU request must be device 0, got device 1",
  ],
  [
    "all GPUs",
    (c) => (c.HostConfig.DeviceRequests = [{ Count: -1, Capabilities: [["gpu"]] }]),
    "GPU request must be device 0, got all",
  ],
  ["no GPU", (c) => (c.HostConfig.DeviceRequests = null), "GPU request must be device 0, got none"],
  [
    "a device of the host",
    (c) => (c.HostConfig.Devices = [{ PathOnHost: "/dev/kmsg" }]),
    "devices must be none, got /dev/kmsg",
  ],
  [
    "other GPUs in its environment",
    (c) => (c.Config.Env = ["NVIDIA_VISIBLE_DEVICES=all", "TRITON_MODEL_KIND=fp32", "API_KEY=x"]),
    "NVIDIA_VISIBLE_DEVICES must be 0, got all",
  ],
  [
    "a variable with another value, which is not printed",
    (c) => (c.Config.Env = ["NVIDIA_VISIBLE_DEVICES=0", "TRITON_MODEL_KIND=secret", "API_KEY=x"]),
    "TRITON_MODEL_KIND must be fp32, got another value",
  ],
  [
    "a secret that is not set",
    (c) => (c.Config.Env = ["NVIDIA_VISIBLE_DEVICES=0", "TRITON_MODEL_KIND=fp32"]),
    "API_KEY must be set, got not set",
  ],
  [
    "a publicly reachable port",
    (c) =>
      (c.NetworkSettings.Ports = {
        ...c.NetworkSettings.Ports,
        "8000/tcp": [{ HostIp: "0.0.0.0", HostPort: "8010" }],
      }),
    "published ports must be 0.0.0.0:8011 → 8001/tcp, 127.0.0.1:8010 → 8000/tcp, got 0.0.0.0:8010 → 8000/tcp, 0.0.0.0:8011 → 8001/tcp",
  ],
  [
    "another image",
    (c) => (c.Image = "sha256:other"),
    `image must be ${imageId}, got sha256:other`,
  ],
  [
    "a disabled health check",
    (c) => (c.Config.Healthcheck = { Test: ["NONE"] }),
    "health check must be CMD curl -fsS http://localhost:8000/v2/health/ready (every 5 s, timeout 4 s, 6 retries, 120 s to start), got NONE (every 0 s, timeout 0 s, 0 retries, 0 s to start)",
  ],
  [
    "a memory limit",
    (c) => (c.HostConfig.Memory = 2 ** 30),
    "memory must be no limit, got 1024 MiB",
  ],
  [
    "less shared memory",
    (c) => (c.HostConfig.ShmSize = 64 * 2 ** 20),
    "shared memory must be 1024 MiB, got 64 MiB",
  ],
  [
    "the network of the host",
    (c) => (c.NetworkSettings.Networks = { host: {} }),
    "networks must be clipstack, got host",
  ],
  [
    "the processes of the host",
    (c) => (c.HostConfig.PidMode = "host"),
    "processes must be its own, got host",
  ],
  [
    "an undeclared folder",
    (c) => c.Mounts?.push({ Type: "bind", Source: "/", Destination: "/host", RW: true }),
    "mounts must be /engine-cache of one-engines; /models/openclip_vit_b32 of /project/model_repository/openclip_vit_b32, read-only, got /engine-cache of one-engines; /host of /; /models/openclip_vit_b32 of /project/model_repository/openclip_vit_b32, read-only",
  ],
  [
    "writable weights",
    (c) => {
      const [first] = c.Mounts ?? [];
      if (first !== undefined) first.RW = true;
    },
    "mounts must be /engine-cache of one-engines; /models/openclip_vit_b32 of /project/model_repository/openclip_vit_b32, read-only, got /engine-cache of one-engines; /models/openclip_vit_b32 of /project/model_repository/openclip_vit_b32",
  ],
  [
    "another command",
    (c) => (c.Config.Cmd = ["sleep", "1"]),
    "command must be tritonserver --model-repository=/models, got sleep 1",
  ],
  ["less time to stop", (c) => (c.Config.StopTimeout = 1), "stop timeout must be 35 s, got 1 s"],
  [
    "another label",
    (c) => (c.Config.Labels = {}),
    "label clipstack.service must be triton, got not set",
  ],
];
test.each(changes)("fails on %s", (_name, change, message) => {
  expect(findingsOf((raw) => void change(raw))).toEqual([`fail: ${message}`]);
});

test("reports every difference", () => {
  const changed = findingsOf((raw) => {
    raw.Config.User = "0:0";
    raw.HostConfig.ReadonlyRootfs = false;
  });
  expect(changed).toEqual([
    "fail: user must be 1000:1000, got 0:0",
    "fail: root file system must be read-only, got writable",
  ]);
});

test("never prints the value of a variable that Terraform sets", () => {
  const findings = findingsOf((raw) => {
    raw.Config.User = "0:0";
  });
  expect(JSON.stringify([findings, findingsOf()])).not.toContain("never-shown");
});

test("parses a GPU request by count, by UUID and for all GPUs", () => {
  const requested = (request: object, gpus: string) =>
    findingsOf((raw) => {
      raw.HostConfig.DeviceRequests = [{ Capabilities: [["gpu"]], ...request }];
    }, blockOf({ gpus }));
  for (const [request, gpus] of [
    [{ Count: 2 }, "2"],
    [{ Count: -1 }, "all"],
    [{ DeviceIDs: ["GPU-8a56a4bc"] }, "device=GPU-8a56a4bc"],
  ] as const) {
    expect(requested(request, gpus)).toEqual([expect.stringMatching(/^pass/)]);
  }
  expect(requested({ Count: 1 }, "2")).toEqual(["fail: GPU request must be 2 GPUs, got 1 GPUs"]);
});

test("fails if NVIDIA's runtime is missing", () => {
  expect(findingsOf(undefined, blockOf({ gpus: undefined, runtime: "nvidia" }))).toEqual([
    "fail: GPU request must be none, got device 0",
    "fail: runtime must be nvidia, got runc",
  ]);
});

test("fails on a container that replaced the one of Terraform", () => {
  const ids = new Map([...state.ids, ["docker_container.triton", "d1".repeat(32)]]);
  const [result] = checkContainer(
    "one",
    blockOf(),
    inspection(inspected()),
    { ...state, ids },
    moduleFolder,
  );
  expect(result).toMatchObject({
    outcome: "fail",
    message: "must be container d1d1d1d1d1d1 of the Terraform state, got c0c0c0c0c0c0",
  });
});

test("fails if the engine is unreachable", () => {
  const down: Inspection = { ok: false, message: "Docker does not answer at unix:///nowhere" };
  const [result] = checkContainer("one", blockOf(), down, state, moduleFolder);
  expect(result).toMatchObject({ outcome: "fail", message: down.message });
  expect(checkContainerState("one", blockOf(), down).outcome).toBe("skip");
});

const now = Date.parse("2026-11-21T17:01:00Z");
const stateOf = (change?: Change, changed = {}) => {
  const { outcome, message } = checkContainerState(
    "one",
    blockOf(changed),
    inspection(inspected((raw) => void change?.(raw))),
    now,
  );
  return `${outcome}: ${message}`;
};

test("a healthy service passes, with its uptime", () => {
  expect(stateOf()).toBe("pass: running and healthy for 60 s");
  expect(stateOf((raw) => (raw.RestartCount = 2))).toBe(
    "pass: running and healthy for 60 s, restarted 2 times",
  );
});

test("an exited service fails, with the reason", () => {
  expect(
    stateOf((raw) => {
      raw.State.Status = "exited";
      raw.State.ExitCode = 137;
      raw.State.OOMKilled = true;
    }),
  ).toBe("fail: must be running, got exited, ran out of memory, exit code 137");
});

test("an unhealthy service fails, with the output of its probe", () => {
  expect(
    stateOf((raw) => {
      raw.State.Health = {
        Status: "unhealthy",
        Log: [{ ExitCode: 1, Output: "curl: (7) Failed to connect\n" }],
      };
    }),
  ).toBe("fail: must be healthy, got unhealthy: curl: (7) Failed to connect");
});

test("a one-shot container passes if it succeeded and fails otherwise", () => {
  const once = { must_run: false };
  const ended =
    (code: number): Change =>
    (raw) => {
      raw.State.Status = "exited";
      raw.State.ExitCode = code;
    };
  expect(stateOf(ended(0), once)).toBe("pass: exited with code 0");
  expect(stateOf(ended(1), once)).toBe("fail: must exit with code 0, got exit code 1");
});

test("fails on a missing container", () => {
  const result = checkContainerState("one", blockOf(), inspection(), now);
  expect(result).toMatchObject({
    outcome: "fail",
    message: "container 'one-triton' must exist",
    resource: "docker_container.triton (container 'one-triton')",
  });
});

test("finds a container by the name in Terraform's state if the declared name is an expression", () => {
  const document = dockerDocument();
  const body = document.resource.docker_container?.embed;
  if (body !== undefined) body.name = `two-${"$"}{substr(uuid(), 0, 8)}`;
  const artefact = {
    ...parseArtefact(JSON.stringify(document), "cdk.tf.json"),
    file: "cdk.tf.json",
    sha256: "",
  };
  const names = new Map([["docker_container.embed", "two-a7c492b3"]]);
  const named = (known: typeof names) =>
    declaredBlocks(artefact, { ids: new Map(), names: known }).map(({ declared }) => declared.name);
  expect(named(names)).toEqual(["two-a7c492b3", "two-services-triton-onnx"]);
});

test("fails on a service deployed with other settings", () => {
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "embed");
  if (workload === undefined) throw new Error("no embed server");
  const service = openService("one", workload, [defaultModel], [], []);
  const [endpoint] = workload.service.endpoints;
  if (endpoint === undefined) throw new Error("no endpoint");
  const moved = { ...endpoint, url: "http://127.0.0.1:9002" };
  expect(checkDeployedService(service, workload.service)).toEqual([]);
  expect(
    checkDeployedService(service, { ...workload.service, endpoints: [moved] })[0],
  ).toMatchObject({
    outcome: "fail",
    message:
      "endpoints must be embed-http http://127.0.0.1:8002, metrics http://127.0.0.1:8002 as in the synthesized file, got embed-http http://127.0.0.1:9002",
  });
  expect(checkDeployedService(service, undefined)[0]).toMatchObject({
    message: "must be deployed, because it is in the synthesized file",
  });
});
