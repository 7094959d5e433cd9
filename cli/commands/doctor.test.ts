import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import {
  type HostRequirements,
  hostRequirementsVariable,
} from "../../constructs/docker/host-requirements.ts";
import { clusterRequirementsVariable } from "../../constructs/kubernetes/cluster-requirements.ts";
import { clipstack, pathWith, standIns } from "../test-programs.ts";
import { requirementsIn } from "./doctor.ts";

const requirements: HostRequirements = {
  schema: 1,
  environment: "single-gpu",
  docker: "unix:///nowhere/docker.sock",
  ports: [{ service: "embed", setting: "port", port: 8002, address: "127.0.0.1" }],
  disk: [],
  files: [],
};
const noFile = { file: "stacks/a/cdk.tf.json", sha256: "" };
const programs = standIns();
const empty = mkdtempSync(join(tmpdir(), "clipstack-doctor-"));
symlinkSync(process.execPath, join(empty, "node"));
afterAll(() => {
  programs.remove();
  rmSync(empty, { recursive: true, force: true });
});

/** Terraform JSON with a host check. */
const artefact = (triggers: unknown) =>
  JSON.stringify({
    resource: {
      terraform_data: {
        other: { input: 1 },
        check: {
          triggers_replace: triggers,
          provisioner: [{ "local-exec": { environment: { [hostRequirementsVariable]: "x" } } }],
        },
      },
    },
  });

function doctor(changes: Partial<HostRequirements>, path: string, ...args: readonly string[]) {
  return clipstack(["doctor", "single-gpu", ...args], {
    PATH: path,
    [hostRequirementsVariable]: JSON.stringify({ ...requirements, ...changes }),
  });
}

test("reports a missing docker command line", async () => {
  const { code, stdout, stderr } = await doctor({}, empty);
  expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  expect(stdout).toBe(`single-gpu: 1 problem on unix:///nowhere/docker.sock
the docker command line must be installed on this machine
  fix: install the client, for example with 'apt-get install docker-cli'; the engine may be on another machine`);
});

describe("on the default engine of the docker command line", () => {
  const own = { docker: undefined };

  test("prints the DOCKER_HOST for Terraform if a Docker context selects the engine", async () => {
    programs.put("docker", 'echo "unix:///home/me/.docker/run/docker.sock"');
    const { code, stdout } = await doctor(own, pathWith(programs.folder));
    expect(code).toBe(1);
    expect(stdout).toBe(`single-gpu: 1 problem on unix:///home/me/.docker/run/docker.sock
Docker contexts are not read by Terraform's Docker provider, got a context for unix:///home/me/.docker/run/docker.sock
  fix: run 'export DOCKER_HOST=unix:///home/me/.docker/run/docker.sock'`);
  });

  test("prints a fix without a setting if the engine does not respond", async () => {
    programs.put(
      "docker",
      'case "$*" in *context*) exit 1;; esac; echo "Cannot connect to the Docker daemon" >&2; exit 1',
    );
    const { code, stdout } = await doctor(own, pathWith(programs.folder));
    expect(code).toBe(1);
    expect(stdout).toContain("Docker does not respond at unix:///var/run/docker.sock\n");
    expect(stdout).toContain("or set DOCKER_HOST to its endpoint");
  });
});

describe("over ssh", () => {
  const over = { docker: "ssh://gpu@gpu-1:2222" };

  test("prints a fix if ssh requires a password, without a prompt", async () => {
    programs.put(
      "ssh",
      `case "$*" in *BatchMode=yes*) ;; *) exit 99;; esac
echo "gpu@gpu-1: Permission denied (publickey,password)." >&2; exit 255`,
    );
    const { code, stdout } = await doctor(over, pathWith(programs.folder));
    expect(code).toBe(1);
    expect(stdout).toBe(`single-gpu: 1 problem on ssh://gpu@gpu-1:2222
ssh -p 2222 gpu@gpu-1 must work without a password, and the host rejected the key
  fix: install a key with 'ssh-copy-id -p 2222 gpu@gpu-1', or run 'ssh-add' if the key has a passphrase; then 'ssh -o BatchMode=yes -p 2222 gpu@gpu-1 true' must work`);
  });

  test("prints a fix for an unknown host key", async () => {
    programs.put("ssh", 'echo "Host key verification failed." >&2; exit 255');
    const { code, stdout } = await doctor(over, pathWith(programs.folder));
    expect(code).toBe(1);
    expect(stdout).toContain(
      "the host key of -p 2222 gpu@gpu-1 is unknown to ssh or has changed\n  fix: run 'ssh -p 2222 gpu@gpu-1' once, and compare",
    );
  });

  test("prints the error of ssh otherwise", async () => {
    programs.put("ssh", 'echo "ssh: Could not resolve hostname gpu-1" >&2; exit 255');
    const { code, stdout } = await doctor(over, pathWith(programs.folder));
    expect(code).toBe(1);
    expect(stdout).toContain("failed: ssh: Could not resolve hostname gpu-1\n");
  });
});

