import { capacityTable } from "../../bench/capacity/capacity-table.ts";
import {
  gatewayCores,
  gatewayRatePerCore,
  modelOnlyRate,
  photoBytes,
  thumbnailBytes,
} from "../../bench/capacity/service-times.ts";
import { gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";

/** GPUs of a host, as in `HostRequirements`. */
interface HostGpus {
  /** Key of the GPU catalogue, or the name of a declared GPU with its peak. */
  readonly name: string;
  readonly fp16DenseTflops?: number;
  readonly label: string;
  readonly count: number;
}

/**
 * Returns a warning if an embed server on the host cannot decode 10 kB thumbnails as fast as the GPUs embed them; undefined if it can, or
 * if the number of cores or the GPU is unknown.
 */
export function coresNote(
  { name, fp16DenseTflops, label, count }: HostGpus,
  cores: number | undefined,
): string | undefined {
  const key = gpuNames.find((candidate) => candidate === name);
  const peak = fp16DenseTflops ?? (key && gpuCatalogue[key].fp16DenseTflops);
  if (peak === undefined || cores === undefined) return undefined;
  const rate = gpuImageRate(peak);
  const required = gatewayCores(count * rate, thumbnailBytes);
  if (required <= cores) return undefined;
  return (
    `the host has ${cores} CPU cores, and ${count} × ${label} can embed about ${rounded(count * rate)} images/s (ViT-B/32, TensorRT FP16): ` +
    `the embed server decodes about ${rounded(gatewayRatePerCore(thumbnailBytes))} thumbnails of 10 kB per second and core, so it requires ` +
    `about ${required} cores at full load, and ${gatewayCores(count * rate, photoBytes)} with photos of 300 kB. Clients that send tensors, and embed servers on other machines, do not use these cores`
  );
}

/** Images per second of a GPU, the model alone in large batches, at the share of the peak that published results reached. */
function gpuImageRate(fp16DenseTflops: number): number {
  const { sustainedShare } = capacityTable.parameters;
  return modelOnlyRate(imageTowerOf(defaultModel), fp16DenseTflops, sustainedShare);
}

/** Two significant digits. */
function rounded(value: number): string {
  return Number(value.toPrecision(2)).toLocaleString("en");
}
