import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { type StandIns, standIns } from "../../cli/test-programs.ts";
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
 * Missing requirements of a host stop `cdktf deploy` before anything is created there. `host-findings.test.ts` has all requirements. A
 * stand-in on the PATH prints recorded output for a GPU.
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
      programs.put("nvidia-smi", nvidiaSmi([{ uuid }]));
      project = await testProject({ docker, path: programs.folder });
      [port = 0, triton = 0] = await freePorts(2);
      before = await docker.contents();
    });
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
      settings: Readonly<Record<string, unknown>>,
      ...messages: readonly string[]
    ) => {
      await project.settings("single-gpu", settings);
      const { code, output } = await project.deploy("single-gpu");
      expect(code, output).not.toBe(0);
      // Terraform wraps and indents the lines
      const words = output.replace(/[\s│╷╵]+/g, " ");
      for (const message of messages) expect(words).toContain(message);
      expect(words).not.toContain(" at async "); // a stack trace
    };

    test("an endpoint that does not respond", async () => {
      await refuse(
        { ...onCpu(), host: { docker: "unix:///nowhere/docker.sock" } },
        "Docker does not respond at unix:///nowhere/docker.sock",
        "fix: start Docker",
      );
    });

    test.skipIf(plain === undefined)(
      `no NVIDIA runtime${plain === undefined ? " (skipped: CLIPSTACK_TEST_DOCKER_HOST_NO_NVIDIA names no engine without one)" : ""}`,
      async () => {
        await refuse(
          onGpu(plain!),
          "Docker must support GPUs, but has neither the runtime 'nvidia'",
        );
      },
    );

    test("a port in use", async () => {
      const server = createServer().listen(port, "127.0.0.1");
      try {
        await refuse(
          onCpu(),
          `port ${port} of the host (embed, port) must be free, in use by`,
          "or change port of embed",
        );
      } finally {
        server.close();
      }
    });

    test("without creating anything on the host", async () => {
      expect(await docker.contents()).toEqual(before);
    });
  },
);
