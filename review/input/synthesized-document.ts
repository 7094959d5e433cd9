import { z } from "zod";
import { parseJson, readAs } from "./json-file.ts";

/**
 * What a change does, from what was synthesized before and after it: for when there is no plan. The tree before stands for what
 * is deployed. What only Terraform computes is an expression, and is taken to change when what it refers to is made anew.
 */
export const removal = z.object({
  from: z.string(),
  lifecycle: z.object({ destroy: z.boolean().optional() }).loose().optional(),
});

export const byName = z.record(z.string(), z.record(z.string(), z.object({}).loose()));
export const document = z
  .object({
    terraform: z.unknown().optional(),
    provider: z.unknown().optional(),
    variable: z.unknown().optional(),
    locals: z.record(z.string(), z.unknown()).optional(),
    module: z.record(z.string(), z.object({}).loose()).optional(),
    resource: byName.optional(),
    data: byName.optional(),
    output: z.record(z.string(), z.object({ value: z.unknown().optional() }).loose()).optional(),
    moved: z
      .union([
        z.array(z.object({ from: z.string(), to: z.string() })),
        z.object({ from: z.string(), to: z.string() }).transform((one) => [one]),
      ])
      .optional(),
    removed: z.union([z.array(removal), removal.transform((one) => [one])]).optional(),
    /** Not of Terraform: whoever made the tree compared the files that it is made of with those of the tree before. */
    filesCompared: z.boolean().optional(),
  })
  .loose();
export type SynthesizedDocument = z.infer<typeof document>;
/**
 * Read a `cdk.tf.json`.
 *
 * @throws {ReviewError} one line.
 */

export function parseDocument(text: string, shown: string): SynthesizedDocument {
  return readAs(document, parseJson(text, shown), shown);
}
