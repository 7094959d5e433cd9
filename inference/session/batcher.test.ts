import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Fp32Tensor, Tensor } from "../../contract/tensor.ts";
import { InferenceError } from "../threads/inference-error.ts";
import { Batcher, type BatcherOptions, type Execution } from "./batcher.ts";
import type { InferResult, ModelSession } from "./types.ts";

/** Session with runs that end on command of the test. The model doubles each value. */
class FakeSession implements ModelSession {
  readonly inputs = [{ name: "x", dataType: "FP32", dims: [-1] }] as const;
  readonly outputs = [{ name: "y", dataType: "FP32", dims: [-1] }] as const;
  /** Rows of each run, in order. */
  readonly runs: (readonly number[])[] = [];
  readonly #ends: ((error?: Error) => void)[] = [];

  constructor(readonly instances?: number) {}

  run([input]: readonly Tensor[]): Promise<{ outputs: readonly Tensor[]; inferUs: number }> {
    const { shape, data } = input as Fp32Tensor;
    this.runs.push([...data]);
    return new Promise((resolve, reject) => {
      this.#ends.push((error) => {
        if (error !== undefined) return reject(error);
        const output = {
          name: "y",
          dataType: "FP32",
          shape,
          data: data.map((v) => 2 * v),
        } as const;
        resolve({ outputs: [output], inferUs: 1000 });
      });
    });
  }

  /** Ends the oldest unfinished run. */
  async end(error?: Error): Promise<void> {
    this.#ends.shift()?.(error);
    await settled();
  }

  async close(): Promise<void> {}
}

/** Runs the callbacks of settled promises. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
}

/** Request with one row per value. */
function request(...values: number[]): Fp32Tensor[] {
  return [
    { name: "x", dataType: "FP32", shape: [values.length, 1], data: Float32Array.from(values) },
  ];
}

function valuesOf({ outputs }: InferResult): number[] {
  return [...(outputs[0] as Fp32Tensor).data];
}

function setup(options: Partial<BatcherOptions> = {}, instances?: number) {
  const session = new FakeSession(instances);
  const executions: Execution[] = [];
  const batcher = new Batcher(session, {
    maxBatchSize: 4,
    maxQueueDelayMicroseconds: 5_000,
    onExecution: (execution) => executions.push(execution),
    ...options,
  });
  return { session, batcher, executions };
}

/** Returns the state of a promise without waiting for it. */
function outcome<T>(promise: Promise<T>): { value?: T; error?: InferenceError } {
  const result: { value?: T; error?: InferenceError } = {};
  promise.then(
    (value) => {
      result.value = value;
    },
    (error: InferenceError) => {
      result.error = error;
    },
  );
  return result;
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe("delayed, like Triton", () => {
  test("runs a single request after the delay", () => {
    const { session, batcher } = setup();
    void batcher.infer(request(1));
    vi.advanceTimersByTime(4);
    expect(session.runs).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(session.runs).toEqual([[1]]);
  });

  test.each<[string, Partial<BatcherOptions>, number[][], number[]]>([
    ["the batch is full", {}, [[1], [2], [3], [4]], [1, 2, 3, 4]],
    ["it has a preferred size", { preferredBatchSizes: [2] }, [[1], [2]], [1, 2]],
    ["it exceeds the largest preferred size", { preferredBatchSizes: [2] }, [[1, 2, 3]], [1, 2, 3]],
    [
      "the next request does not fit",
      {},
      [
        [1, 2, 3],
        [4, 5],
      ],
      [1, 2, 3],
    ],
    ["there is no delay", { maxQueueDelayMicroseconds: 0 }, [[1]], [1]],
  ])("runs a batch immediately if %s", (_, options, requests, run) => {
    const { session, batcher } = setup(options);
    for (const values of requests) {
      expect(session.runs).toEqual([]);
      void batcher.infer(request(...values));
    }
    expect(session.runs).toEqual([run]);
  });

  test("batches the largest queued preferred size and leaves the rest", async () => {
    const { session, batcher } = setup({ maxBatchSize: 8, preferredBatchSizes: [2, 4] });
    void batcher.infer(request(1, 2));
    for (const value of [3, 4, 5, 6, 7]) void batcher.infer(request(value));
    expect(session.runs).toEqual([[1, 2]]);
    await session.end();
    expect(session.runs).toEqual([
      [1, 2],
      [3, 4, 5, 6],
    ]);
  });

  test("batches all requests that fit after the delay of the oldest", async () => {
    const { session, batcher } = setup({ maxBatchSize: 8, preferredBatchSizes: [2] });
    void batcher.infer(request(1, 2));
    for (const value of [3, 4, 5]) void batcher.infer(request(value));
    vi.advanceTimersByTime(5);
    await session.end();
    expect(session.runs).toEqual([
      [1, 2],
      [3, 4, 5],
    ]);
  });
});

describe("eager", () => {
  test("runs immediately if the session is idle", () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    void batcher.infer(request(1));
    expect(session.runs).toEqual([[1]]);
  });

  test("batches requests that arrive during a run", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    void batcher.infer(request(1));
    void batcher.infer(request(2));
    void batcher.infer(request(3));
    await session.end();
    expect(session.runs).toEqual([[1], [2, 3]]);
  });

  test("waits for an announced request", () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const arrived = batcher.announce();
    void batcher.infer(request(1));
    expect(session.runs).toEqual([]);
    void batcher.infer(request(2));
    arrived();
    expect(session.runs).toEqual([[1, 2]]);
  });

  test("waits for an announced request at most for the delay", () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    batcher.announce();
    void batcher.infer(request(1));
    vi.advanceTimersByTime(5);
    expect(session.runs).toEqual([[1]]);
  });

  test("waits for an announced request at most for half of the expected batch duration", async () => {
    const { session, batcher } = setup({ dispatch: "eager", maxQueueDelayMicroseconds: 100_000 });
    void batcher.infer(request(0)); // the fake says that an item takes 1 ms
    await session.end();
    batcher.announce();
    void batcher.infer(request(1, 2, 3));
    vi.advanceTimersByTime(1);
    expect(session.runs).toEqual([[0]]);
    vi.advanceTimersByTime(1);
    expect(session.runs).toEqual([[0], [1, 2, 3]]);
  });

  test("waits longer if the batch grows", async () => {
    const { session, batcher } = setup({
      dispatch: "eager",
      maxBatchSize: 16,
      maxQueueDelayMicroseconds: 100_000,
    });
    void batcher.infer(request(0));
    await session.end();
    batcher.announce();
    void batcher.infer(request(1, 2));
    void batcher.infer(request(3, 4, 5, 6));
    vi.advanceTimersByTime(2);
    expect(session.runs).toEqual([[0]]);
    vi.advanceTimersByTime(1);
    expect(session.runs).toEqual([[0], [1, 2, 3, 4, 5, 6]]);
  });

  test("counts an announcement once if it is settled twice", () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const first = batcher.announce();
    batcher.announce();
    first();
    first();
    void batcher.infer(request(1));
    expect(session.runs).toEqual([]);
  });
});

