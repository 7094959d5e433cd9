import type { GpuName } from "../../contract/gpus.ts";
import type { RequiredDriver } from "../docker/host-requirements.ts";

/**
 * CUDA of NVIDIA's releases, and the oldest branch of the driver that runs any of its minor versions (CUDA Compatibility,
 * minor version compatibility). First release with it first: `year.month`.
 */
const cudaOfReleases = [
  { from: "25.08", cuda: 13, branch: 580 },
  { from: "23.01", cuda: 12, branch: 525 },
  { from: "20.06", cuda: 11, branch: 450 },
] as const;

/** What driver an image needs. NVIDIA's tags are `year.month-…`; of another tag, or a digest, nothing is known. */
export function requiredDriver(image: string): RequiredDriver | undefined {
  const release = /:(\d\d\.\d\d)-[^:/@]*(@sha256:[0-9a-f]{64})?$/.exec(image)?.[1];
  if (release === undefined) return undefined;
  const found = cudaOfReleases.find(({ from }) => release >= from);
  return found === undefined ? undefined : { image, cuda: found.cuda, branch: found.branch };
}

/** Not data-centre GPUs: for these the compatibility package of NVIDIA's images does nothing. */
const workstation: ReadonlySet<GpuName> = new Set<GpuName>([
  "rtx-a4000",
  "rtx-a6000",
  "rtx-4080",
  "rtx-4090",
  "rtx-pro-6000-blackwell",
]);

export function isDataCentre(gpu: GpuName): boolean {
  return !workstation.has(gpu);
}
