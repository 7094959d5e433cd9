import {
  makeReference,
  type Reference,
  type ReferenceImage,
  type ReferenceModel,
  readSamples,
} from "./reference.ts";
import { makeTextReference, type TextReference } from "./text-reference.ts";

/** Sample images and texts with their local embeddings. */
export interface Samples {
  readonly reference: Reference;
  readonly textReference: TextReference;
}

/** Reference embeddings of a run: environments with the same model file share them. */
export class References {
  readonly #references = new Map<string, readonly ReferenceImage[]>();

  readonly samples = readSamples();

  /** @param onMake - Called before the embeddings of a model are computed. */
  constructor(private readonly onMake: (text: string) => void) {}

  async forModels(models: readonly ReferenceModel[]): Promise<Samples> {
    const reference = new Map<string, readonly ReferenceImage[]>();
    for (const model of models) {
      if (model.modality !== "image") continue;
      reference.set(model.spec.name, await this.#forModel(model));
    }
    return { reference, textReference: await makeTextReference(models) };
  }

  async #forModel(model: ReferenceModel): Promise<readonly ReferenceImage[]> {
    const key = `${model.spec.name} ${model.file}`;
    const known = this.#references.get(key);
    if (known !== undefined) return known;
    this.onMake(
      `reference embeddings of ${this.samples.length} sample images with ${model.spec.name}`,
    );
    const made = await makeReference(this.samples, model);
    this.#references.set(key, made);
    return made;
  }
}
