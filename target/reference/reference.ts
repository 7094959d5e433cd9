import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import { environmentModel } from "../../artefact/environment-model.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ImageInput, Modality, ModelSpec } from "../../contract/model-spec.ts";
import { maxImagePixels } from "../../contract/preprocess-parameters.ts";
import { readFailure } from "../../contract/read-failure.ts";
import { UserError } from "../../contract/user-error.ts";
import { normalised } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import type { EncodedImage } from "../requests/embed-requests.ts";
import type { LoadItem } from "../requests/load-items.ts";
import type { ModelSubject } from "../subject/subject.ts";

/** Sample images and their local embeddings by name of the model, which every endpoint must reproduce. */
export type Reference = ReadonlyMap<string, readonly ReferenceImage[]>;

export interface SampleImage extends EncodedImage {
  readonly name: string;
}

/** Image with its preprocessed model input. */
export interface PreparedImage extends SampleImage {
  /** Normalised input of the image tower, float32. */
  readonly tensor: Float32Array;
}

export interface ReferenceImage extends PreparedImage {
  /** Unit norm, from the model in this process. */
  readonly embedding: Float32Array;
}

/** Image or text with its local embedding. */
export type ReferenceItem = LoadItem & {
  /** File name, or number of the text. */
  readonly name: string;
  /** Unit norm, from the model in this process. */
  readonly embedding: Float32Array;
};

/** Returns the normalised model input of an encoded image. */
export async function normalisedInput(image: Uint8Array, input: ImageInput): Promise<Float32Array> {
  return normalised(await preprocess(image, input, { maxPixels: maxImagePixels }), input);
}

/** Folder of the sample images. */
export const samplesFolder = join(packageFolder, "model-tools/samples");
/** Number of samples that are compared with their local embeddings. */
export const sampleLimit = 8;

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
 */
export function imageNames(folder: string, source: string): readonly string[] {
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => imageContentType(name) !== undefined);
  } catch (error) {
    throw new UserError(`${source}: ${folder} ${readFailure(error)}`);
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
export function readSamples(limit = sampleLimit, folder = samplesFolder): readonly SampleImage[] {
  const names = imageNames(folder, "sample images");
  const special = specialKinds.flatMap((kind) => names.find((name) => kind.test(name)) ?? []);
  const chosen = [...new Set([...special, ...names])].slice(0, limit);
  return chosen.map((name) => ({
    name,
    bytes: readFileSync(join(folder, name)),
    contentType: imageContentType(name) ?? "",
  }));
}

/** Embeds the samples with a model in this process. */
export async function makeReference(
  samples: readonly SampleImage[],
  { spec, file }: Pick<ReferenceModel, "spec" | "file">,
): Promise<readonly ReferenceImage[]> {
  const { input } = imageTowerOf(spec);
  const model = await openLocalEmbedder({ spec, modelPath: file });
  try {
    const images: ReferenceImage[] = [];
    for (const sample of samples) {
      const [embedding] = await model.embed([sample.bytes]);
      if (embedding === undefined)
        throw new UserError(`${sample.name}: the local model returned no embedding`);
      images.push({ ...sample, embedding, tensor: await normalisedInput(sample.bytes, input) });
    }
    return images;
  } finally {
    await model.close();
  }
}

/** Model file that an environment is compared with, and its description in the record. */
export interface ReferenceModel {
  readonly spec: ModelSpec;
  readonly modality: Modality;
  /** ONNX file of the tower. */
  readonly file: string;
  readonly subject: ModelSubject;
}

/**
 * Chooses the file that a tower of an environment is compared with.
 *
 * @param modelFile - File that the environment's services load; absent if it is not on this machine.
 * @param environment - Name of the environment.
 */
export type ChooseModel = (
  spec: ModelSpec,
  modality: Modality,
  modelFile: string | undefined,
  environment: string,
) => Promise<ReferenceModel>;

/** Chooses the files of all towers of an environment. */
export async function referenceModels(
  artefact: Artefact,
  moduleFolder: string,
  choose: ChooseModel,
): Promise<readonly ReferenceModel[]> {
  const models: ReferenceModel[] = [];
  for (const spec of artefact.environment.models) {
    for (const modality of ["image", "text"] as const) {
      if (spec.towers[modality] === undefined) continue;
      const own = environmentModel(artefact, spec.name, modality, moduleFolder, existsSync);
      models.push(await choose(spec, modality, own, artefact.environment.name));
    }
  }
  return models;
}

/** First sample image, for requests whose embeddings are not compared. */
export function firstImage(reference: Reference): ReferenceImage | undefined {
  return [...reference.values()][0]?.[0];
}

/** `count` images or texts of a model's reference, repeated as needed. */
export function cycle<Item>(
  reference: ReadonlyMap<string, readonly Item[]>,
  { name }: Pick<ModelSpec, "name">,
  count: number,
): readonly Item[] {
  const items = reference.get(name);
  if (items === undefined) throw new Error(`no reference embeddings of ${name}`);
  return Array.from({ length: count }, (_, i) => items[i % items.length] as Item);
}
