import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { type ModelKind, tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { tokenTensor } from "../../inference/session/token-tensor.ts";
import type { Counterpart } from "./check-model.ts";
import { rowsOf, type TowerInputs } from "./run-model.ts";

/** Timeout for eight images on Triton, including a cold start. */
const tritonTimeoutMs = 120_000;

interface TritonInput<Input> {
  readonly modelKind: ModelKind;
  readonly tensorOf: (spec: ModelSpec, batch: readonly Input[]) => Tensor;
}

/** Model kinds whose input this command can create; the first is the default. */
const tritonInputs: { readonly [M in Modality]: readonly TritonInput<TowerInputs[M]>[] } = {
  image: [
    { modelKind: "fp32", tensorOf: (spec, batch) => imageTensor(batch, imageTowerOf(spec)) },
    { modelKind: "trt", tensorOf: (spec, batch) => imageTensor(batch, imageTowerOf(spec)) },
    { modelKind: "u8", tensorOf: (spec, batch) => pixelTensor(batch, imageTowerOf(spec)) },
  ],
  text: [
    { modelKind: "text", tensorOf: (spec, batch) => tokenTensor(textTowerOf(spec), batch) },
    { modelKind: "text-trt", tensorOf: (spec, batch) => tokenTensor(textTowerOf(spec), batch) },
  ],
};

/**
 * A model of a running Triton server, to compare with.
 *
 * @throws {UserError} if the model cannot serve the modality
 */
export function tritonCounterpart<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  url: string,
  given: string | undefined,
): Counterpart<M> {
  const served = tritonInputs[modality].map(({ modelKind, tensorOf }) => ({
    name: tritonModelName(spec, modelKind),
    tensorOf,
  }));
  const model = given === undefined ? served[0]! : served.find(({ name }) => name === given);
  if (model === undefined) {
    const names = served.map(({ name }) => name).join(", ");
    throw new UserError(`--triton-model must be one of ${names}, got '${given}'`);
  }
  const name = `${model.name} of ${url}`;
  return {
    name,
    batchSize: 8,
    open: async () => {
      const transport = openHttpTransport({ url });
      return {
        async embed(inputs, batchSize) {
          const vectors: Float32Array[] = [];
          for (let first = 0; first < inputs.length; first += batchSize) {
            const batch = inputs.slice(first, first + batchSize);
            const [output] = await transport.infer(model.name, [model.tensorOf(spec, batch)], {
              timeoutMs: tritonTimeoutMs,
            });
            if (output?.dataType !== "FP32" || output.shape[0] !== batch.length) {
              throw new Error(`${name}: must return FP32 values for each ${modality}`);
            }
            vectors.push(...rowsOf(output.data, batch.length));
          }
          return vectors;
        },
        close: () => transport.close(),
      };
    },
  };
}
