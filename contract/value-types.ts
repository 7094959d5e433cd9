import { z } from "zod";

/** Types of single values in YAML files: each error message is `must …`. */

/** Whole number in a range, both ends included. */
export const integer = (min: number, max: number) => {
  const error = `must be ${min} to ${max}`;
  return z
    .int({ error: `must be a whole number, ${min} to ${max}` })
    .min(min, error)
    .max(max, error);
};

/** Finite number above 0. */
export const positive = z.number({ error: "must be a number" }).positive("must be above 0");

/** String that matches `pattern`; `rule` describes it after "must be". */
export const text = (rule: string, pattern: RegExp) =>
  z.string({ error: `must be ${rule}` }).regex(pattern, { error: `must be ${rule}`, abort: true });

/** Error option of a discriminated union: lists the valid discriminator values. */
export const oneOf = <const Key extends string>(key: Key, words: readonly string[]) => ({
  error: (issue: { readonly code?: string; readonly discriminator?: string }) =>
    issue.code === "invalid_union" && issue.discriminator === key
      ? `must be one of ${words.join(", ")}`
      : undefined,
});
