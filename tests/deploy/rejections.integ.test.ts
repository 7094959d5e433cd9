import { rm } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { type StandIns, standIns } from "../../cli/test-programs.ts";
import type { ShippedEnvironment } from "../../stacks/settings/environment-files.ts";
import { testDocker } from "./test-docker.ts";
import {
  builtImage,
  nvidiaSmi,
  onlyEmbed,
  type TestProject,
  testProject,
  tritonPortsOf,
} from "./test-project.ts";

/**
 * Missing requirements of a host stop `cdktf deploy` before anything is created there. Stand-ins on the PATH print recorded output for
 * GPUs and a full disk.
 */

const { docker, missing } = await testDocker();
/** Engine without NVIDIA's runtime. */
const { CLIPSTACK_TEST_DOCKER_HOST_NO_NVIDIA: plain } = process.env;
const uuid = "GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46";

describe.skipIf(missing !== "")(
  `a deployment rejects${missing && ` (skipped: ${missing})`}`,
  () => {
    let programs: StandIns;
    let project: TestProject;
    let port: number;
    let triton: number;
    let before: readonly string[];

    beforeAll(async () => {
      programs = standIns();
      project = await testProject({ docker, path: programs.folder });
      [port = 0, triton = 0] = await freePorts(2);
      before = await docker.contents();
    });
    beforeEach(() => programs.put("nvidia-smi", nvidiaSmi([{ uuid }])));
    afterAll(async () => {
      await project?.remove();
      programs?.remove();
    });

    const image = "nvcr.io/nvidia/tritonserver:26.07-py3";
    const onGpu = (endpoint: string) => ({
      host: { docker: endpoint },
      embed: { enabled: false, image: builtImage() },
      tritonOnnx: { image, ports: tritonPortsOf(triton) },
      tritonTrt: { enabled: false },
    });
    const onCpu = () => onlyEmbed(docker, port);
    const refuse = async (
      environment: ShippedEnvironment,
      settings: Readonly<Record<string, unknown>>,
      ...messages: readonly string[]
    ) => {
      await project.settings(environment, settings);
      const { code, output } = await project.deploy(environment);
      expect(code, output).not.toBe(0);
      // Terraform wraps and indents the lines
      const words = output.replace(/[\s│╷╵]+/g, " ");
      for (const message of messages) expect(words).toContain(message);
      expect(words).not.toContain(" at async "); // a stack trace
    };

    test("an endpoint that does not respond", async () => {
      await refuse(
        "single-gpu",
        { ...onCpu(), host: { docker: "unix:///nowhere/docker.sock" } },
        "Docker does not respond at unix:///nowhere/docker.sock",
        "fix: start Docker",
      );
    });

    test("a host without the NVIDIA driver", async () => {
      programs.put("nvidia-smi", "exit 127");
      const message = "the NVIDIA driver must be installed on the host";
      await refuse("single-gpu", onGpu(docker.endpoint), message);
    });

    test.skipIf(plain === undefined)(
      `no NVIDIA runtime${plain === undefined ? " (skipped: CLIPSTACK_TEST_DOCKER_HOST_NO_NVIDIA names no engine without one)" : ""}`,
      async () => {
        await refuse(
          "single-gpu",
          onGpu(plain!),
          "Docker must support GPUs, but has neither the runtime 'nvidia'",
        );
      },
    );

    test("fewer GPUs than declared", async () => {
      await refuse(
        "multi-gpu-4x",
        {
          host: { docker: docker.endpoint, count: 4 },
          embed: { port, image: builtImage() },
          tritonOnnx: { image, ports: tritonPortsOf(triton) },
          tritonTrt: { enabled: false },
        },
        "the host must have 4 GPUs (host.count), got 1",
      );
    });

    test("a port in use", async () => {
      const server = createServer().listen(port, "127.0.0.1");
      try {
        await refuse(
          "single-gpu",
          onCpu(),
          `port ${port} of the host (embed, port) must be free, in use by`,
          "or change port of embed",
        );
      } finally {
        server.close();
      }
    });

    test("a full disk", async () => {
      const header = "Filesystem 1024-blocks Used Available Capacity Mounted on";
      programs.put("df", `echo '${header}'; echo '/dev/sda1 102400000 102000000 102400 99% /'`);
      try {
        await refuse("single-gpu", onCpu(), "GiB free, got 0.1 (required: ");
      } finally {
        await rm(join(programs.folder, "df"));
      }
    });

    test("without creating anything on the host", async () => {
      expect(await docker.contents()).toEqual(before);
    });
  },
);
