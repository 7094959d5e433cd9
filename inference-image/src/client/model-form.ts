import {
  openclipVitB32,
  openclipVitB32Jpeg,
  openclipVitB32U8,
} from "../contract/model-signature.ts";
import { serverEnv } from "../contract/server-env.ts";
import type { Tensor, TensorSpec } from "../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../engine/image-tensor.ts";
import { ImageError, preprocess } from "../engine/preprocess.ts";
import type { ModelMetadata } from "../triton/transport.ts";
import { ClientError } from "./client-error.ts";

/** What a model takes for an image: the file, its pixels, or the normalised tensor. */
export interface ModelForm {
  /** @throws {ClientError} `image`, where the images are decoded here and one of them cannot be. */
  inputOf(images: readonly Uint8Array[]): Promise<Tensor>;
}

/** The forms, the smallest on the wire first: about 10 KB, 150 KB and 602 KB an image. */
const forms: readonly (ModelForm & { readonly input: TensorSpec })[] = [
  {
    input: openclipVitB32Jpeg.inputs[0],
    inputOf: async (images) => ({
      name: openclipVitB32Jpeg.inputs[0].name,
      dataType: "BYTES",
      shape: [images.length, ...openclipVitB32Jpeg.inputs[0].dims],
      data: images,
    }),
  },
  {
    input: openclipVitB32U8.inputs[0],
    inputOf: async (images) => pixelTensor(await decoded(images)),
  },
  {
    input: openclipVitB32.inputs[0],
    inputOf: async (images) => imageTensor(await decoded(images)),
  },
];

/**
 * Which form a model takes, by its metadata.
 *
 * @throws {ClientError} `rejected` when it is another kind of model.
 */
export function formOf({ name, inputs }: ModelMetadata): ModelForm {
  const [input, ...others] = inputs;
  const form = forms.find(
    (candidate) =>
      others.length === 0 &&
      candidate.input.name === input?.name &&
      candidate.input.dataType === input.dataType &&
      [-1, ...candidate.input.dims].join() === input.dims.join(),
  );
  if (form !== undefined) return form;
  const shown = ({ name, dataType, dims }: TensorSpec) => `${name} ${dataType} [${dims.join(",")}]`;
  const expected = forms.map(({ input }) => shown({ ...input, dims: [-1, ...input.dims] }));
  throw new ClientError(
    "rejected",
    `${name}: its input must be ${expected.join(" or ")}, got ${inputs.map(shown).join(", ") || "none"}`,
  );
}

async function decoded(images: readonly Uint8Array[]): Promise<readonly Uint8Array[]> {
  const { MAX_IMAGE_PIXELS: maxPixels } = serverEnv.parse({});
  return await Promise.all(
    images.map((image, i) =>
      preprocess(image, { maxPixels }).catch((cause: unknown) => {
        if (!(cause instanceof ImageError)) throw cause;
        throw new ClientError("image", `image ${i} ${cause.message}`, { cause, image: i });
      }),
    ),
  );
}
