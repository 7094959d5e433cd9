import { createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { type StandIns, standIns } from "../../cli/test-programs.ts";
import { testDocker } from "./test-docker.ts";
import { nvidiaSmi, type TestProject, testProject } from "./test-project.ts";

/**
 * Each violated precondition stops `cdktf deploy` before anything is created, with the messages of `clipstack doctor`
 * (cli/commands/doctor.integ.test.ts has more of them).
 */
const { docker, missing } = await testDocker();

describe.skipIf(missing !== "")(`a deploy${missing && ` (skipped: ${missing})`}`, async () => {
  let programs: StandIns;
  let project: TestProject;
  let server: Server;
  let before: readonly string[];
  const [port = 0] = await freePorts(1);

  beforeAll(async () => {
    before = await own();
    programs = standIns();
    project = await testProject({ docker, path: programs.folder });
    server = createServer();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  });
  afterAll(async () => {
    await project?.remove();
    programs?.remove();
    server?.close();
  });

  /** Objects of this environment on the engine. */
  const own = async () => (await docker.contents()).filter((it) => it.includes("multi-gpu-4x"));

  /** Deploys and returns the output without Terraform's line breaks. */
  async function failedDeploy(settings: Readonly<Record<string, unknown>>): Promise<string> {
    await project.settings("multi-gpu-4x", { network: "clipstack-test-multi-gpu-4x", ...settings });
    const { code, output } = await project.deploy("multi-gpu-4x");
    expect(code, output).not.toBe(0);
    expect(await own()).toEqual(before);
    return output.replace(/[│╷╵\s]+/g, " ");
  }

  test("stops at an endpoint that does not respond", async () => {
    const host = { docker: "unix:///nowhere/docker.sock" };
    const output = await failedDeploy({ accelerator: "cpu", host });
    expect(output).toContain("Docker does not respond at unix:///nowhere/docker.sock");
    expect(output).toContain("fix: start Docker");
    expect(output).not.toContain("at async"); // a stack trace
  });

  test("reports a port in use and a full disk together", async () => {
    programs.put("df", "printf 'Filesystem 1K Used Available\\n/dev/a 9 9 1048576 99%% /\\n'");
    const output = await failedDeploy({
      accelerator: "cpu",
      host: { docker: docker.endpoint },
      embed: { port },
    });
    programs.put("df", 'exec /bin/df "$@"');
    expect(output).toContain(`port ${port} of the host (embed, port) must be free, in use by`);
    expect(output).toMatch(/must have [\d.]+ GiB free, got 1\.0/);
    expect(output).toContain("multi-gpu-4x: 2 problems on");
  });

  test("stops on fewer GPUs or less GPU memory than declared, or without GPUs", async () => {
    const gpu = {
      accelerator: "gpu",
      host: { docker: docker.endpoint, gpu: "rtx-4080", count: 4 },
      // its file in half precision is missing
      tritonTrt: { enabled: false },
    };
    programs.put("nvidia-smi", nvidiaSmi([{ uuid: "GPU-0" }, { uuid: "GPU-1", memoryMiB: 8_188 }]));
    const output = await failedDeploy(gpu);
    expect(output).toContain("the host must have 4 GPUs (host.count), got 2");
    expect(output).toContain(
      "GPU 1 (NVIDIA GeForce RTX 4080) must have the memory of rtx-4080 (host.gpu), 16376 MiB, got 8188 MiB",
    );
    programs.put("nvidia-smi", "exit 127");
    expect(await failedDeploy(gpu)).toContain("the NVIDIA driver must be installed on the host");
  });

  test("stops if Docker has no NVIDIA runtime", async () => {
    const real = (process.env.PATH ?? "").split(":").map((folder) => `${folder}/docker`);
    programs.put(
      "docker",
      `for real in ${real.join(" ")}; do [ -x "$real" ] && break; done
case "$*" in *" info "*) "$real" "$@" | sed 's/"nvidia":{/"other":{/' ;; *) exec "$real" "$@" ;; esac`,
    );
    programs.put("nvidia-smi", nvidiaSmi([0, 1, 2, 3].map((index) => ({ uuid: `GPU-${index}` }))));
    const host = { docker: docker.endpoint, gpu: "rtx-4080", count: 4 };
    const output = await failedDeploy({ accelerator: "gpu", host, tritonTrt: { enabled: false } });
    expect(output).toContain("Docker must have the runtime 'nvidia' for the 4 GPUs of triton-onnx");
    expect(output).toContain("install NVIDIA Container Toolkit");
  });
});
