import { expect, test } from "vitest";
import type { Tensor } from "../../contract/tensor.ts";
import { SessionPool } from "./session-pool.ts";
import type { ModelSession } from "./types.ts";

/** Session that answers on command. */
class Instance implements ModelSession {
  readonly inputs = [{ name: "x", dataType: "FP32", dims: [1] }] as const;
  readonly outputs = [{ name: "y", dataType: "FP32", dims: [1] }] as const;
  readonly ends: ((error?: Error) => void)[] = [];
  closed = false;

  run(inputs: readonly Tensor[]): Promise<{ outputs: readonly Tensor[]; inferUs: number }> {
    return new Promise((resolve, reject) => {
      this.ends.push((error) => (error ? reject(error) : resolve({ outputs: inputs, inferUs: 1 })));
    });
  }

  async close(): Promise<void> {
    this.closed = true;
  }
}

function setup() {
  const first = new Instance();
  const second = new Instance();
  const runs = () => [first.ends.length, second.ends.length];
  return { first, second, runs, pool: new SessionPool([first, second]) };
}

test("has the signature of its instances", () => {
  const { pool, first } = setup();
  expect(pool.instances).toBe(2);
  expect(pool.inputs).toBe(first.inputs);
  expect(pool.outputs).toBe(first.outputs);
});

test("assigns a run to the instance with the fewest runs", async () => {
  const { pool, first, second, runs } = setup();
  const one = pool.run([]);
  expect(runs()).toEqual([1, 0]);
  const two = pool.run([]);
  expect(runs()).toEqual([1, 1]);
  second.ends[0]!();
  await two;
  const three = pool.run([]);
  expect(runs()).toEqual([1, 2]);
  first.ends[0]!();
  second.ends[1]!();
  await Promise.all([one, three]);
});

test("an instance whose run failed gets the next one", async () => {
  const { pool, first, runs } = setup();
  const failed = pool.run([]);
  first.ends[0]!(new Error("no"));
  await expect(failed).rejects.toThrow("no");
  void pool.run([]);
  expect(runs()).toEqual([2, 0]);
});

test("closes all instances", async () => {
  const { pool, first, second } = setup();
  await pool.close();
  expect([first.closed, second.closed]).toEqual([true, true]);
});
