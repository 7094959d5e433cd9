import { dirname, join } from "node:path";
import { textTowerOf } from "../../contract/model-shapes.ts";
import { openLocalTextEmbedder } from "../../inference/session/local-embedder.ts";
import type { LoadText } from "../requests/load-items.ts";
import { tokenizedTexts } from "./read-texts.ts";
import type { ReferenceModel } from "./reference.ts";

/** Text with its local embedding. */
export interface ReferenceText extends LoadText {
  /** The text itself. */
  readonly name: string;
  /** Unit norm, from the model in this process. */
  readonly embedding: Float32Array;
}

/** Longer than every context length. */
export const longText = "waves and rocks ".repeat(100);

/** Texts of several scripts and lengths. */
export const sampleTexts: readonly string[] = [
  "a photo of mountains at sunset",
  "Zwei Hunde am Strand",
  "海辺の二匹の犬",
  "собака &amp; кошка 🐕",
  longText,
];

/** Embeddings of {@link sampleTexts} by name of the model, which every endpoint must reproduce. */
export type TextReference = ReadonlyMap<string, readonly ReferenceText[]>;

/** Embeds the sample texts with the text towers among `models`, in this process. */
export async function makeTextReference(models: readonly ReferenceModel[]): Promise<TextReference> {
  const reference = new Map<string, readonly ReferenceText[]>();
  for (const model of models) {
    if (model.modality !== "text") continue;
    const texts = await tokenizedTexts(model, sampleTexts);
    const embeddings = await embedTexts(model, sampleTexts);
    reference.set(
      model.spec.name,
      embeddings.map((embedding, i) => ({ ...texts[i]!, name: texts[i]!.text, embedding })),
    );
  }
  return reference;
}

/** Embeds texts with a text tower in this process. */
export async function embedTexts(
  { spec, file }: Pick<ReferenceModel, "spec" | "file">,
  texts: readonly string[],
): Promise<readonly Float32Array[]> {
  const vocabulary = join(dirname(file), textTowerOf(spec).input.tokenizer.file);
  const model = await openLocalTextEmbedder({ spec, modelPath: file, vocabulary });
  return await model.embed(texts).finally(() => model.close());
}
