import { readSamples, type SampleImage } from "../../target/reference/reference.ts";

/** Reads the sample images of this checkout of at most `maxBytes`, the smallest first. */
export function trialImages(maxBytes = Number.POSITIVE_INFINITY): readonly SampleImage[] {
  return readSamples(Number.POSITIVE_INFINITY)
    .filter(({ bytes }) => bytes.length <= maxBytes)
    .sort((a, b) => a.bytes.length - b.bytes.length);
}
