import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { DedupeError, systemReason } from "./dedupe-error.ts";

/** Beside the photos: what shows the same. */
export const labelsFile = "labels.json";

const photoLabels = z.strictObject({
  /** Bumped when a field changes meaning. */
  schema: z.literal(1),
  photos: z
    .array(
      z.strictObject({
        /** Path in the folder, with `/`. */
        file: z.string().min(1),
        /** Photos with the same one show the same. */
        original: z.string().min(1),
        /** What was done to it: recall is printed for each. */
        change: z.string().min(1),
      }),
    )
    .min(2),
});
export type PhotoLabel = z.infer<typeof photoLabels>["photos"][number];

/** @throws {DedupeError} when there are no labels, or they are not as they should be */
export async function readLabels(folder: string): Promise<readonly PhotoLabel[]> {
  const file = join(folder, labelsFile);
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw new DedupeError("usage", `labels '${file}' ${systemReason(cause)}`, { cause });
  });
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new DedupeError("usage", `labels '${file}' are not JSON`, { cause });
  }
  const result = photoLabels.safeParse(json);
  if (result.success) return result.data.photos;
  const issue = result.error.issues[0];
  throw new DedupeError("usage", `labels '${file}': ${issue?.path.join(".")}: ${issue?.message}`);
}
