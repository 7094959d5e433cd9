import type { Tensor, TensorSpec } from "../../contract/tensor.ts";
import type { ModelSession, RunResult } from "./types.ts";

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
