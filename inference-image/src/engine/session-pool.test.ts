import { describe, expect, test } from "vitest";
import type { Tensor } from "../contract/tensor.ts";
import { DividedSession, SessionPool } from "./session-pool.ts";
import type { ModelSession } from "./types.ts";

/** Answers when it is told to. */
class Instance implements ModelSession {
  readonly inputs = [{ name: "x", dataType: "FP32", dims: [1] }] as const;
  readonly outputs = [{ name: "y", dataType: "FP32", dims: [1] }] as const;
  readonly ends: ((error?: Error) => void)[] = [];
  closed = false;
  onClose = () => {};

  run(inputs: readonly Tensor[]): Promise<{ outputs: readonly Tensor[]; inferUs: number }> {
    return new Promise((resolve, reject) => {
      this.ends.push((error) => (error ? reject(error) : resolve({ outputs: inputs, inferUs: 1 })));
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    this.onClose();
  }
}

function setup() {
  const first = new Instance();
  const second = new Instance();
  const runs = () => [first.ends.length, second.ends.length];
  return { first, second, runs, pool: new SessionPool([first, second]) };
}

test("is the model of its instances", () => {
  const { pool, first } = setup();
  expect(pool.instances).toBe(2);
  expect(pool.inputs).toBe(first.inputs);
  expect(pool.outputs).toBe(first.outputs);
});

test("gives a run to the instance that has the fewest", async () => {
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

describe("a divided session", () => {
  function divided() {
    const whole = new Instance();
    const parts = setup();
    let resolve = (_opened: ModelSession) => {};
    let reject = (_reason: Error) => {};
    const opening = new Promise<ModelSession>((...settle) => {
      [resolve, reject] = settle;
    });
    const failures: unknown[] = [];
    let signal: AbortSignal | undefined;
    let count = 0;
    const session = new DividedSession(
      whole,
      (given) => {
        signal = given;
        count += 1;
        return opening;
      },
      (error) => failures.push(error),
    );
    const aborted = () => signal?.aborted;
    const opened = () => count;
    const runs = () => [whole.ends.length, ...parts.runs()];
    const open = async () => {
      resolve(parts.pool);
      await opening;
    };
    const fail = async () => {
      reject(new Error("no"));
      await expect(opening).rejects.toThrow("no");
    };
    return { ...parts, whole, session, runs, open, fail, failures, aborted, opened };
  }

  const images = (count: number): readonly Tensor[] => [
    { name: "x", dataType: "FP32", shape: [count, 1], data: new Float32Array(count) },
  ];

  test("is one instance until its parts are open", async () => {
    const { session, whole, runs, open } = divided();
    expect([session.instances, session.runsExclusively]).toEqual([1, true]);
    expect([session.inputs, session.outputs]).toEqual([whole.inputs, whole.outputs]);
    void session.run(images(2));
    expect(runs()).toEqual([1, 0, 0]);
    await open();
    expect([session.instances, session.runsExclusively]).toEqual([2, true]);
  });

  test.each([
    ["several images", 2, true],
    ["an image that is not alone", 1, false],
  ])("opens its parts once, with %s", (_what, count, exclusive) => {
    const { session, opened } = divided();
    void session.run(images(1), { exclusive: true });
    void session.run(images(1), { exclusive: true });
    expect(opened()).toBe(0);
    void session.run(images(count), { exclusive });
    void session.run(images(count), { exclusive });
    expect(opened()).toBe(1);
  });

  test("gives what is exclusive to the whole, and the rest to the parts", async () => {
    const { session, runs, open } = divided();
    void session.run(images(2));
    await open();
    void session.run(images(2), { exclusive: true });
    expect(runs()).toEqual([2, 0, 0]);
    void session.run(images(1), { exclusive: false });
    void session.run(images(2));
    expect(runs()).toEqual([2, 1, 1]);
  });

  test("goes on alone where the parts do not open, and says why", async () => {
    const { session, whole, runs, fail, failures } = divided();
    void session.run(images(2));
    await fail();
    expect(failures).toEqual([new Error("no")]);
    expect([session.instances, session.runsExclusively]).toEqual([1, false]);
    void session.run(images(2));
    expect(runs()).toEqual([2, 0, 0]);
    await session.close();
    expect(whole.closed).toBe(true);
  });

  test("does not wait for more parts when it is closed", async () => {
    const { session, whole, fail, failures, aborted } = divided();
    void session.run(images(2));
    expect(aborted()).toBe(false);
    const closed = session.close();
    expect(aborted()).toBe(true);
    await fail();
    await closed;
    expect(failures).toEqual([]);
    expect(whole.closed).toBe(true);
  });

  test("closes the whole last, which has the weights, and waits for parts that are opening", async () => {
    const { session, whole, first, second, open } = divided();
    void session.run(images(2));
    const order: string[] = [];
    for (const [name, one] of Object.entries({ whole, first, second })) {
      one.onClose = () => order.push(name);
    }
    const closed = session.close();
    await open();
    await closed;
    expect(order).toEqual(["first", "second", "whole"]);
  });
});
