import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  clipNormalisation,
  embeddingDims,
  imageElements,
  openclipVitB32,
  pixelBytes,
} from "../contract/model-signature.ts";
import type { Fp32Tensor } from "../contract/tensor.ts";
import { openGrpcTransport } from "../triton/grpc-transport.ts";
import { openInMemoryTransport } from "../triton/in-memory-transport.ts";
import { type Transport, TritonError } from "../triton/transport.ts";
import type { Embedder } from "./embedder.ts";
import { type TestRepository, testRepository } from "./test-repository.ts";
import { createTritonEmbedder } from "./triton-embedder.ts";
import { type RunningTritonServer, startTritonServer } from "./triton-server.ts";

type State = "up" | "down" | "silent";

/** Tritons in this process. The embedding of an image of `v`s points along axis `v`. */
function setup(
  states: State[],
  { maxBatchSize = 32, timeoutMs = 1000, fail = undefined as TritonError | undefined } = {},
) {
  /** Batch size of each call, by Triton. */
  const calls: number[][] = states.map(() => []);
  const batches: number[] = [];
  const transports = states.map((_, index) =>
    openInMemoryTransport({
      state: () => states[index]!,
      models: [
        {
          signature: openclipVitB32,
          infer: ([input]) => {
            if (fail !== undefined) throw fail;
            const { shape, data } = input as Fp32Tensor;
            const rows = shape[0]!;
            calls[index]!.push(rows);
            const embeddings = new Float32Array(rows * embeddingDims);
            for (let row = 0; row < rows; row++) {
              const level = firstLevel(data.subarray(row * imageElements));
              embeddings[row * embeddingDims + level] = 3;
            }
            return [
              {
                name: "embedding",
                dataType: "FP32",
                shape: [rows, embeddingDims],
                data: embeddings,
              },
            ];
          },
        },
      ],
    }),
  );
  const embedder = createTritonEmbedder({
    transports,
    model: openclipVitB32.name,
    timeoutMs,
    maxBatchSize,
    observer: { batch: ({ images }) => batches.push(images), queued: () => {} },
  });
  return { embedder, transports, calls, batches, states };
}

const image = (value: number) => new Uint8Array(pixelBytes).fill(value);

/** The level of the first pixel. */
function firstLevel(values: Float32Array): number {
  return Math.round((values[0]! * clipNormalisation.std[0] + clipNormalisation.mean[0]) * 255);
}

/** The axis that each embedding points along. */
async function axes(embedder: Embedder, ...values: number[]): Promise<number[]> {
  const vectors = await embedder.embed(values.map(image));
  return vectors.map((vector) => vector.indexOf(1));
}

test("gives unit vectors in the order of the images", async () => {
  const { embedder, batches } = setup(["up"]);
  expect(await axes(embedder, 5, 1, 3)).toEqual([5, 1, 3]);
  expect(batches).toEqual([3]);
});

test("splits what is more than Triton takes at once", async () => {
  const { embedder, calls } = setup(["up"], { maxBatchSize: 2 });
  expect(await axes(embedder, 1, 2, 3, 4, 5)).toEqual([1, 2, 3, 4, 5]);
  expect(calls).toEqual([[2, 2, 1]]);
});

test("takes turns", async () => {
  const { embedder, calls } = setup(["up", "up", "up"]);
  for (let request = 0; request < 6; request++) await axes(embedder, 1);
  expect(calls).toEqual([
    [1, 1],
    [1, 1],
    [1, 1],
  ]);
});

test("sends the call of a Triton that is down to the next one", async () => {
  const { embedder, calls } = setup(["down", "up"]);
  const answers = await Promise.all(Array.from({ length: 4 }, (_, at) => axes(embedder, at)));
  expect(answers).toEqual([[0], [1], [2], [3]]);
  expect(calls[1]).toHaveLength(4);
});

describe("a Triton that was down", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test("is asked again after a while", async () => {
    const { embedder, calls, states } = setup(["down", "up"]);
    await axes(embedder, 1);
    states[0] = "up";
    await axes(embedder, 1);
    await axes(embedder, 1);
    expect(calls[0]).toHaveLength(0);
    vi.advanceTimersByTime(1_001);
    await axes(embedder, 1);
    await axes(embedder, 1);
    expect(calls[0]).toHaveLength(1);
  });

  test("is asked at once when the others are down too", async () => {
    const { embedder, calls, states } = setup(["down", "up"]);
    await axes(embedder, 1);
    states[0] = "up";
    states[1] = "down";
    expect(await axes(embedder, 4)).toEqual([4]);
    expect(calls[0]).toHaveLength(1);
  });
});

test("fails when no Triton answers, and names them", async () => {
  const { embedder } = setup(["down", "down"]);
  await expect(axes(embedder, 1)).rejects.toThrow(
    "[unavailable] no Triton answers: in-memory, in-memory",
  );
});

test("does not wait for a silent Triton longer than the deadline, and then avoids it", async () => {
  const { embedder, calls } = setup(["silent", "up"], { timeoutMs: 20 });
  await expect(axes(embedder, 1)).rejects.toMatchObject({ code: "timeout" });
  await axes(embedder, 1);
  await axes(embedder, 1);
  expect(calls[1]).toHaveLength(2);
});

test("does not repeat a request that Triton refused", async () => {
  const fail = new TritonError("rejected", "no");
  const { embedder, calls } = setup(["up", "up"], { fail });
  await expect(axes(embedder, 1)).rejects.toBe(fail);
  expect(calls).toEqual([[], []]);
});

test("ends the call when its caller goes away", async () => {
  const { embedder } = setup(["silent"], { timeoutMs: 60_000 });
  const caller = new AbortController();
  const call = embedder.embed([image(1)], { signal: caller.signal });
  caller.abort();
  await expect(call).rejects.toMatchObject({ code: "cancelled" });
});

test("is ready when one Triton is", async () => {
  const { embedder, states } = setup(["down", "up"]);
  expect(await embedder.ready()).toBe(true);
  states[1] = "down";
  expect(await embedder.ready()).toBe(false);
});

test("closes the transports when the calls in flight are answered", async () => {
  const { embedder } = setup(["up"]);
  const call = axes(embedder, 7);
  const closed = embedder.close();
  expect(await call).toEqual([7]);
  await closed;
});

describe("with servers behind it", () => {
  let repository: TestRepository;
  let servers: RunningTritonServer[];
  let transports: Transport[];
  let embedder: Embedder;

  beforeEach(async () => {
    repository = await testRepository();
    servers = await Promise.all(
      [0, 1].map(() => startTritonServer(repository.flags(), { log: () => {} })),
    );
    transports = servers.map(({ ports }) =>
      openGrpcTransport({ target: `127.0.0.1:${ports.grpc}` }),
    );
    embedder = createTritonEmbedder({
      transports,
      model: openclipVitB32.name,
      timeoutMs: 20_000,
      maxBatchSize: 32,
    });
  });
  afterEach(async () => {
    await embedder.close();
    await Promise.all(servers.map((server) => server.stop()));
    await repository.remove();
  });

  test("loses no request when one of them stops under load", async () => {
    const load = Array.from({ length: 40 }, async (_, at) => {
      // a few at a time, so that some are sent before, some while and some after the stop
      await new Promise((resolve) => setTimeout(resolve, 5 * at));
      return embedder.embed([image(at)]);
    });
    await load[10];
    await servers[0]!.stop();
    const answers = await Promise.all(load);
    expect(answers.flat()).toHaveLength(40);
    expect(await embedder.ready()).toBe(true);
  });
});
