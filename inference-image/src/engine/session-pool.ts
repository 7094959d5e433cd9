import type { Tensor, TensorSpec } from "../contract/tensor.ts";
import type { ModelSession, RunOptions, RunResult } from "./types.ts";

/** Instances of one model as one session: each run goes to the first of those that have the fewest. */
export class SessionPool implements ModelSession {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly #instances: readonly { readonly session: ModelSession; runs: number }[];

  /** @param sessions - of the same model, at least one. Taken over. */
  constructor(sessions: readonly [ModelSession, ...ModelSession[]]) {
    this.inputs = sessions[0].inputs;
    this.outputs = sessions[0].outputs;
    this.#instances = sessions.map((session) => ({ session, runs: 0 }));
  }

  get instances(): number {
    return this.#instances.length;
  }

  async run(inputs: readonly Tensor[]): Promise<RunResult> {
    const instance = this.#instances.reduce((fewest, next) =>
      next.runs < fewest.runs ? next : fewest,
    );
    instance.runs += 1;
    try {
      return await instance.session.run(inputs);
    } finally {
      instance.runs -= 1;
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#instances.map(({ session }) => session.close()));
  }
}

/**
 * A model with two sets of instances: one instance with all threads, for a batch that is alone, and several with a share each,
 * for batches side by side. Threads that compute one batch together wait for the slowest of them at every operator. The several
 * open when there is first a use for them.
 */
export class DividedSession implements ModelSession {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly #whole: ModelSession;
  readonly #open: (signal: AbortSignal) => Promise<ModelSession>;
  readonly #onFailure: (error: unknown) => void;
  #parts: ModelSession | undefined;
  readonly #closing = new AbortController();
  /** Resolves when the parts are open, or it is known that they will not be. */
  #opening: Promise<void> | undefined;
  #failed = false;

  /**
   * @param whole - Takes every run until the parts are open. Taken over, and closed last.
   * @param open - Opens the parts, of the same model: called with the first run of several items, or that is not alone. Aborted
   *   when the session is closed meanwhile.
   * @param onFailure - Told why they did not open: the whole goes on alone.
   */
  constructor(
    whole: ModelSession,
    open: (signal: AbortSignal) => Promise<ModelSession>,
    onFailure: (error: unknown) => void,
  ) {
    this.inputs = whole.inputs;
    this.outputs = whole.outputs;
    this.#whole = whole;
    this.#open = open;
    this.#onFailure = onFailure;
  }

  get instances(): number {
    return this.#parts?.instances ?? 1;
  }

  get runsExclusively(): boolean {
    return !this.#failed;
  }

  run(inputs: readonly Tensor[], { exclusive = false }: RunOptions = {}): Promise<RunResult> {
    const items = inputs[0]?.shape[0] ?? 0;
    if (!exclusive || items > 1) this.#opening ??= this.#openParts();
    const parts = exclusive ? undefined : this.#parts;
    return (parts ?? this.#whole).run(inputs);
  }

  async #openParts(): Promise<void> {
    const { signal } = this.#closing;
    try {
      signal.throwIfAborted();
      this.#parts = await this.#open(signal);
    } catch (error) {
      this.#failed = true;
      if (!signal.aborted) this.#onFailure(error);
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#opening;
    await this.#parts?.close();
    await this.#whole.close();
  }
}
