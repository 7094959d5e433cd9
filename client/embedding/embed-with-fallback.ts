import { ClientError } from "./client-error.ts";
import type { LocalTower } from "./local-model.ts";

/** Time for which the local model is used before the service is tried again. */
const retryRemoteMs = 30_000;

/** Errors that do not concern the request, so the local model may succeed. */
const fallbackCodes: ReadonlySet<ClientError["code"]> = new Set(["unavailable", "timeout"]);

/** Embeds 1 to 32 items. */
export type EmbedBatch<Item> = (items: readonly Item[]) => Promise<readonly Float32Array[]>;

/** Service that the local model replaces while it is unavailable, for images and texts alike. */
export class Fallback {
  readonly #onFallback: (reason: string) => void;
  #isReported = false;
  #retryRemoteAt = 0;

  /** @param onFallback - Called the first time that the local model is used, with the reason. */
  constructor(onFallback: (reason: string) => void) {
    this.#onFallback = onFallback;
  }

  /** Returns a function that embeds remotely, or with the local model while the service is unavailable. */
  embedder<Item>(remote: EmbedBatch<Item>, local: LocalTower<Item>): EmbedBatch<Item> {
    return async (items) => {
      let reason: ClientError | undefined;
      if (performance.now() >= this.#retryRemoteAt) {
        try {
          return await remote(items);
        } catch (error) {
          if (!(error instanceof ClientError) || !fallbackCodes.has(error.code)) throw error;
          reason = error;
          this.#retryRemoteAt = performance.now() + retryRemoteMs;
        }
      }
      await this.#load(local, reason);
      if (!this.#isReported && reason !== undefined) {
        this.#isReported = true;
        this.#onFallback(reason.problem);
      }
      return await local.embed(items);
    };
  }

  async #load(
    local: Pick<LocalTower<unknown>, "load">,
    reason: ClientError | undefined,
  ): Promise<void> {
    try {
      await local.load();
    } catch (cause) {
      const { code, problem } = cause as ClientError;
      const prefix = reason === undefined ? "" : `${reason.problem}; `;
      this.#retryRemoteAt = 0;
      throw new ClientError(
        reason?.code ?? code,
        `${prefix}cannot fall back to the local model: ${problem}`,
        { cause },
      );
    }
  }
}
