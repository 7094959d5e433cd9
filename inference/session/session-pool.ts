import type { Tensor, TensorSpec } from "../../contract/tensor.ts";
import type { ModelSession, RunResult } from "./types.ts";

/** Several instances of a model as one session. A run goes to the instance with the fewest outstanding runs. */
export class SessionPool implements ModelSession {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly #instances: readonly { readonly session: ModelSession; runs: number }[];

  /** @param sessions - Sessions of the same model. Closing the pool closes them. */
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
