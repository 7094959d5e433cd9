import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { PixelInput } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";

export function towerOf(name: string) {
  return imageTowerOf(modelCatalogue.get(name)!);
}

/** Image tower of ViT-B/32: the shortest side to 224 pixels with bicubic, centre crop. */
export const vitB32 = towerOf("openclip-vit-b32");

/** Image input of ViT-B/32 with another size. */
export function squareInput(side: number): PixelInput {
  const size = { width: side, height: side };
  return { ...vitB32.input, size, resize: { mode: "shortest-edge", edge: side } };
}

/** Facts of an image input that determine its pixels. */
export function pixelFacts({ size, resize, filter, rgbConversion }: PixelInput): PixelInput {
  return { size, resize, filter, rgbConversion };
}
