import { afterAll, beforeAll, expect, test } from "vitest";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import type { Transport } from "../../client/triton/transport.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { payloadFormatOf } from "../../inference/session/payload-format.ts";
import { type NullTriton, nullTritonPayloads, startNullTriton } from "./null-triton.ts";

let triton: NullTriton;
let client: Transport;
beforeAll(async () => {
  triton = await startNullTriton(defaultModel);
  client = openGrpcTransport({ target: triton.target });
});
afterAll(async () => {
  await client?.close();
  await triton?.close();
});

const options = { timeoutMs: 10_000 };

test.each(Object.entries(nullTritonPayloads))(
  "serves the model %s with the payload format %s",
  async (modelKind, payload) => {
    const model = tritonModelName(defaultModel, modelKind as keyof typeof nullTritonPayloads);
    const metadata = await client.modelMetadata(model, options);
    const { tensorSpec } = payloadFormatOf(
      defaultModel,
      model,
      metadata,
      (text) => new Error(text),
    );
    expect(tensorSpec.dataType).toBe({ fp32: "FP32", uint8: "UINT8", jpeg: "BYTES" }[payload]);
    expect(await client.modelConfig(model, options)).toMatchObject({ max_batch_size: 32 });
  },
);

test("responds with one embedding of unit norm per item", async () => {
  const tower = imageTowerOf(defaultModel);
  const images = [new Uint8Array(224 * 224 * 3), new Uint8Array(224 * 224 * 3)];
  const model = tritonModelName(defaultModel, "u8");
  const [output] = await client.infer(model, [pixelTensor(images, tower)], options);
  expect(output).toMatchObject({ dataType: "FP32", shape: [2, 512] });
  const row = (output!.data as Float32Array).subarray(512);
  expect(row.reduce((sum, value) => sum + value * value, 0)).toBeCloseTo(1, 5);
});

test("rejects the metadata of a model that it does not serve", async () => {
  await expect(client.modelMetadata("other", options)).rejects.toThrow(/UNIMPLEMENTED/);
});
