import { expect } from "vitest";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { EmbedOptions, ImageEmbedder } from "./embedder.ts";
import { ServedModels } from "./served-models.ts";

/** Served models for tests: one model with the given embedder of images. */
export function servedImages(
  embedder: ImageEmbedder,
  spec: ModelSpec = defaultModel,
): ServedModels {
  const models = new ServedModels([spec]);
  models.load([{ spec, image: { spec, embedder } }]);
  return models;
}

/** Embedder that computes on command of the test. */
export class HeldEmbedder implements ImageEmbedder {
  waitingItems = 0;
  closed = false;
  isReady = true;
  announced = 0;
  /** Signal of each request so far. */
  readonly signals: (AbortSignal | undefined)[] = [];
  #held: (() => void)[] = [];
  #isReleased = false;
  #failure: Error | undefined;

  async embed(images: readonly Uint8Array[], { signal }: EmbedOptions = {}) {
    this.signals.push(signal);
    this.waitingItems += images.length;
    if (!this.#isReleased) await new Promise<void>((resolve) => this.#held.push(resolve));
    this.waitingItems -= images.length;
    if (this.#failure !== undefined) throw this.#failure;
    return images.map(() => new Float32Array(defaultModel.embedding.width).fill(1));
  }
  announce() {
    this.announced += 1;
    return () => {
      this.announced -= 1;
    };
  }
  async ready() {
    return this.isReady;
  }
  async close() {
    this.closed = true;
  }

  /** Waits until this number of requests has arrived. */
  async holds(count: number): Promise<void> {
    await expect.poll(() => this.#held.length, { interval: 1 }).toBe(count);
  }
  /** Ends the held requests and all later ones. */
  release(failure?: Error): void {
    this.#isReleased = true;
    this.#failure = failure;
    for (const resolve of this.#held.splice(0)) resolve();
  }
}