describe("single", () => {
  test("runs each request separately in order of arrival", async () => {
    const { session, batcher } = setup({ dispatch: "single", maxQueueDelayMicroseconds: 0 });
    for (const value of [1, 2, 3]) void batcher.infer(request(value));
    expect(session.runs).toEqual([[1]]);
    await session.end();
    await session.end();
    expect(session.runs).toEqual([[1], [2], [3]]);
  });

  test("the duration of a request includes its queue time", async () => {
    const { session, batcher } = setup({ dispatch: "single", maxQueueDelayMicroseconds: 0 });
    void batcher.infer(request(1));
    const second = batcher.infer(request(2));
    vi.advanceTimersByTime(7);
    await session.end();
    await session.end();
    expect((await second).timing.queueUs).toBe(7000);
  });
});

test("returns each request its own rows in order of arrival", async () => {
  const { session, batcher } = setup();
  const first = batcher.infer(request(1, 2));
  const second = batcher.infer(request(3, 4));
  await session.end();
  expect(valuesOf(await first)).toEqual([2, 4]);
  expect(valuesOf(await second)).toEqual([6, 8]);
  expect((await second).batchSize).toBe(4);
});

test("does not modify the caller's tensors", async () => {
  const { session, batcher } = setup({ dispatch: "eager" });
  const mine = request(1, 2);
  void batcher.infer(mine);
  await session.end();
  expect([...mine[0]!.data]).toEqual([1, 2]);
});

test("does not batch items of different shapes", async () => {
  const { session, batcher } = setup({ dispatch: "eager" });
  const wide: Fp32Tensor[] = [
    { name: "x", dataType: "FP32", shape: [1, 2], data: Float32Array.of(7, 8) },
  ];
  void batcher.infer(request(1));
  void batcher.infer(request(2));
  const second = batcher.infer(wide);
  await session.end();
  await session.end();
  await session.end();
  expect(session.runs).toEqual([[1], [2], [7, 8]]);
  expect((await second).outputs[0]?.shape).toEqual([1, 2]);
});

test("runs one batch at a time", async () => {
  const { session, batcher } = setup({ dispatch: "eager" });
  for (const value of [1, 2, 3, 4, 5, 6]) void batcher.infer(request(value));
  expect(session.runs).toHaveLength(1);
  expect(batcher.pendingRequests).toBe(6);
  await session.end();
  expect(session.runs).toEqual([[1], [2, 3, 4, 5]]);
});

