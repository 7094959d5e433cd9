import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { openInferenceClient } from "../../client/inference-client.ts";
import { UserError } from "../../contract/user-error.ts";
import type { ModelSubject } from "../record/record.ts";
import type { EncodedImage } from "./embed-requests.ts";

/** What every protocol path must reproduce: the sample images, and what the local model makes of them. */
export interface Reference {
  readonly images: readonly ReferenceImage[];
}

export interface SampleImage extends EncodedImage {
  readonly name: string;
}

/** An image and the model's input: what a Triton takes. */
export interface PreparedImage extends SampleImage {
  /** `[3, 224, 224]` float32, CLIP-normalised. */
  readonly tensor: Float32Array;
}

export interface ReferenceImage extends PreparedImage {
  /** `[512]` float32, unit norm, from the model in this process. */
  readonly embedding: Float32Array;
}

/** Makes the model's input of an encoded image: `[3, 224, 224]` float32. */
export type Preprocess = (image: Uint8Array) => Promise<Float32Array>;

const contentTypes: Readonly<Record<string, string>> = {
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".png": "image/png",
  ".webp": "image/webp",
};

/** Content type of an image file by its name; `undefined` where it is none that the service reads. */
export function imageContentType(name: string): string | undefined {
  return contentTypes[extname(name).toLowerCase()];
}

/**
 * Names of the images in a folder, sorted.
 *
 * @param what - Start of an error: the option that names the folder.
 * @throws {UserError} one line, if there is none.
 */
export function imageNames(folder: string, what: string): readonly string[] {
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => imageContentType(name) !== undefined);
  } catch {
    throw new UserError(`${what}: ${folder} cannot be read`);
  }
  if (names.length > 0) return names.sort();
  throw new UserError(`${what}: ${folder} has no .jpg, .jpeg, .png or .webp file`);
}

/** The awkward ones come first: they are what differs between two ways of reading an image. */
const awkward = [
  /exif|rotat|orient/i,
  /cmyk/i,
  /gr[ae]y/i,
  /\.png$/i,
  /alpha|transparent/i,
  /\.webp$/i,
];

/** Choose at most `limit` of a folder's images: every awkward kind, then others by name. */
export function readSamples(folder: string, limit: number): readonly SampleImage[] {
  const names = imageNames(folder, "sample images");
  const special = awkward.flatMap((kind) => names.find((name) => kind.test(name)) ?? []);
  const chosen = [...new Set([...special, ...names])].slice(0, limit);
  return chosen.map((name) => ({
    name,
    bytes: readFileSync(join(folder, name)),
    contentType: imageContentType(name) ?? "",
  }));
}

/** Embed the samples once, in this process; every environment is compared with the same vectors. */
export async function makeReference(
  samples: readonly SampleImage[],
  modelPath: string,
  preprocess: Preprocess,
): Promise<Reference> {
  const model = await openInferenceClient({ backend: "embed", mode: "local", modelPath });
  try {
    const images: ReferenceImage[] = [];
    for (const sample of samples) {
      const [embedding] = await model.embed([sample.bytes]);
      if (embedding === undefined)
        throw new UserError(`${sample.name}: the local model gave nothing`);
      images.push({ ...sample, embedding, tensor: await preprocess(sample.bytes) });
    }
    return { images };
  } finally {
    await model.close();
  }
}

/** Model file that an environment is compared with, and its description in the record. */
export interface ReferenceModel {
  readonly file: string;
  readonly subject: ModelSubject;
}

/**
 * Chooses the model file that an environment is compared with.
 *
 * @param own - Model file that the environment's services load; absent if it is not on this machine.
 */
export type ChooseModel = (own: string | undefined) => Promise<ReferenceModel>;

/** Reference embeddings of a run: environments with the same model file share them. */
export class References {
  readonly #made = new Map<string, Reference>();

  constructor(
    private readonly samples: readonly SampleImage[],
    private readonly preprocess: Preprocess,
    /** Called before the embeddings of a model are computed. */
    private readonly onMake: (text: string) => void,
  ) {}

  async forModel({ file }: ReferenceModel): Promise<Reference> {
    const known = this.#made.get(file);
    if (known !== undefined) return known;
    this.onMake(`reference embeddings of ${this.samples.length} sample images`);
    const made = await makeReference(this.samples, file, this.preprocess);
    this.#made.set(file, made);
    return made;
  }
}

/** `count` images of the reference, from its beginning and around again. */
export function cycle(reference: Reference, count: number): readonly ReferenceImage[] {
  const { images } = reference;
  return Array.from({ length: count }, (_, i) => images[i % images.length] as ReferenceImage);
}

/** One tensor of several images: `[B, 3, 224, 224]`. */
export function stack(images: readonly ReferenceImage[]): Float32Array {
  const width = images[0]?.tensor.length ?? 0;
  const data = new Float32Array(width * images.length);
  images.forEach((image, i) => {
    data.set(image.tensor, i * width);
  });
  return data;
}
