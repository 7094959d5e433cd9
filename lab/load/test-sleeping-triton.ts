import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type RealTriton, startRealTriton } from "../../client/triton/test-real-triton.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";

const modelName = tritonModelName(defaultModel, "fp32");

const config = `
name: "${modelName}"
backend: "python"
max_batch_size: 32
input [ { name: "image" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ 512 ] } ]
instance_group [ { kind: KIND_CPU count: 2 } ]
`;

const program = (ms: number) => `
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(${ms / 1_000})
        response = [pb_utils.Tensor("embedding", np.zeros((1, 512), np.float32))]
        return [pb_utils.InferenceResponse(response) for _ in requests]
`;

/** Starts a real Triton server whose model sleeps for `ms` per request; two requests run concurrently. */
export async function startSleepingTriton(
  ms: number,
): Promise<Pick<RealTriton, "url" | "grpcTarget" | "stop">> {
  const repository = await mkdtemp(join(tmpdir(), "clipstack-sleeping-"));
  const model = join(repository, modelName);
  await mkdir(join(model, "1"), { recursive: true });
  await writeFile(join(model, "config.pbtxt"), config);
  await writeFile(join(model, "1", "model.py"), program(ms));
  const triton = await startRealTriton(repository);
  return {
    url: triton.url,
    grpcTarget: triton.grpcTarget,
    async stop() {
      await triton.stop();
      await rm(repository, { recursive: true });
    },
  };
}
