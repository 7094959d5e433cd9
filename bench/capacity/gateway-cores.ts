import type { ImagePayload } from "../../contract/model-shapes.ts";
import { publishedFigure, readPublished } from "./published.ts";

/** Sizes of the images that `clipstack bench-gateway` sends. */
export type GatewayImages = "thumbnails" | "photos";

/** Figures of `clipstack-gateway.json`: processor time per image in milliseconds on one core, over all threads. */
const figureNames: Readonly<Record<GatewayImages, Readonly<Record<ImagePayload, string>>>> = {
  thumbnails: { fp32: "small-fp32", uint8: "small", jpeg: "small-forwarded" },
  photos: { fp32: "photo-fp32", uint8: "photo", jpeg: "photo-forwarded" },
};

/** Images per second of the embed server on one core, as a gateway in front of a Triton. */
export function gatewayRatePerCore(images: GatewayImages, payload: ImagePayload): number {
  const name = `clipstack-gateway/${figureNames[images][payload]}`;
  return 1_000 / (publishedFigure(readPublished(), name).value ?? Number.NaN);
}

/** Number of cores with which the gateway keeps up with `imagesPerSecond`, such as those of a GPU. */
export function gatewayCores(
  imagesPerSecond: number,
  images: GatewayImages,
  payload: ImagePayload,
): number {
  return Math.ceil(imagesPerSecond / gatewayRatePerCore(images, payload));
}
