import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import {
  type HostRequirements,
  hostRequirementsVariable,
} from "../../constructs/docker/host-requirements.ts";
import { testDocker } from "../../tests/deploy/test-docker.ts";
import { noSshd, startSshd, type TestSshd } from "../host/test-sshd.ts";
import { clipstack, pathWith, standIns } from "../test-programs.ts";

/**
 * Runs against a real Docker engine, also over a real ssh. Only GPUs are simulated: `nvidia-smi` on the PATH prints the output of
 * the real one.
 */
const { docker, missing } = await testDocker();
const image = process.env.CLIPSTACK_NODE_IMAGE ?? "node:24.21.0-bookworm-slim";

const programs = standIns();
const folder = mkdtempSync(join(tmpdir(), "clipstack-doctor-"));
afterAll(() => {
  programs.remove();
  rmSync(folder, { recursive: true, force: true });
});

const [port = 0, other = 0] = await freePorts(2);
const requirements: HostRequirements = {
  schema: 1,
  environment: "single-gpu",
  docker: docker.endpoint,
  ports: [{ service: "embed", setting: "port", port, address: "127.0.0.1" }],
  disk: [{ what: "images", miB: 1 }],
  files: [],
};
const gpu: NonNullable<HostRequirements["gpu"]> = {
  name: "rtx-4080",
  label: "NVIDIA GeForce RTX 4080",
  count: 1,
  vramMiB: 16_376,
  computeCapability: "8.9",
  dataCentre: false,
  uses: [{ service: "embed", gpus: [0], miB: 1_105 }],
  drivers: [{ image: "nvcr.io/nvidia/tritonserver:26.07-py3", cuda: 13, branch: 580 }],
};
const nvidiaSmi = (...lines: readonly string[]) =>
  programs.put("nvidia-smi", lines.map((line) => `echo '${line}'`).join("\n"));
const rtx4080 = (index: number, driver = "580.95.05", memory = "16376") =>
  `${index}, GPU-0000000${index}, ${memory}, ${memory}, 8.9, ${driver}, NVIDIA GeForce RTX 4080`;

async function doctor(changes: Partial<HostRequirements> = {}, path = pathWith(programs.folder)) {
  const { code, stdout, stderr } = await clipstack(["doctor", "single-gpu", "--json"], {
    PATH: path,
    [hostRequirementsVariable]: JSON.stringify({ ...requirements, ...changes }),
  });
  expect(stderr).toBe("");
  const report = JSON.parse(stdout);
  const problems: string[] = report.problems.map(
    (it: { code: string; message: string }) => `${it.code}: ${it.message}`,
  );
  return { code, report, problems };
}

