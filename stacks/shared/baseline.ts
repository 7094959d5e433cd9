import type { Construct } from "constructs";
import type { GpuId } from "../../constructs/checks/gpus.ts";
import type { GpuHost } from "../../constructs/docker/gpu-host.ts";
import type { ModelWeights } from "../../constructs/docker/model-weights.ts";
import { PytorchBaseline } from "../../constructs/docker/pytorch-baseline.ts";
import type { SingleGpuSettings } from "../settings/single-gpu-settings.ts";
import { pytorchImage } from "./image-builds.ts";

/** Adds the baselines that the settings select. The PyTorch baseline runs on the first of the given GPUs. */
export function baselines(
  scope: Construct,
  { host, weights }: { readonly host: GpuHost; readonly weights: ModelWeights },
  gpus: readonly GpuId[],
  { baseline }: Pick<SingleGpuSettings, "baseline">,
): readonly PytorchBaseline[] {
  if (baseline === "none") return [];
  const image = host.image("pytorch", pytorchImage);
  const props = { host, image, weights, gpus: gpus.slice(0, 1) };
  return [new PytorchBaseline(scope, "pytorch", props)];
}
