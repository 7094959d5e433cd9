import { z } from "zod";
import { objectError } from "../embed-api.ts";

/** Minimum length of an API key. */
export const minKeyLength = 16;

const keyRule = `must be at least ${minKeyLength} printable ASCII characters without spaces`;

export const apiKey = z
  .string(keyRule)
  .regex(new RegExp(`^[\\x21-\\x7e]{${minKeyLength},}$`), keyRule);

const nameRule = "must be 1 to 64 letters, digits, '.', '_' or '-'";
const rateRule = "must be a number, 0.001 to 1000000";
const burstRule = "must be a whole number, 1 to 1000000";

/** Name of the client whose key is API_KEY. */
export const defaultClient = "default";

const clientKey = z
  .strictObject(
    {
      /** Name of the client, in log lines and metrics. */
      name: z.string(nameRule).regex(/^[\w.-]{1,64}$/, nameRule),
      key: apiKey,
      /** Maximum mean rate of requests that embed; further ones are rejected with 429. Absent: no limit. */
      requestsPerSecond: z
        .number(rateRule)
        .min(0.001, rateRule)
        .max(1_000_000, rateRule)
        .optional(),
      /** Requests above the mean rate that are accepted at once. Default: one second of the rate, at least 1. */
      burst: z.int(burstRule).min(1, burstRule).max(1_000_000, burstRule).optional(),
    },
    objectError,
  )
  .refine(
    ({ requestsPerSecond, burst }) => burst === undefined || requestsPerSecond !== undefined,
    {
      path: ["burst"],
      message: "requires requestsPerSecond",
    },
  );
export type ClientKey = z.infer<typeof clientKey>;

/** Content of API_KEYS_FILE: the clients of an embed server. A client has several entries while its key is replaced. */
export const clientKeys = z
  .array(clientKey, "must be a list of keys")
  .min(1, "must list at least one key")
  .superRefine((keys, context) => {
    for (const field of ["name", "key"] as const) {
      const values = keys.map((entry) => entry[field]);
      const index = values.findIndex((value, at) => values.indexOf(value) < at);
      if (index < 0) continue;
      context.addIssue({
        code: "custom",
        path: [index, field],
        message: `must not be that of keys.${values.indexOf(values[index]!)}`,
      });
    }
  });
