import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import type { ImageEmbedder, TextEmbedder } from "./embedder.ts";
import type { TokenizerThread } from "./tokenizer-thread.ts";

/** Image tower of a served model. */
export interface ImageModel {
  readonly spec: ModelSpec;
  readonly embedder: ImageEmbedder;
}

/** Text tower of a served model. */
export interface TextModel {
  readonly spec: ModelSpec;
  readonly tokenizer: TokenizerThread;
  readonly embedder: TextEmbedder;
}

/** Loaded towers of one model, at least one. */
export interface ServedModel {
  readonly spec: ModelSpec;
  readonly image?: ImageModel | undefined;
  readonly text?: TextModel | undefined;
  /** Whether the manifest of a file states random weights. */
  readonly hasRandomWeights?: boolean;
}

/** Models of one server. Their specs are available from the start, their towers once all of them are loaded. */
export class ServedModels {
  /** In the order of MODELS; not empty. */
  readonly specs: readonly ModelSpec[];
  #models: readonly ServedModel[] | undefined;

  constructor(specs: readonly ModelSpec[]) {
    this.specs = specs;
  }

  /** Makes the models available, once all are loaded and warm. */
  load(models: readonly ServedModel[]): void {
    this.#models = models;
  }

  /** Whether all models are loaded. */
  get loaded(): boolean {
    return this.#models !== undefined;
  }

  /** In the order of {@link specs}; empty while they are loading. */
  get all(): readonly ServedModel[] {
    return this.#models ?? [];
  }

  /**
   * Returns the image tower of a model.
   *
   * @param name - Default: the first model with an image tower.
   * @throws {EmbedError} `unknown_model`, `unsupported_modality`, or `unavailable` while the models are loading
   */
  image(name: string | undefined): ImageModel {
    return this.#select("image", name);
  }

  /** Returns the text tower of a model, as {@link image}. */
  text(name: string | undefined): TextModel {
    return this.#select("text", name);
  }

  #select<M extends Modality>(modality: M, name: string | undefined): NonNullable<ServedModel[M]> {
    this.checkName(name);
    if (this.#models === undefined) throw new EmbedError("unavailable", "the model is loading");
    const candidates =
      name === undefined ? this.#models : this.#models.filter(({ spec }) => spec.name === name);
    const found = candidates.find((model) => model[modality] !== undefined)?.[modality];
    if (found !== undefined) return found;
    const able = this.#models.filter((model) => model[modality] !== undefined);
    const others = able.map(({ spec }) => spec.name).join(", ");
    throw new EmbedError(
      "unsupported_modality",
      `${name ?? "this server"} embeds no ${modality}s${others === "" ? "" : `; use ${others}`}`,
      { param: "model" },
    );
  }

  /** @throws {EmbedError} `unknown_model` */
  checkName(name: string | undefined): void {
    if (name === undefined || this.specs.some((spec) => spec.name === name)) return;
    const names = this.specs.map((spec) => spec.name).join(", ");
    throw new EmbedError(
      "unknown_model",
      `model must be one of ${names}, got '${name.slice(0, 100)}'`,
      { param: "model" },
    );
  }

  /** Number of images and texts that wait for a model. */
  get waitingItems(): number {
    return this.#embedders().reduce((sum, { waitingItems }) => sum + waitingItems, 0);
  }

  /** Returns whether every required tower can embed now. */
  async ready(): Promise<boolean> {
    const states = await Promise.all(this.#embedders().map((embedder) => embedder.ready()));
    return this.loaded && states.every(Boolean);
  }

  /** Reason of the first tower that cannot embed, if known. */
  get unavailableReason(): string | undefined {
    return this.#embedders().find(({ unavailableReason }) => unavailableReason !== undefined)
      ?.unavailableReason;
  }

  /** Finishes accepted requests, then frees all resources. */
  async close(): Promise<void> {
    const tokenizers = this.all.flatMap(({ text }) => text?.tokenizer ?? []);
    await Promise.all([...this.#embedders(), ...tokenizers].map((part) => part.close()));
  }

  #embedders(): readonly (ImageEmbedder | TextEmbedder)[] {
    return this.all.flatMap(({ image, text }) =>
      [image?.embedder, text?.embedder].filter((embedder) => embedder !== undefined),
    );
  }
}
