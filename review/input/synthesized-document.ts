import { z } from "zod";
import { parseJson, validated } from "./json-file.ts";

const removal = z.object({
  from: z.string(),
  lifecycle: z.object({ destroy: z.boolean().optional() }).loose().optional(),
});

const byName = z.record(z.string(), z.record(z.string(), z.object({}).loose()));
const documentSchema = z
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
        z.object({ from: z.string(), to: z.string() }).transform((single) => [single]),
      ])
      .optional(),
    removed: z.union([z.array(removal), removal.transform((single) => [single])]).optional(),
    /** Not part of Terraform: whether the files that the stack hashes were compared with those of the base. */
    filesCompared: z.boolean().optional(),
  })
  .loose();
export type SynthesizedDocument = z.infer<typeof documentSchema>;

/**
 * Parses a `cdk.tf.json`.
 *
 * @throws {ReviewError} with one line that does not quote the content.
 */
export function parseDocument(text: string, fileName: string): SynthesizedDocument {
  return validated(documentSchema, parseJson(text, fileName), fileName);
}
