import { readFile, realpath } from "node:fs/promises";
import { z } from "zod";

/** What the sidecar `<model>.json` says of a model file, as far as the server repeats it. */
const modelFile = z.object({
  sha256: z.string(),
  source: z.string(),
  /** `random`, or the name that open_clip gives the weights. */
  weights: z.string(),
  seed: z.int().optional(),
  architecture: z.string().optional(),
});
export type ModelFile = z.infer<typeof modelFile>;

/** Read the sidecar of a model file; a link is followed. `undefined` where there is none that can be read. */
export async function readModelFile(path: string): Promise<ModelFile | undefined> {
  try {
    const target = await realpath(path);
    return modelFile.parse(JSON.parse(await readFile(`${target}.json`, "utf8")));
  } catch {
    return undefined;
  }
}
