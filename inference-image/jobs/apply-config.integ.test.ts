import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import {
  type RealTriton,
  realTritonMissing,
  startRealTriton,
} from "../../client/triton/test-real-triton.ts";
import type { Transport } from "../../client/triton/transport.ts";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import {
  configuredFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../../contract/tensor.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { weightsIdentity } from "../../model-tools/repository/fingerprint.ts";
import { type ApplyConfigOptions, applyConfig } from "./apply-config.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const model = tritonModelName(defaultModel, "fp32");
const call = { timeoutMs: 60_000 };
const image: Fp32Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [1, 3, 224, 224],
  data: new Float32Array(imageElements).fill(0.5),
};

describe.skipIf(realTritonMissing !== "")(
  `apply-config with a real Triton server${realTritonMissing === "" ? "" : ` (not here: ${realTritonMissing})`}`,
  () => {
    let repository: TestRepository;
    let triton: RealTriton;
    let transport: Transport;
    let uploads: string;
    beforeAll(async () => {
      uploads = await mkdtemp(join(tmpdir(), "clipstack-upload-"));
      repository = await fullTestRepository();
      // as in a deployment, whose first configuration is written before the start
      await mkdir(folder(), { recursive: true });
      await writeFile(join(folder(), "deployed.pbtxt"), textOf(5_000));
      triton = await startRealTriton(repository.path, {
        flags: [
          "--model-config-name=deployed",
          "--model-control-mode=explicit",
          `--load-model=${model}`,
        ],
      });
      // as in a deployment, only the configurations are mounted
      await rm(join(repository.path, model, "config.pbtxt"));
      transport = openGrpcTransport({ target: triton.grpcTarget });
    });
    afterAll(async () => {
      await transport?.close();
      await triton?.stop();
      await repository?.remove();
      if (uploads !== undefined) await rm(uploads, { recursive: true, force: true });
    });

    const textOf = (maxQueueDelayMicroseconds: number) =>
      deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 0, {
        maxQueueDelayMicroseconds,
      }).text.replace('platform: "onnxruntime_onnx"', 'backend: "python"');
    const folder = () => join(repository.path, model, "configs");
    const apply = async (text: string, weights?: ApplyConfigOptions["weights"]) => {
      const file = join(uploads, "config.pbtxt");
      await writeFile(file, text);
      return await applyConfig({
        folder: folder(),
        file,
        name: "deployed",
        model,
        weights,
        server: triton.url,
        timeoutSeconds: 60,
      });
    };
    const servedDelay = async () => {
      const { dynamic_batching: batching } = (await transport.modelConfig(model, call)) as {
        dynamic_batching: Readonly<Record<string, unknown>>;
      };
      return Number(batching.max_queue_delay_microseconds);
    };

    test("serves another queue delay and more instances without a restart or a failed request", async () => {
      let changing = true;
      const failures: unknown[] = [];
      const clients = Array.from({ length: 3 }, async () => {
        while (changing) {
          await transport.infer(model, [image], call).catch((error) => failures.push(error));
        }
      });
      expect(await apply(textOf(2_000))).toContain("serves it after");
      expect(await servedDelay()).toBe(2_000);
      expect(await apply(textOf(2_000).replace("count: 1", "count: 2"))).toContain("serves it");
      changing = false;
      await Promise.all(clients);
      expect(failures).toEqual([]);
    });

    test("serves the fingerprint of the weights", async () => {
      const weights = {
        file: await tinyModel(),
        preprocessing: preprocessingSha256(defaultModel, "image"),
      };
      expect(await apply(textOf(2_500), weights)).toContain("serves it");
      const config = await transport.modelConfig(model, call);
      const { versions } = await transport.modelMetadata(model, call);
      const identity = await weightsIdentity(weights.file);
      const fingerprint = fingerprintOf(weights.preprocessing, identity);
      expect(configuredFingerprint(config, versions)).toBe(fingerprint);
    });

    test("restores the previous configuration if the new one is rejected", async () => {
      await apply(textOf(3_000));
      const rejected = textOf(4_000).replace(
        "dynamic_batching {",
        "dynamic_batching { preferred_batch_size: [64]",
      );
      await expect(apply(rejected)).rejects.toThrow(
        `${triton.url} rejected it: failed to load '${model}', failed to poll from model repository (see its log); the previous configuration is restored and served`,
      );
      expect(await readFile(join(folder(), "deployed.pbtxt"), "utf8")).toBe(textOf(3_000));
      expect(await servedDelay()).toBe(3_000);
      await transport.infer(model, [image], call);
    });
  },
);
