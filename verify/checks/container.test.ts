import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { parseArtefact } from "../../artefact/artefact.ts";
import { declaredContainer } from "../../artefact/declared-container.ts";
import type { InspectedContainer, Inspection } from "../../artefact/docker-inspect.ts";
import { dockerDocument, volumesDocument } from "../../artefact/test-artefact.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openService } from "../../target/service/target-service.ts";
import { declaredBody, imageId, inspected, moduleFolder, setFields } from "../test-containers.ts";
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

interface Case {
  readonly with: string;
  readonly set: Readonly<Record<string, unknown>>;
  readonly message: string;
}
const cases: readonly Case[] = parse(readFileSync("verify/checks/container.cases.yaml", "utf8"));

test.each(cases)("fails on $with", ({ set, message }) => {
  expect(findingsOf((raw) => setFields(raw, set))).toEqual([`fail: ${message}`]);
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
