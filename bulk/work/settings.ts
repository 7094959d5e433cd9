import { z } from "zod";
import { vectorTypes } from "../../contract/bulk.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import { UserError } from "../../contract/user-error.ts";

const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
const server = serverEnv.shape;

/** Default of BULK_STALE_SECONDS. */
export const defaultStaleSeconds = 120;

/** Environment variables of a bulk worker. Those without `BULK_` are those of the embed server. */
export const bulkEnv = z
  .object({
    BULK_JOB: z.string().min(1).describe("Location of the job: a folder or `s3://bucket/prefix`."),
    BULK_WORKERS: whole(1, 100_000)
      .default(1)
      .describe("Number of workers. Worker `i` owns the shards whose number modulo this is `i`."),
    JOB_COMPLETION_INDEX: whole(0, 99_999)
      .default(0)
      .describe("Index of this worker, from 0. Kubernetes sets it in the pods of an Indexed Job."),
    BULK_SOURCE: z
      .string()
      .min(1)
      .optional()
      .describe(
        "Images that worker 0 plans, or plans again, before it embeds; the others wait for its plan. Without it, the job must be planned.",
      ),
    BULK_RUN: z
      .string()
      .min(1)
      .optional()
      .describe(
        "Identity of the run, required with BULK_SOURCE: a plan is made once per run, also if worker 0 is restarted.",
      ),
    BULK_VECTORS: z
      .enum(vectorTypes)
      .default("float32")
      .describe("Type of the values in the table, with BULK_SOURCE."),
    BULK_USD_PER_HOUR: z.coerce
      .number()
      .min(0)
      .optional()
      .describe("US dollars per hour of one worker, with BULK_SOURCE."),
    BULK_PLAN_SECONDS: whole(1, 604_800)
      .default(7_200)
      .describe("Maximum time for which a worker waits for the plan of worker 0, in seconds."),
    BULK_MODEL_FILE: z
      .string()
      .min(1)
      .optional()
      .describe(
        "ONNX file of the image tower, instead of that of the job's model in MODEL_REPOSITORY.",
      ),
    BULK_MEMORY_MIB: whole(64, 1_048_576)
      .default(384)
      .describe(
        "Memory for image files, decoded pixels and model input, in MiB, in addition to that of the model and the process. Reading pauses while it is in use. A single image that needs more is decoded alone; a larger file is an error.",
      ),
    BULK_READS: whole(1, 1_024).default(32).describe("Images that are read concurrently."),
    BULK_MAX_ERROR_SHARE: z.coerce
      .number()
      .min(0)
      .max(1)
      .default(0.05)
      .describe(
        "Share of the images of a worker that may fail; up to 10 may always fail. With more the worker stops with exit code 1.",
      ),
    BULK_STALE_SECONDS: whole(10, 86_400)
      .default(defaultStaleSeconds)
      .describe("Time without progress after which another worker takes a shard, in seconds."),
    BULK_PATIENCE_SECONDS: whole(0, 86_400)
      .default(600)
      .describe(
        "Time for which a call to a bucket or Triton server that is unavailable or throttles is retried, in seconds.",
      ),
    BACKEND: server.BACKEND,
    MODELS: server.MODELS,
    MODEL_REPOSITORY: server.MODEL_REPOSITORY,
    MODEL_PRECISION: server.MODEL_PRECISION,
    PREPROCESSING: server.PREPROCESSING,
    PREPROCESS_THREADS: server.PREPROCESS_THREADS,
    DECODE_TIMEOUT_MS: server.DECODE_TIMEOUT_MS,
    MAX_IMAGE_PIXELS: server.MAX_IMAGE_PIXELS,
    INTRA_OP_THREADS: server.INTRA_OP_THREADS,
    EXECUTION_PROVIDER: server.EXECUTION_PROVIDER,
    MAX_BATCH_SIZE: server.MAX_BATCH_SIZE,
    TRITON_GRPC_URLS: server.TRITON_GRPC_URLS,
    TRITON_MODEL_KIND: server.TRITON_MODEL_KIND,
    TRITON_TIMEOUT_MS: server.TRITON_TIMEOUT_MS,
  })
  .refine(({ BULK_WORKERS, JOB_COMPLETION_INDEX }) => JOB_COMPLETION_INDEX < BULK_WORKERS, {
    path: ["JOB_COMPLETION_INDEX"],
    message: "must be less than BULK_WORKERS",
  })
  .refine((env) => env.BACKEND !== "triton" || env.TRITON_GRPC_URLS.length === 1, {
    path: ["TRITON_GRPC_URLS"],
    message: "must be one host:port when BACKEND is triton",
  })
  .refine((env) => env.BULK_SOURCE === undefined || env.BULK_RUN !== undefined, {
    path: ["BULK_RUN"],
    message: "must be set with BULK_SOURCE",
  });
export type BulkEnv = z.infer<typeof bulkEnv>;
export type BulkVariables = Partial<Record<keyof BulkEnv, string>>;

/** @throws {UserError} one line per variable: its name, the rule and the value */
export function readBulkEnv(variables: Readonly<Record<string, string | undefined>>): BulkEnv {
  // an empty variable counts as unset
  const given = Object.fromEntries(Object.entries(variables).filter(([, value]) => value !== ""));
  const { data, error } = bulkEnv.safeParse(given);
  if (error === undefined) return data;
  const lines = error.issues.map(({ path, message }) => {
    const name = String(path[0]);
    const value = given[name];
    if (value === undefined)
      return `${name} ${message.startsWith("must") ? message : "is required"}`;
    return `${name}: ${message}, got '${value}'`;
  });
  throw new UserError(lines.join("\n"));
}