test("reports each execution with the queue time of its requests", async () => {
  const { session, batcher, executions } = setup();
  void batcher.infer(request(1));
  vi.advanceTimersByTime(2);
  void batcher.infer(request(2, 3));
  vi.advanceTimersByTime(3);
  vi.advanceTimersByTime(8);
  await session.end();
  expect(executions).toMatchObject([
    {
      batchSize: 3,
      inferUs: 1000,
      requests: [
        { items: 1, timing: { queueUs: 5000, computeInferUs: 1000, computeOutputUs: 7000 } },
        { items: 2, timing: { queueUs: 3000, computeInferUs: 1000, computeOutputUs: 7000 } },
      ],
    },
  ]);
});

describe("the queue", () => {
  test("drops a queued request when it is aborted", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const caller = new AbortController();
    void batcher.infer(request(1));
    const dropped = outcome(batcher.infer(request(2), { signal: caller.signal }));
    void batcher.infer(request(3));
    caller.abort();
    await session.end();
    expect(dropped.error?.code).toBe("expired");
    expect(session.runs).toEqual([[1], [3]]);
  });

  test("rejects a request whose signal is already aborted", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const gone = outcome(batcher.infer(request(1), { signal: AbortSignal.abort() }));
    await settled();
    expect(gone.error?.code).toBe("expired");
    expect(session.runs).toEqual([]);
  });

  test("answers a running request although it was aborted", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const caller = new AbortController();
    const running = outcome(batcher.infer(request(1), { signal: caller.signal }));
    caller.abort();
    await session.end();
    expect(running.value).toBeDefined();
  });

  test("drops a request after its maximum queue time", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    void batcher.infer(request(1));
    const late = outcome(batcher.infer(request(2), { queueTimeoutMs: 10 }));
    vi.advanceTimersByTime(9);
    await settled();
    expect(late.error).toBeUndefined();
    vi.advanceTimersByTime(1);
    await settled();
    expect(late.error?.message).toBe("[expired] waited longer than 10 ms");
    await session.end();
    expect(session.runs).toEqual([[1]]);
    expect(batcher.queuedItems).toBe(0);
  });

  test("continues with the others if the oldest is dropped", () => {
    const { session, batcher } = setup();
    const caller = new AbortController();
    batcher.infer(request(1), { signal: caller.signal }).catch(() => {});
    vi.advanceTimersByTime(3);
    void batcher.infer(request(2));
    caller.abort();
    vi.advanceTimersByTime(4);
    expect(session.runs).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(session.runs).toEqual([[2]]);
  });
});

describe("a run that fails", () => {
  test("fails only the requests of its batch", async () => {
    const { session, batcher, executions } = setup({ dispatch: "eager" });
    const first = outcome(batcher.infer(request(1)));
    const second = outcome(batcher.infer(request(2)));
    await session.end(new InferenceError("failed", "out of memory"));
    await session.end();
    expect(first.error?.message).toBe("[failed] out of memory");
    expect(second.value).toBeDefined();
    expect(executions[0]?.error?.code).toBe("failed");
  });

  test("is an engine error, whatever the session threw", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const first = outcome(batcher.infer(request(1)));
    await session.end(new Error("odd"));
    expect(first.error).toBeInstanceOf(InferenceError);
    expect(first.error?.message).toBe("[failed] odd");
  });
});

describe("drain", () => {
  test("answers accepted requests without waiting for more", async () => {
    const { session, batcher } = setup();
    const accepted = outcome(batcher.infer(request(1)));
    const drained = outcome(batcher.drain());
    expect(session.runs).toEqual([[1]]);
    expect(drained).not.toHaveProperty("value");
    await session.end();
    expect(accepted.value).toBeDefined();
    expect(drained).toHaveProperty("value");
  });

  test("rejects new requests", async () => {
    const { batcher } = setup();
    await batcher.drain();
    await expect(batcher.infer(request(1))).rejects.toThrow(
      "[draining] no new requests are accepted",
    );
  });

  test("completes although the last queued request is dropped", async () => {
    const { session, batcher } = setup({ dispatch: "eager" });
    const caller = new AbortController();
    void batcher.infer(request(1));
    batcher.infer(request(2), { signal: caller.signal }).catch(() => {});
    const drained = outcome(batcher.drain());
    caller.abort();
    await session.end();
    expect(drained).toHaveProperty("value");
  });
});

