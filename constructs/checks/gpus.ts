import { finding, findingIf } from "./findings.ts";

/** Label of a container that only reads the metrics of GPUs, which the review reads. */
export const gpuMetricsLabel = "reads-gpu-metrics";

/** GPU of a host: its index in `nvidia-smi`, or its UUID, which stays the same when cards are moved. */
export type GpuId = number | string;

/** Rejects GPU indices that the host does not have, repeated GPUs and an empty list. */
export function gpuIndexFindings(gpus: readonly GpuId[], hostCount: number): readonly string[] {
  if (gpus.length === 0) return [finding("gpus", "list at least one GPU", "[]")];
  const outOfRange = gpus
    .filter((gpu) => typeof gpu === "number" && (gpu < 0 || gpu >= hostCount))
    .map((gpu) =>
      finding("gpus", `be 0 to ${hostCount - 1} (host.count is ${hostCount})`, String(gpu)),
    );
  const repeated = gpus
    .filter((gpu, position) => gpus.indexOf(gpu) !== position)
    .map((gpu) => finding("gpus", "not repeat a GPU", `${gpu} twice`));
  return [...outOfRange, ...repeated];
}

/** Rejects a mix of indices and UUIDs on one host, which may name the same GPU twice, and more UUIDs than the host has GPUs. */
export function gpuNamingFindings(gpus: readonly GpuId[], hostCount: number): readonly string[] {
  const uuids = gpus.filter((gpu) => typeof gpu === "string" && !isMig(gpu)) as string[];
  const named = gpus.find((gpu) => typeof gpu === "string");
  const index = gpus.find((gpu) => typeof gpu === "number");
  if (named !== undefined && index !== undefined) {
    const must = "be named all by index or all by UUID";
    return [finding("gpus", must, `${index} and ${named}`)];
  }
  return findingIf(
    uuids.length > hostCount,
    "gpus",
    `be at most ${hostCount} UUIDs (host.count is ${hostCount})`,
    `${uuids.length}: ${uuids.join(", ")}`,
  );
}

/** Returns whether a GPU is a MIG device: a partition of a GPU, with a UUID of its own. */
export function isMig(gpu: GpuId): boolean {
  return typeof gpu === "string" && gpu.startsWith("MIG-");
}

/** Rejects several MIG devices in one container, because a CUDA process uses only the first, and MIG devices without their profile. */
export function migFindings(
  gpus: readonly GpuId[],
  profile: string | undefined,
): readonly string[] {
  if (!gpus.some(isMig)) return [];
  return [
    ...findingIf(
      gpus.length > 1,
      "gpus",
      "list one MIG device, because a CUDA process uses only one: several need a Triton server each (topology per-gpu)",
      gpus.join(", "),
    ),
    ...findingIf(
      profile === undefined,
      "host.migProfile",
      "be set if gpus has MIG devices: the models must fit their memory",
      "nothing",
    ),
  ];
}
