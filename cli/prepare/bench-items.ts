import { resolve } from "node:path";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelTower } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import { readImages } from "../../target/reference/read-images.ts";
import { readTexts, tokenizedTexts } from "../../target/reference/read-texts.ts";
import {
  makeReference,
  type ReferenceItem,
  readSamples,
  sampleLimit,
  samplesFolder,
} from "../../target/reference/reference.ts";
import { embedTexts, sampleTexts } from "../../target/reference/text-reference.ts";
import type { LoadItem } from "../../target/requests/load-items.ts";
import type { BenchArguments } from "./bench-options.ts";

/** Images or texts of a run. */
export interface BenchItems {
  readonly items: readonly LoadItem[];
  /** Items of the parity check, with the embeddings that the local model computes for them. */
  readonly reference: readonly ReferenceItem[];
  /** Description of the items, for the record. */
  readonly settings: BenchRecord["settings"]["images"];
}

/**
 * Reads the images or texts of a run, and embeds some with the local model.
 *
 * @param file - ONNX file of the tower.
 */
export async function readBenchItems(
  { spec, modality }: ModelTower,
  file: string,
  { images, texts }: Pick<BenchArguments, "images" | "texts">,
  onPhase: (text: string) => void,
): Promise<BenchItems> {
  if (modality === "text") {
    if (images !== undefined) throw new UserError("--images requires --modality image");
    return await textItems({ spec, file }, texts, onPhase);
  }
  if (texts !== undefined) throw new UserError("--texts requires --modality text");
  const folder = images === undefined ? samplesFolder : resolve(images);
  onPhase("read the images");
  const items = await readImages(folder, imageTowerOf(spec).input);
  const samples = readSamples(sampleLimit, folder);
  onPhase(`reference embeddings of ${samples.length} images`);
  const reference = await makeReference(samples, { spec, file });
  const sizes = items.map(({ bytes }) => bytes.byteLength);
  return {
    items,
    reference,
    settings: settingsOf(images && "a folder given with --images", sizes),
  };
}

async function textItems(
  model: { readonly spec: ModelTower["spec"]; readonly file: string },
  file: string | undefined,
  onPhase: (text: string) => void,
): Promise<BenchItems> {
  const texts = file === undefined ? sampleTexts : readTexts(file);
  const items = await tokenizedTexts(model, texts);
  const compared = items.slice(0, sampleLimit);
  onPhase(`reference embeddings of ${compared.length} texts`);
  const embeddings = await embedTexts(
    model,
    compared.map(({ text }) => text),
  );
  const reference = compared.map((item, i) => ({
    ...item,
    name: `text ${i + 1}`,
    embedding: embeddings[i]!,
  }));
  const sizes = texts.map((text) => Buffer.byteLength(text));
  return { items, reference, settings: settingsOf(file && "a file given with --texts", sizes) };
}

function settingsOf(
  source = "the samples of clipstack",
  sizes: readonly number[],
): BenchItems["settings"] {
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  return { source, count: sizes.length, meanBytes: Math.round(bytes / sizes.length) };
}
