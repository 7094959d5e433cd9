import type { RequiredDriver } from "../docker/host-requirements.ts";

/**
 * CUDA version of NVIDIA's image releases, newest first, and the oldest driver branch that runs all its minor versions
 * (CUDA Compatibility, minor version compatibility). `from` is the first release with that CUDA, `year.month`.
 */
const cudaOfReleases = [
  { from: "25.08", cuda: 13, branch: 580 },
  { from: "23.01", cuda: 12, branch: 525 },
  { from: "20.06", cuda: 11, branch: 450 },
] as const;

/** Driver that a Triton image requires; undefined if its tag is not one of NVIDIA's, `year.month-…`. */
export function requiredDriver(image: string): RequiredDriver | undefined {
  const release = /:(\d\d\.\d\d)-[^:/@]*(@sha256:[0-9a-f]{64})?$/.exec(image)?.[1];
  if (release === undefined) return undefined;
  const entry = cudaOfReleases.find(({ from }) => release >= from);
  return entry && { image, cuda: entry.cuda, branch: entry.branch };
}