test("prints only the report with --json", async () => {
  const { code, stdout, stderr } = await doctor({}, empty, "--json");
  expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  expect(JSON.parse(stdout)).toEqual({
    schema: 1,
    environment: "single-gpu",
    docker: "unix:///nowhere/docker.sock",
    ready: false,
    problems: [expect.objectContaining({ code: "docker-command" })],
    notes: [],
  });
});

test("writes the report with --output, and fails if it cannot", async () => {
  const { code, stderr } = await doctor({}, empty, "--output", "/nowhere/report.json");
  expect(code).toBe(2);
  expect(stderr).toBe("clipstack: --output /nowhere/report.json cannot be written: ENOENT");
});

test("fails in one line on invalid requirements", async () => {
  const { code, stderr } = await clipstack(["doctor", "single-gpu"], {
    [hostRequirementsVariable]: '{"schema":2}',
  });
  expect(code).toBe(2);
  expect(stderr).toMatch(
    /^clipstack: CLIPSTACK_HOST_REQUIREMENTS: invalid host requirements: schema must be /,
  );
  expect(stderr.split("\n")).toHaveLength(1);
});

test("fails in one line on an unknown environment", async () => {
  writeFileSync(
    join(empty, "clipstack.json"),
    JSON.stringify({ schema: 1, stacks: { a: noFile } }),
  );
  const { code, stderr } = await clipstack(["doctor", "nowhere", "--no-synth"], {
    CDKTF_OUTDIR: empty,
  });
  expect(code).toBe(2);
  expect(stderr).toBe("clipstack: environment must be one of a, got 'nowhere'");
});

test("notes ports that another environment of the same Docker endpoint publishes", async () => {
  const outdir = mkdtempSync(join(tmpdir(), "clipstack-doctor-"));
  const stackOf = (environment: string) => {
    const file = `${environment}.json`;
    const text = artefact({ ...requirements, environment });
    writeFileSync(join(outdir, file), text);
    return { file, sha256: createHash("sha256").update(text).digest("hex") };
  };
  const stacks = { a: stackOf("a"), b: stackOf("b") };
  writeFileSync(join(outdir, "clipstack.json"), JSON.stringify({ schema: 1, stacks }));
  const { stdout } = await clipstack(["doctor", "b", "--no-synth"], {
    CDKTF_OUTDIR: outdir,
    PATH: empty,
  });
  expect(stdout).toContain(
    "note: b and a share port 8002 of unix:///nowhere/docker.sock: deploy one at a time, or change one of them\n",
  );
});

test("shows examples with --help", async () => {
  const { code, stdout } = await clipstack(["doctor", "--help"]);
  expect(code).toBe(0);
  expect(stdout).toContain("$ npx clipstack doctor single-gpu");
});

describe("an artefact", () => {
  test("has the requirements in its host check", () => {
    expect(requirementsIn(artefact(requirements), "file")).toEqual({
      of: "host",
      needs: requirements,
    });
  });

  test("without a check is rejected", () => {
    const none = JSON.stringify({ resource: { docker_container: {} } });
    expect(() => requirementsIn(none, "cdk.tf.json")).toThrow(
      "cdk.tf.json: must contain a host or cluster check",
    );
    expect(() => requirementsIn("{", "cdk.tf.json")).toThrow("cdk.tf.json: must be JSON");
  });

  test("has the requirements in its cluster check", () => {
    const needs = {
      schema: 1,
      environment: "k8s-gpu",
      kubeconfig: "~/.kube/config",
      context: "gpu",
      namespace: "clipstack",
      createNamespace: true,
      apis: [],
      objects: [],
    };
    const text = artefact(needs).replace(hostRequirementsVariable, clusterRequirementsVariable);
    expect(requirementsIn(text, "file")).toEqual({ of: "cluster", needs });
  });

  test("with invalid requirements is rejected with the path", () => {
    expect(() => requirementsIn(artefact({ ...requirements, disk: 1 }), "cdk.tf.json")).toThrow(
      /^cdk\.tf\.json: invalid host requirements: disk must be /,
    );
  });
});
