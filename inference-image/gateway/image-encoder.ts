import { toParts } from "../../client/triton/wire.ts";
import type { ImageTower } from "../../contract/model-spec.ts";
import { normaliseInto } from "../../inference/preprocess/image-tensor.ts";
import type { PayloadFormat } from "../../inference/session/payload-format.ts";
import type { EncodedItems } from "./triton-tower.ts";

/** Maximum number of float32 arrays kept for reuse: 19 MB for 224 × 224 pixels. */
const maxSpares = 32;

/**
 * Returns a function that encodes images for a model, one part per image. Pixels and files are not copied, and the memory of float32
 * values is reused, because allocating it for every image causes major garbage collections.
 */
export function imageEncoder(
  { tensorSpec, input, tensor }: PayloadFormat,
  tower: ImageTower,
): (images: readonly Uint8Array[]) => EncodedItems {
  const { name, dataType, dims } = tensorSpec;
  const shaped = (images: readonly Uint8Array[], parts: readonly Uint8Array[]) => ({
    name,
    dataType,
    shape: [images.length, ...dims],
    parts,
  });
  if (dataType === "UINT8" && input === "pixels")
    return (images) => ({ tensor: shaped(images, images) });
  if (dataType !== "FP32") return (images) => ({ tensor: toParts(tensor(images)) });
  const spares: Float32Array[] = [];
  return (images) => {
    const arrays = images.map((image) =>
      normaliseInto(spares.pop() ?? new Float32Array(image.length), image, tower.input),
    );
    return {
      tensor: shaped(
        images,
        arrays.map(({ buffer, byteLength }) => new Uint8Array(buffer, 0, byteLength)),
      ),
      release: () => spares.push(...arrays.slice(0, Math.max(0, maxSpares - spares.length))),
    };
  };
}
