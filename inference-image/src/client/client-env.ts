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
  /** Without it, the host of the service and its port + 1. */
  TRITON_GRPC_URL: z
    .string()
    .regex(/^[^\s/]+:\d{1,5}$/, "must be host:port")
    .optional(),
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
    const problems = result.error.issues.map(
      ({ path, message }) => `${String(path[0])} ${message}, got '${given[String(path[0])]}'`,
    );
    throw new ClientError("settings", problems.join("; "));
  }
  const { INFERENCE_BACKEND, INFERENCE_MODE, INFERENCE_SERVICE_URL, TRITON_GRPC_URL } = result.data;
  return {
    backend: INFERENCE_BACKEND,
    mode: INFERENCE_MODE,
    serviceUrl: INFERENCE_SERVICE_URL,
    tritonGrpcUrl: TRITON_GRPC_URL,
  };
}
