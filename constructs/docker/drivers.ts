import { versionsOf } from "../../contract/triton-releases.ts";
import type { RequiredDriver } from "./host-requirements.ts";

/** Oldest driver branch that runs all minor versions of a CUDA version (CUDA Compatibility, minor version compatibility). */
const branches: Readonly<Record<number, number>> = { 11: 450, 12: 525, 13: 580 };

/** Driver that a Triton image requires; undefined if its tag is not one of NVIDIA's, `year.month-…`. */
export function requiredDriver(image: string): RequiredDriver | undefined {
  const cuda = Number.parseInt(versionsOf(image)?.cuda ?? "", 10);
  const branch = branches[cuda];
  return branch === undefined ? undefined : { image, cuda, branch };
}
