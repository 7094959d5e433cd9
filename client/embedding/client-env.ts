import { z } from "zod";
import { ClientError } from "./client-error.ts";
import { clientBackends, clientModes, type InferenceClientOptions } from "./inference-client.ts";

const clientEnv = z.object({
  /** `pytorch` is an older name of `embed`. */
  INFERENCE_BACKEND: z
    .enum(["embed", "pytorch", "triton", "triton_grpc"], mustBe(clientBackends))
    .default("embed")
    .transform((backend) => (backend === "pytorch" ? "embed" : backend)),
  INFERENCE_MODE: z.enum(clientModes, mustBe(clientModes)).default("auto"),
  INFERENCE_SERVICE_URL: z
    .string()
    .regex(/^https?:\/\/[^\s/?#]+\/?$/, "must be http://host:port, without a path")
    .optional(),
  /** API_KEY of the embed server. */
  INFERENCE_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, "must be printable ASCII characters without spaces")
    .optional(),
  /** Defaults to the host of the service and its port + 1. */
  TRITON_GRPC_URL: z
    .string()
    .regex(/^[^\s/]+:\d{1,5}$/, "must be host:port")
    .optional(),
  /** Name of a catalogue model; with the backend `embed`, also of any model that the service has. */
  INFERENCE_MODEL: z.string().optional(),
  /** Image tower in Triton's repository: `openclip_vit_b32`, `…_u8`, `…_jpeg` or `…_trt`. */
  TRITON_MODEL: z.string().optional(),
  INFERENCE_MODEL_PATH: z.string().optional(),
  INFERENCE_TEXT_MODEL_PATH: z.string().optional(),
  /** Vocabulary of the tokenizer, such as `tokenizer.model`. */
  INFERENCE_VOCABULARY_PATH: z.string().optional(),
});

function mustBe(values: readonly string[]): string {
  return `must be ${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;
}

/**
 * Parses the client's options from environment variables; an empty variable counts as unset.
 *
 * @throws {ClientError} `settings`, with every error in one line
 */
export function clientOptionsFromEnv(
  env: Readonly<Record<string, string | undefined>>,
): InferenceClientOptions {
  const values = Object.fromEntries(
    Object.keys(clientEnv.shape).map((name) => [name, env[name]?.trim() || undefined]),
  );
  const result = clientEnv.safeParse(values);
  if (!result.success) {
    const problems = result.error.issues.map(({ path, message }) => {
      const name = String(path[0]);
      return `${name} ${message}${name === "INFERENCE_API_KEY" ? "" : `, got '${values[name]}'`}`;
    });
    throw new ClientError("settings", problems.join("; "));
  }
  const { data } = result;
  return {
    backend: data.INFERENCE_BACKEND,
    mode: data.INFERENCE_MODE,
    serviceUrl: data.INFERENCE_SERVICE_URL,
    apiKey: data.INFERENCE_API_KEY,
    tritonGrpcUrl: data.TRITON_GRPC_URL,
    model: data.INFERENCE_MODEL,
    tritonModel: data.TRITON_MODEL,
    modelPath: data.INFERENCE_MODEL_PATH,
    textModelPath: data.INFERENCE_TEXT_MODEL_PATH,
    vocabularyPath: data.INFERENCE_VOCABULARY_PATH,
  };
}
