import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { openInferenceClient } from "../../client/inference-client.ts";
import { UserError } from "../../contract/user-error.ts";
import type { ModelSubject } from "../record/record.ts";
import type { EncodedImage } from "./embed-requests.ts";

/** Sample images and their local embeddings, which every endpoint must reproduce. */
export interface Reference {
  readonly images: readonly ReferenceImage[];
}

export interface SampleImage extends EncodedImage {
  readonly name: string;
}

/** Image with its preprocessed model input. */
export interface PreparedImage extends SampleImage {
  /** `[3, 224, 224]` float32, CLIP-normalised. */
  readonly tensor: Float32Array;
}

export interface ReferenceImage extends PreparedImage {
  /** `[512]` float32, unit norm, from the model in this process. */
  readonly embedding: Float32Array;
}

/** Returns the model input of an encoded image: `[3, 224, 224]` float32. */
export type Preprocess = (image: Uint8Array) => Promise<Float32Array>;

const contentTypes: Readonly<Record<string, string>> = {
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".png": "image/png",
  ".webp": "image/webp",
};

/** Content type of an image file by its extension; `undefined` if the service does not support it. */
export function imageContentType(name: string): string | undefined {
  return contentTypes[extname(name).toLowerCase()];
}

/**
 * Sorted names of the images in a folder.
 *
 * @param source - Option that names the folder; prefix of error messages.
 * @throws {UserError} if the folder cannot be read or has no image.
 */
export function imageNames(folder: string, source: string): readonly string[] {
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => imageContentType(name) !== undefined);
  } catch {
    throw new UserError(`${source}: ${folder} cannot be read`);
  }
  if (names.length > 0) return names.sort();
  throw new UserError(`${source}: ${folder} has no .jpg, .jpeg, .png or .webp file`);
}

/** Image kinds that decoders treat differently; these are chosen first. */
const specialKinds = [
  /exif|rotat|orient/i,
  /cmyk/i,
  /gr[ae]y/i,
  /\.png$/i,
  /alpha|transparent/i,
  /\.webp$/i,
];

/** Reads at most `limit` images of a folder: one of each special kind, then others by name. */
export function readSamples(folder: string, limit: number): readonly SampleImage[] {
  const names = imageNames(folder, "sample images");
  const special = specialKinds.flatMap((kind) => names.find((name) => kind.test(name)) ?? []);
  const chosen = [...new Set([...special, ...names])].slice(0, limit);
  return chosen.map((name) => ({
    name,
    bytes: readFileSync(join(folder, name)),
    contentType: imageContentType(name) ?? "",
  }));
}

/** Embeds the samples in this process. */
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
        throw new UserError(`${sample.name}: the local model returned no embedding`);
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
 * @param modelFile - Model file that the environment's services load; absent if it is not on this machine.
 */
export type ChooseModel = (modelFile: string | undefined) => Promise<ReferenceModel>;

/** Reference embeddings of a run: environments with the same model file share them. */
export class References {
  readonly #references = new Map<string, Reference>();

  constructor(
    private readonly samples: readonly SampleImage[],
    private readonly preprocess: Preprocess,
    /** Called before the embeddings of a model are computed. */
    private readonly onMake: (text: string) => void,
  ) {}

  async forModel({ file }: ReferenceModel): Promise<Reference> {
    const known = this.#references.get(file);
    if (known !== undefined) return known;
    this.onMake(`reference embeddings of ${this.samples.length} sample images`);
    const made = await makeReference(this.samples, file, this.preprocess);
    this.#references.set(file, made);
    return made;
  }
}

/** `count` images of the reference, repeated as needed. */
export function cycle(reference: Reference, count: number): readonly ReferenceImage[] {
  const { images } = reference;
  return Array.from({ length: count }, (_, i) => images[i % images.length] as ReferenceImage);
}
