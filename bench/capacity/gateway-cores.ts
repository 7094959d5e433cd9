import type { ImagePayload } from "../../contract/model-shapes.ts";

/** Sizes of the images that `clipstack bench-gateway` sends. */
export type GatewayImages = "thumbnails" | "photos";

/**
 * Processor time of the embed server as a gateway per image, in milliseconds on one core, over all threads: medians of
 * `bench/records/gateway/2026-11-24T12-16-12Z-bench-gateway.json`, measured while other processes used the machine.
 */
const processorMs: Readonly<Record<GatewayImages, Readonly<Record<ImagePayload, number>>>> = {
  thumbnails: { fp32: 2.45, uint8: 1.89, jpeg: 1.06 },
  photos: { fp32: 10.3, uint8: 8.85, jpeg: 2.46 },
};

/** Images per second of the gateway on one core. */
export function gatewayRatePerCore(images: GatewayImages, payload: ImagePayload): number {
  return 1_000 / processorMs[images][payload];
}

/** Number of cores with which the gateway keeps up with `imagesPerSecond`, such as those of a GPU. */
export function gatewayCores(
  imagesPerSecond: number,
  images: GatewayImages,
  payload: ImagePayload,
): number {
  return Math.ceil(imagesPerSecond / gatewayRatePerCore(images, payload));
}
