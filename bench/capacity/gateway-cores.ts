import { publishedFacts } from "./published-facts.ts";
import { gatewayMs } from "./published-parameters.ts";

/** Sizes of the published JPEG files: a thumbnail of 320 × 240 and a photo of 1600 × 1200. */
export const thumbnailBytes = 10_000;
export const photoBytes = 300_000;

/** JPEG files per second of the embed server on one core, as a gateway that sends float32 tensors to a Triton server. */
export function gatewayRatePerCore(jpegBytes: number): number {
  return 1_000 / gatewayMs(publishedFacts().parameters, jpegBytes);
}

/** Number of cores with which the gateway keeps up with `imagesPerSecond`, such as those of a GPU. */
export function gatewayCores(imagesPerSecond: number, jpegBytes: number): number {
  return Math.ceil(imagesPerSecond / gatewayRatePerCore(jpegBytes));
}
