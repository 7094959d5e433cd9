import { z } from "zod";
import { queueDelayMicroseconds } from "./triton-models.ts";
import { integer } from "./value-types.ts";

/**
 * Settings of a deployment that change the configuration of every model in Triton: one field each, with its range, default and
 * description. Settings files, constructs and the rendered configuration use this object. On the CPU only the queue delay, the preferred
 * batch sizes and the served versions have an effect.
 */
export const modelConfigSettings = z.object({
  maxQueueDelayMicroseconds: integer(0, 1_000_000)
    .default(queueDelayMicroseconds)
    .describe(
      "Maximum time that the dynamic batcher delays a request to fill a batch. With 0, a batch has the requests that arrived while the previous one was computed.",
    ),
  preferredBatchSizes: z
    .array(integer(1, 4_096))
    .optional()
    .describe(
      "Batch sizes that the dynamic batcher prefers, ascending, at most the maximum of each model; with TensorRT only `optimumBatchSize`. Only for sizes that are much faster than others. `[]`: no preference. Default: those of each model, which are none in the catalogue.",
    ),
  instancesPerGpu: integer(1, 16)
    .default(1)
    .describe("Execution instances on each GPU, each with its own copy of the model."),
  /** ONNX Runtime's CUDA provider can return the result of an earlier request (microsoft/onnxruntime#20050). */
  cudaGraphs: z
    .boolean()
    .default(false)
    .describe(
      "With TensorRT: replay the kernels of a batch as one CUDA graph; verify the deployed environment before you rely on it (docs/untested.md). `true` is rejected with ONNX Runtime, whose CUDA graphs can return the result of an earlier request.",
    ),
  /** The optimum of the only profile of an engine: every size from 1 to the maximum works. Ignored without TensorRT. */
  optimumBatchSize: z
    .literal([8, 16])
    .default(16)
    .describe(
      "Batch size that TensorRT's kernels are tuned for, at most the maximum of each model; every size up to that works.",
    ),
  /** Rejected with TensorRT, whose cached engines do not depend on the version. */
  modelVersions: integer(1, 8)
    .optional()
    .describe(
      "Number of versions of each model that Triton serves: the latest ones. With it, `clipstack model deploy` loads a version beside the served one, and gateways switch to it without losing a request (model_repository/README.md); the environment deploys version 1. Not with TensorRT, and not with `weights: image`. Default: version 1 only.",
    ),
});

/** The same before defaults are applied. */
export type ModelConfigSettings = Readonly<
  Omit<z.input<typeof modelConfigSettings>, "preferredBatchSizes">
> & { readonly preferredBatchSizes?: readonly number[] | undefined };