test("for any arrival order, each request is answered once with its own rows, in batches within the limit", async () => {
  vi.useRealTimers();
  const arrivals = fc.array(
    fc.record({ rows: fc.integer({ min: 1, max: 8 }), pauseMs: fc.integer({ min: 0, max: 2 }) }),
    { maxLength: 25 },
  );
  const settings = fc.record({
    dispatch: fc.constantFrom("eager" as const, "delayed" as const, "single" as const),
    preferredBatchSizes: fc.subarray([2, 3, 5, 8]),
    maxQueueDelayMicroseconds: fc.constantFrom(0, 1000, 3000),
  });
  await fc.assert(
    fc.asyncProperty(arrivals, settings, async (requests, options) => {
      const runs: (readonly number[])[] = [];
      const session: ModelSession = {
        inputs: [{ name: "x", dataType: "FP32", dims: [1] }],
        outputs: [{ name: "y", dataType: "FP32", dims: [1] }],
        async run([input]) {
          const { shape, data } = input as Fp32Tensor;
          runs.push([...data]);
          await new Promise((resolve) => setTimeout(resolve, data.length % 3));
          return { outputs: [{ name: "y", dataType: "FP32", shape, data }], inferUs: 1 };
        },
        close: async () => {},
      };
      const batcher = new Batcher(session, { maxBatchSize: 8, ...options });
      let next = 0;
      const sent: number[][] = [];
      const answers: Promise<number[]>[] = [];
      for (const { rows, pauseMs } of requests) {
        const values = Array.from({ length: rows }, () => next++);
        sent.push(values);
        answers.push(batcher.infer(request(...values)).then(valuesOf));
        if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
      expect(await Promise.all(answers)).toEqual(sent);
      expect(Math.max(0, ...runs.map((run) => run.length))).toBeLessThanOrEqual(8);
      // in order of arrival without splitting requests: each run ends at the end of a request
      expect(runs.flat()).toEqual(sent.flat());
      const ends = new Set(sent.map((values) => values.at(-1)));
      expect(runs.every((run) => ends.has(run.at(-1)))).toBe(true);
      expect(batcher.pendingRequests).toBe(0);
    }),
    { numRuns: 30 },
  );
});

describe("memory", () => {
  test("copies the inputs of a request unless they may be transferred and it runs alone", async () => {
    const seen: Float32Array[] = [];
    const { batcher, session } = setup({ dispatch: "eager" });
    const run = session.run.bind(session);
    session.run = (inputs) => {
      seen.push((inputs[0] as Fp32Tensor).data);
      return run(inputs);
    };
    const requests = [request(1), request(2), request(3)];
    const modes = ["copied", "transferred", "transferred"] as const;
    const [copied, ...queued] = modes.map((inputs, i) => batcher.infer(requests[i]!, { inputs }));
    await session.end();
    await copied;
    // the two queued requests run in one batch
    await session.end();
    await Promise.all(queued);
    const alone = request(4);
    const last = batcher.infer(alone, { inputs: "transferred" });
    await session.end();
    await last;
    const given = [...requests, alone].map(([tensor]) => tensor!.data);
    expect(seen.map((data) => given.includes(data))).toEqual([false, false, true]);
  });
});

describe("several instances", () => {
  const eager = { maxBatchSize: 8, dispatch: "eager" } as const;

  test("run concurrently up to their number", async () => {
    const { session, batcher } = setup(eager, 2);
    const answers = [1, 2, 3].map((value) => outcome(batcher.infer(request(value))));
    expect(session.runs).toEqual([[1], [2]]);
    expect(batcher.pendingRequests).toBe(3);
    await session.end();
    expect(session.runs).toEqual([[1], [2], [3]]);
    await session.end();
    await session.end();
    expect(answers.map(({ value }) => value && valuesOf(value))).toEqual([[2], [4], [6]]);
    expect(batcher.pendingRequests).toBe(0);
  });

  test("share the queued requests evenly", async () => {
    const { session, batcher } = setup(eager, 2);
    const settle = batcher.announce();
    for (const value of [1, 2, 3, 4, 5, 6]) void batcher.infer(request(value));
    settle();
    expect(session.runs).toEqual([
      [1, 2, 3],
      [4, 5, 6],
    ]);
  });

  test("an idle instance takes all queued requests while the other one is busy", async () => {
    const { session, batcher } = setup(eager, 2);
    void batcher.infer(request(1));
    const settle = batcher.announce();
    for (const value of [2, 3, 4, 5, 6, 7]) void batcher.infer(request(value));
    settle();
    expect(session.runs).toEqual([[1], [2, 3, 4, 5, 6, 7]]);
  });

  test("a request is not split", async () => {
    const { session, batcher } = setup(eager, 2);
    const settle = batcher.announce();
    void batcher.infer(request(1, 2, 3, 4, 5, 6));
    void batcher.infer(request(7));
    settle();
    expect(session.runs).toEqual([[1, 2, 3, 4, 5, 6], [7]]);
  });

  test("a drain waits for all of them", async () => {
    const { session, batcher } = setup(eager, 2);
    void batcher.infer(request(1));
    void batcher.infer(request(2));
    const drained = outcome(batcher.drain().then(() => "drained"));
    await session.end();
    expect(drained.value).toBeUndefined();
    await session.end();
    expect(drained.value).toBe("drained");
  });
});
