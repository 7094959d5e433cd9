import { openHttpTransport } from "../../client/triton/http-transport.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import type { Counterpart } from "./check-model.ts";
import { formatsOf, inBatches } from "./run-model.ts";

/** Timeout for eight images on Triton, including a cold start. */
const tritonTimeoutMs = 120_000;

/** Model kinds whose input this command can create; the first is the default. */
const tritonKinds = { image: ["fp32", "trt", "u8"], text: ["text", "text-trt"] } as const;

/** A model of a running Triton server, to compare with. */
export function tritonCounterpart<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  url: string,
  given: string | undefined,
): Counterpart<M> {
  const [values, pixels] = formatsOf[modality](spec);
  const served = tritonKinds[modality].map((modelKind) => ({
    name: tritonModelName(spec, modelKind),
    tensorOf: (modelKind === "u8" ? pixels : values)!.tensorOf,
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
        embed: inBatches(name, modality, async (batch) => {
          const options = { timeoutMs: tritonTimeoutMs };
          const [output] = await transport.infer(model.name, [model.tensorOf(batch)], options);
          return output;
        }),
        close: () => transport.close(),
      };
    },
  };
}