describe.skipIf(missing !== "")(`doctor${missing && ` (skipped: ${missing})`}`, () => {
  test("passes on a host that meets all requirements", async () => {
    const { code, report } = await doctor();
    expect(report.problems).toEqual([]);
    expect(code).toBe(0);
    expect(report.ready).toBe(true);
    expect(report.facts.engine.rootDir).toMatch(/^\//);
    expect(report.facts.freeMiB).toBeGreaterThan(1);
  });

  test("prints one line without --json", async () => {
    const { code, stdout } = await clipstack(["doctor", "single-gpu"], {
      [hostRequirementsVariable]: JSON.stringify(requirements),
    });
    expect(code).toBe(0);
    expect(stdout).toBe(`single-gpu: ${docker.endpoint} is ready`);
  });

  test("fails on an endpoint that does not respond", async () => {
    const { code, problems } = await doctor({ docker: "unix:///nowhere/docker.sock" });
    expect(code).toBe(1);
    expect(problems).toEqual([
      "docker-endpoint: Docker does not respond at unix:///nowhere/docker.sock",
    ]);
    const closed = await doctor({ docker: `tcp://127.0.0.1:${other}` });
    expect(closed.problems).toEqual([
      `docker-endpoint: Docker does not respond at tcp://127.0.0.1:${other}`,
    ]);
  });

  test("requires no disk space for an existing image", async () => {
    const [name = ""] = await docker.lines(
      ...["image", "ls", "--filter", "dangling=false", "--format", "{{.Repository}}:{{.Tag}}"],
    );
    const disk = [{ what: name, miB: 1_000_000_000, image: name }];
    expect((await doctor({ disk })).problems).toEqual([]);
  });

  test("fails on missing weights, on this machine or on the host", async () => {
    const what = "the weights";
    const files = (["here", "host"] as const).map((on) => ({ what, on, path: "nowhere.onnx" }));
    expect((await doctor({ files })).problems).toEqual([
      "file: the weights must be on this machine, but nowhere.onnx does not exist",
      "file: the weights must be on the host, but nowhere.onnx does not exist",
    ]);
    const there = [{ what, on: "host" as const, path: "package.json" }];
    expect((await doctor({ files: there })).problems).toEqual([]);
  });

  describe("with a port in use by a program", () => {
    let server: Server;
    beforeAll(async () => {
      server = createServer();
      await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    });
    afterAll(() => server.close());

    test("names the program", async () => {
      const { code, problems } = await doctor();
      expect(code).toBe(1);
      expect(problems).toEqual([
        expect.stringMatching(
          new RegExp(
            `^port: port ${port} of the host \\(embed, port\\) must be free, in use by .*(pid ${process.pid})`,
          ),
        ),
      ]);
    });

    test("notes that ports were not checked without ss", async () => {
      programs.put("ss", "exit 127");
      const { code, report } = await doctor();
      rmSync(join(programs.folder, "ss"));
      expect(code).toBe(0);
      expect(report.notes).toEqual([
        "ports were compared only with those of containers: ss (package iproute2) is not installed on the host",
      ]);
    });
  });

  describe("with a port in use by a container", () => {
    const name = `clipstack-test-doctor-${process.pid}`;
    beforeAll(async () => {
      const labels = ["--label", "clipstack.environment=multi-gpu-4x"];
      const published = ["--publish", `127.0.0.1:${port}:80`];
      await docker.run("run", "-d", "--name", name, ...labels, ...published, image, "sleep", "600");
    });
    afterAll(() => docker.run("rm", "--force", name).then(() => {}));

    test("names the container and its environment", async () => {
      const { code, problems } = await doctor();
      expect(code).toBe(1);
      expect(problems).toEqual([
        `port: port ${port} of the host (embed, port) must be free, in use by container ${name} of multi-gpu-4x`,
      ]);
    });
  });

  describe("with GPUs", () => {
    /** Makes `docker info` list the NVIDIA runtime, whatever the engine has. */
    beforeAll(() => {
      const real = process.env.PATH?.split(":").map((it) => join(it, "docker")) ?? [];
      programs.put(
        "docker",
        `for real in ${real.join(" ")}; do [ -x "$real" ] && break; done
case "$*" in *" info "*) "$real" "$@" | sed 's/"nvidia":{/"other":{/; s/"Runtimes":{/"Runtimes":{"nvidia":{},/' ;; *) exec "$real" "$@" ;; esac`,
      );
    });
    afterAll(() => rmSync(join(programs.folder, "docker")));

    test("passes with the declared GPUs", async () => {
      nvidiaSmi(rtx4080(0));
      const { code, report } = await doctor({ gpu });
      expect(report.problems).toEqual([]);
      expect(code).toBe(0);
      expect(report.facts.nvidia.gpus).toHaveLength(1);
    });

    test("fails on a missing or failing driver", async () => {
      programs.put("nvidia-smi", "exit 127");
      expect((await doctor({ gpu })).problems).toEqual([
        "nvidia-driver: the NVIDIA driver must be installed on the host, but nvidia-smi is missing",
      ]);
      const failure = "Failed to initialize NVML: Driver/library version mismatch";
      programs.put("nvidia-smi", `echo '${failure}'; exit 18`);
      expect((await doctor({ gpu })).problems).toEqual([
        `nvidia-driver: nvidia-smi must work on the host, but fails: ${failure}`,
      ]);
    });
  });

  const noSsh = noSshd();
  describe.skipIf(noSsh !== "")(`over ssh${noSsh && ` (skipped: ${noSsh})`}`, () => {
    let sshd: TestSshd;
    beforeAll(async () => {
      sshd = await startSshd({ DOCKER_HOST: docker.endpoint, PATH: pathWith(programs.folder) });
    });
    afterAll(() => sshd?.stop());

    test("runs the same commands on the host", async () => {
      nvidiaSmi(rtx4080(0, "580.95.05", "8188"));
      const files = [{ what: "it's", on: "host" as const, path: "/no where/it's.onnx" }];
      const { code, problems, report } = await doctor(
        { docker: sshd.endpoint, gpu, files },
        sshd.path,
      );
      expect(code).toBe(1);
      expect(problems).toEqual([
        expect.stringContaining("gpu-memory: GPU 0 "),
        "file: it's must be on the host, but /no where/it's.onnx does not exist",
      ]);
      expect(report.facts.freeMiB).toBeGreaterThan(1);
    });

    test("fails without a password prompt if the host rejects the user", async () => {
      const { code, problems } = await doctor({ docker: sshd.rejectedUser }, sshd.path);
      expect(code).toBe(1);
      expect(problems).toEqual([
        expect.stringMatching(/^ssh: ssh .* must work without a password, and/),
      ]);
    });

    test("fails on an unknown host key", async () => {
      const { problems } = await doctor(
        { docker: sshd.endpoint.replace("127.0.0.1", "localhost") },
        sshd.path,
      );
      expect(problems).toEqual([expect.stringMatching(/^ssh: the host key of /)]);
    });
  });
});
