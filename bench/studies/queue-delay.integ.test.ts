import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import {
  type RealTriton,
  realTritonMissing,
  startRealTriton,
} from "../../client/triton/test-real-triton.ts";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount } from "../../contract/tensor.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../../emulator/test-repository.ts";
import { inferRows } from "../../target/requests/infer.ts";
import { controlQueueDelay } from "./queue-delay.ts";

const fp32Model = tritonModel(defaultModel, "fp32");
const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const model = fp32Model.name;

describe.skipIf(realTritonMissing !== "")(
  `the queue delay of a real Triton server${realTritonMissing === "" ? "" : ` (not here: ${realTritonMissing})`}`,
  () => {
    let repository: TestRepository | undefined;
    let triton: RealTriton | undefined;
    beforeAll(async () => {
      const { text } = deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 0);
      repository = await testRepository({
        [`${model}/configs/deployed.pbtxt`]: text,
      });
      triton = await startRealTriton(repository.path, {
        flags: [
          "--model-config-name=deployed",
          "--model-control-mode=explicit",
          `--load-model=${model}`,
        ],
      });
    }, 120_000);
    afterAll(async () => {
      await triton?.stop();
      await repository?.remove();
    });

    const configOf = async () =>
      (await fetch(`${triton?.url}/v2/models/${model}/config`)).json() as Promise<unknown>;

    /** Shortest time of a single request without others. */
    async function alone(): Promise<number> {
      const transport = openHttpTransport({ url: triton?.url ?? "" });
      try {
        const times: number[] = [];
        for (let i = 0; i < 8; i++) {
          const sentAt = performance.now();
          await inferRows(
            transport,
            model,
            defaultModel,
            new Float32Array(imageElements),
            1,
            30_000,
          );
          times.push(performance.now() - sentAt);
        }
        return Math.min(...times);
      } finally {
        await transport.close();
      }
    }

    test("a single client waits for a changed queue delay, which is restored afterwards", async () => {
      const before = await configOf();
      const control = await controlQueueDelay(triton?.url ?? "", model);
      try {
        expect(control.originalUs).toBe(fp32Model.maxQueueDelayMicroseconds);
        await control.set(200_000);
        expect(await alone()).toBeGreaterThanOrEqual(200);
        await control.set(0);
        expect(await alone()).toBeLessThan(200);
        await control.restore();
        expect(await configOf()).toEqual(before);
      } finally {
        await control.close();
      }
    }, 120_000);
  },
);
