import type { ModelSpec } from "../../contract/model-spec.ts";
import { findingIf } from "./findings.ts";
import type { Resources } from "./kubernetes.ts";
import { weightsOfMiB } from "./vram.ts";

/**
 * Rejects a memory limit that does not exceed the weights, because every start would be killed while loading them.
 *
 * @param got - Limit as printed.
 */
export function memoryFindings(
  path: string,
  limitMiB: number,
  weightsMiB: number,
  got = `${limitMiB} MiB`,
): readonly string[] {
  const must = `be more than ${weightsMiB} MiB, the weights of the models`;
  return findingIf(limitMiB <= weightsMiB, path, must, got);
}

/** Rejects a memory limit of pods that does not exceed the FP32 weights of all towers that they serve. */
export function podMemoryFindings(
  { limits }: Resources,
  models: readonly ModelSpec[],
  prefix = "",
): readonly string[] {
  const weights = weightsOfMiB(models, "fp32");
  return memoryFindings(`${prefix}resources.limits.memoryMiB`, limits.memoryMiB, weights);
}
