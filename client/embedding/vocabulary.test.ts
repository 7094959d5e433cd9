import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { repositoryAt } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { testModel, testSentencePiece } from "../../inference/text/test-sentencepiece.ts";
import { writeTestRepository } from "../../inference-image/models/test-text-model.ts";
import { type InferenceClientOptions, openInferenceClient } from "./inference-client.ts";

const { text } = siglip2Base224.towers;
const model: ModelSpec = {
  ...siglip2Base224,
  name: "siglip-small",
  towers: { text: { ...text!, input: testSentencePiece } },
};
const texts = ["two dogs on a beach", "Überraschung"];

let folder: string;
let textModelPath: string;
let triton: RunningTritonEmulator;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-vocabulary-"));
  await writeTestRepository(folder, [model]);
  textModelPath = join(folder, tritonModelName(model, "text"), "1", "model.onnx");
  triton = await startTritonEmulator(repositoryAt(folder).flags(), { log: () => {} });
});
afterAll(async () => {
  await triton?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function embed(options: Partial<InferenceClientOptions>) {
  const serviceUrl = `http://127.0.0.1:${triton.ports.http}`;
  const tritonGrpcUrl = `127.0.0.1:${triton.ports.grpc}`;
  const client = await openInferenceClient({
    ...{ backend: "triton", mode: "remote", serviceUrl, tritonGrpcUrl, model },
    ...options,
  });
  try {
    return await client.embedText(texts);
  } finally {
    await client.close();
  }
}

test.each(["triton", "triton_grpc"] as const)(
  "texts for %s are tokenized with the vocabulary of vocabularyPath, as those of the local model",
  async (backend) => {
    const local = await embed({ mode: "local", textModelPath, vocabularyPath: testModel });
    const remote = await embed({ backend, vocabularyPath: testModel });
    expect(remote).toEqual(local);
    expect(remote[0]).not.toEqual(remote[1]);
  },
);

test("the vocabulary beside textModelPath is the default", async () => {
  const beside = join(dirname(textModelPath), testSentencePiece.tokenizer.file);
  const expected = await embed({ vocabularyPath: testModel });
  await copyFile(testModel, beside);
  try {
    expect(await embed({ textModelPath })).toEqual(expected);
  } finally {
    await rm(beside);
  }
});

test.each([
  [
    {},
    "[settings] vocabularyPath must be the path of 'test-sentencepiece.model' of siglip-small, because texts for Triton are tokenized in this process",
  ],
  [
    { vocabularyPath: "none.model" },
    /^\[settings\] tokenizer none\.model cannot be read: ENOENT: [^\n]*$/,
  ],
])("fails with one line on %j", async (options, message) => {
  await expect(embed(options)).rejects.toThrow(message);
});
