import { z } from "zod";
import { dataTypes, type Tensor } from "../../contract/tensor.ts";
import { type ModelMetadata, type ModelStatistics, TritonError } from "./transport.ts";

/** Schemas of server responses, which have the same fields over HTTP and gRPC. Unknown fields are ignored. */

const count = z.coerce.number().int().min(0);
const duration = z
  .object({ count: count.default(0), ns: count.default(0) })
  .default({ count: 0, ns: 0 });

export const serverMetadataResponse = z.object({
  name: z.string(),
  version: z.string(),
  extensions: z.array(z.string()),
});

const tensorResponse = z.object({
  name: z.string(),
  datatype: z.enum(dataTypes),
  shape: z.array(z.coerce.number().int()),
});

export const modelMetadataResponse = z
  .object({
    name: z.string(),
    versions: z.array(z.string()).default([]),
    platform: z.string(),
    inputs: z.array(tensorResponse),
    outputs: z.array(tensorResponse),
  })
  .transform(({ inputs, outputs, ...rest }): ModelMetadata => {
    const spec = ({ name, datatype, shape }: z.infer<typeof tensorResponse>) => ({
      name,
      dataType: datatype,
      dims: shape,
    });
    return { ...rest, inputs: inputs.map(spec), outputs: outputs.map(spec) };
  });

export const modelConfigResponse = z.record(z.string(), z.unknown());

export const modelStatisticsResponse = z
  .object({
    model_stats: z
      .array(
        z.object({
          name: z.string(),
          version: z.string(),
          inference_count: count.default(0),
          execution_count: count.default(0),
          inference_stats: z.object({
            success: duration,
            fail: duration,
            queue: duration,
            compute_input: duration,
            compute_infer: duration,
            compute_output: duration,
          }),
          batch_stats: z
            .array(z.object({ batch_size: count, compute_infer: duration }))
            .default([]),
        }),
      )
      .min(1),
  })
  .transform(({ model_stats: [first] }): ModelStatistics => {
    const { inference_stats: stats, batch_stats: batches } = first!;
    return {
      name: first!.name,
      version: first!.version,
      inferenceCount: first!.inference_count,
      executionCount: first!.execution_count,
      success: stats.success,
      fail: stats.fail,
      queue: stats.queue,
      computeInput: stats.compute_input,
      computeInfer: stats.compute_infer,
      computeOutput: stats.compute_output,
      batches: batches.map((batch) => ({
        batchSize: batch.batch_size,
        executions: batch.compute_infer.count,
      })),
    };
  });

/** @throws {TritonError} `protocol` */
export function checkResponse<T>(schema: z.ZodType<T>, subject: string, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new TritonError(
    "protocol",
    `${subject}: ${issue?.path.join(".") || "the response"}: ${issue?.message ?? "not valid"}`,
  );
}

/**
 * Returns the outputs in the requested order.
 *
 * @throws {TritonError} `protocol` if an output is missing or the response belongs to another request
 */
export function checkInferResponse(
  subject: string,
  response: { readonly id: string; readonly outputs: readonly Tensor[] },
  options: { readonly requestId?: string; readonly outputs?: readonly string[] },
): readonly Tensor[] {
  const { requestId, outputs: names } = options;
  if (requestId !== undefined && response.id !== requestId) {
    throw new TritonError(
      "protocol",
      `${subject}: expected the response to request '${requestId}', got '${response.id}'`,
    );
  }
  if (names === undefined) return response.outputs;
  return names.map((name) => {
    const output = response.outputs.find((tensor) => tensor.name === name);
    if (output === undefined) {
      const got = response.outputs.map((tensor) => `'${tensor.name}'`).join(", ");
      throw new TritonError(
        "protocol",
        `${subject}: expected output '${name}', got ${got || "none"}`,
      );
    }
    return output;
  });
}

/** Removes messages that are not set, as Triton does over HTTP. */
export function withoutNulls(
  json: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return JSON.parse(JSON.stringify(json), (_key, value) => value ?? undefined);
}
