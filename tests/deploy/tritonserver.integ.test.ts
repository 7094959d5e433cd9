import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { testDocker } from "./test-docker.ts";
import { keptImage } from "./test-image.ts";
import { embedOnce, keepSending } from "./test-load.ts";
import { builtImage, type TestProject, testProject, tritonPortsOf } from "./test-project.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");

/**
 * tritonserver behind the gateway with the unmodified configuration. Its backend `onnxruntime` is a Python program that runs the
 * model file, because PyPI has no other.
 */

const { docker, missing: noEngine } = await testDocker();
const samples = fileURLToPath(new URL("../../model-tools/samples/", import.meta.url));
const { image, missing } = await realTriton();

async function realTriton(): Promise<{ readonly image: string; readonly missing: string }> {
  if (noEngine !== "") return { image: "", missing: noEngine };
  if (process.arch !== "x64") return { image: "", missing: "tritonserver's wheel is for x86-64" };
  try {
    return { image: await keptImage(docker, "triton"), missing: "" };
  } catch (error) {
    const last = String(error).trim().split("\n").at(-1) ?? "";
    return { image: "", missing: `its image cannot be built: ${last}` };
  }
}

describe.skipIf(missing !== "")(
  `a real tritonserver, deployed${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let ports: readonly number[];
    const settings = (maxQueueDelayMicroseconds: number) =>
      project.settings("single-gpu", {
        accelerator: "cpu",
        host: { docker: docker.endpoint },
        network: "clipstack-test-single-gpu",
        embed: { port: ports[0], image: builtImage(), backend: "triton" },
        tritonOnnx: {
          server: "tritonserver",
          image: { source: "pull", name: image },
          modelControl: "explicit",
          maxQueueDelayMicroseconds,
          ports: tritonPortsOf(ports[1]!),
        },
        tritonTrt: { enabled: false },
      });

    beforeAll(async () => {
      project = await testProject({ docker });
      ports = await freePorts(2);
    });
    afterAll(() => project?.remove());

    test("serves our model under our configuration, behind the gateway", async () => {
      await settings(5_000);
      const { code, output } = await project.deploy("single-gpu");
      expect(code, output).toBe(0);
      const photo = await readFile(join(samples, "dunes.jpg"));
      expect(await embedOnce(`http://127.0.0.1:${ports[0]}`, photo)).toHaveLength(512);
      expect(await project.plan("single-gpu")).toEqual([]);
      // identifies NVIDIA's server
      const answer = await fetch(`http://127.0.0.1:${ports[1]}/v2`);
      expect(await answer.json()).toMatchObject({ name: "triton", version: "2.51.0" });
    });

    test("loads another queue delay without a restart, and loses no request", async () => {
      await settings(2_000);
      const url = `http://127.0.0.1:${ports[1]}`;
      const transport = openHttpTransport({ url });
      const data = new Float32Array(3 * 224 * 224).fill(0.1);
      const input = { name: "image", dataType: "FP32", shape: [1, 3, 224, 224], data } as const;
      const load = keepSending(async () => {
        await transport.infer(fp32Name, [input], { timeoutMs: 60_000 });
      });
      const before = await docker.inspect("single-gpu-triton-onnx");
      try {
        await load.more(10);
        const { code, output } = await project.deploy("single-gpu");
        expect(code, output).toBe(0);
        await load.more(10);
      } finally {
        await load.stop();
        await transport.close();
      }
      expect(load.lost).toEqual([]);
      const after = await docker.inspect("single-gpu-triton-onnx");
      expect(after.State.StartedAt).toBe(before.State.StartedAt);
      const config = await (await fetch(`${url}/v2/models/${fp32Name}/config`)).json();
      expect(config).toMatchObject({ dynamic_batching: { max_queue_delay_microseconds: 2_000 } });
    });
  },
);
