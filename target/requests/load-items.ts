import type { TokenRow } from "../../inference/session/token-tensor.ts";
import type { EncodedImage } from "./embed-requests.ts";

/** Image in every format that the endpoints accept. */
export interface LoadImage extends EncodedImage {
  /** Normalised input of the image tower, float32. */
  readonly tensor: Float32Array;
}

/** Text in every format that the endpoints accept. */
export interface LoadText {
  readonly text: string;
  /** Input of the text tower. */
  readonly ids: TokenRow;
}

/** Image or text that a load sends. */
export type LoadItem = LoadImage | LoadText;

export function isLoadText(item: LoadItem): item is LoadText {
  return "text" in item;
}

/** Images among items. */
export function loadImages(items: readonly LoadItem[]): readonly LoadImage[] {
  return items.filter((item) => !isLoadText(item)) as readonly LoadImage[];
}
