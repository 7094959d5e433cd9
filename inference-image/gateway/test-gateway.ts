import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { TritonError } from "../../client/triton/transport.ts";
import { imageBytes, imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import type { ImageEmbedder } from "../models/embedder.ts";
import { TritonImageEmbedder } from "./triton-embedder.ts";

const pixelBytes = imageBytes(imageTowerOf(defaultModel), "uint8")!;

/** Gateway under constant load for tests, while its Triton servers die, hang and restart. */

/** Maximum time of any step in milliseconds, much shorter than a hang. */
const longMs = 20_000;
/** Deadline of a call in milliseconds, longer than {@link longMs}. */
export const timeoutMs = 60_000;

export interface TestGateway {
  readonly embedder: ImageEmbedder;
  /** State of each target, in order. */
  healthy(): readonly boolean[];
  answeredBy(): readonly number[];
  close(): Promise<void>;
}

/** Resolves when all of its Triton servers are in rotation. */
export async function testGateway(targets: readonly string[]): Promise<TestGateway> {
  const healthy = new Map<string, boolean>();
  const answered = new Map<string, number>();
  const embedder = new TritonImageEmbedder({
    targets,
    spec: defaultModel,
    model: tritonModelName(defaultModel, "fp32"),
    timeoutMs,
    maxBatchSize: 8,
    observer: {
      onBatch: () => {},
      onDequeue: () => {},
      onHealthChange: (target, count) => healthy.set(target, count > 0),
      onAttemptEnd: (target, ok) =>
        answered.set(target, (answered.get(target) ?? 0) + (ok ? 1 : 0)),
    },
  });
  const gateway: TestGateway = {
    embedder,
    healthy: () => targets.map((target) => healthy.get(target) ?? false),
    answeredBy: () => targets.map((target) => answered.get(target) ?? 0),
    close: () => embedder.close(),
  };
  await until(() => gateway.healthy().every(Boolean));
  return gateway;
}

/** Waits for a condition with a timeout. */
export async function until(condition: () => boolean): Promise<void> {
  const startedAt = performance.now();
  while (!condition()) {
    if (performance.now() - startedAt > longMs)
      throw new Error(`the condition is not met after ${longMs} ms`);
    await sleep(10);
  }
}

const image = (value: number) => new Uint8Array(pixelBytes).fill(value);

/** Sends requests continuously until `stop()`. */
export function sendContinuously({ embedder }: TestGateway) {
  const counts = { answered: 0, rejected: 0, wrong: 0, slowestMs: 0 };
  const lost: unknown[] = [];
  const expected: Float32Array[] = [];
  let stopped = false;
  const client = async (value: number) => {
    while (!stopped) {
      const startedAt = performance.now();
      try {
        const [vector] = await embedder.embed([image(value)]);
        counts.answered += 1;
        counts.slowestMs = Math.max(counts.slowestMs, performance.now() - startedAt);
        expected[value] ??= vector!;
        if (cosine(vector!, expected[value]!) < 0.9999) counts.wrong += 1;
      } catch (error) {
        // rejected with 503 before it was accepted: the client retries
        const rejected = error instanceof TritonError && error.code === "unavailable";
        if (rejected) counts.rejected += 1;
        else lost.push(error);
        await sleep(20);
      }
    }
  };
  const clients = Array.from({ length: 6 }, (_, value) => client(10 + 40 * value));
  return {
    counts,
    lost,
    /** Waits until this number of further requests is answered. */
    more: (count: number) => {
      const goal = counts.answered + count;
      return until(() => counts.answered >= goal);
    },
    async stop() {
      stopped = true;
      await Promise.all(clients);
      expect(lost).toEqual([]);
      expect(counts.wrong).toBe(0);
    },
  };
}

function cosine(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, at) => sum + value * b[at]!, 0);
}
