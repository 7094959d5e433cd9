import { z } from "zod";
import { ClientError } from "./client-error.ts";
import { clientBackends, clientModes, type InferenceClientOptions } from "./inference-client.ts";

/** Settings of the client, by environment variable. */
const clientEnv = z.object({
  /** `pytorch` is what the embed service was called when it ran PyTorch. */
  INFERENCE_BACKEND: z
    .enum(["embed", "pytorch", "triton", "triton_grpc"], mustBe(clientBackends))
    .default("embed")
    .transform((backend) => (backend === "pytorch" ? "embed" : backend)),
  INFERENCE_MODE: z.enum(clientModes, mustBe(clientModes)).default("auto"),
  INFERENCE_SERVICE_URL: z
    .string()
    .regex(/^https?:\/\/[^\s/?#]+\/?$/, "must be http://host:port, without a path")
    .optional(),
  /** The embed server's API_KEY. */
  INFERENCE_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, "must be printable ASCII characters without spaces")
    .optional(),
  /** Without it, the host of the service and its port + 1. */
  TRITON_GRPC_URL: z
    .string()
    .regex(/^[^\s/]+:\d{1,5}$/, "must be host:port")
    .optional(),
  /** Model that is asked for, with a Triton: `openclip_vit_b32`, `…_u8`, `…_jpeg` or `…_trt`. */
  TRITON_MODEL: z.string().optional(),
});

function mustBe(words: readonly string[]): string {
  return `must be ${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

/**
 * Read the client's settings from environment variables; an empty one counts as not set.
 *
 * @throws {ClientError} `settings`, one line with everything that is wrong
 */
export function clientOptionsFromEnv(
  env: Readonly<Record<string, string | undefined>>,
): InferenceClientOptions {
  const given = Object.fromEntries(
    Object.keys(clientEnv.shape).map((name) => [name, env[name]?.trim() || undefined]),
  );
  const result = clientEnv.safeParse(given);
  if (!result.success) {
    const problems = result.error.issues.map(({ path, message }) => {
      const name = String(path[0]);
      return `${name} ${message}${name === "INFERENCE_API_KEY" ? "" : `, got '${given[name]}'`}`;
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
    model: data.TRITON_MODEL,
  };
}
