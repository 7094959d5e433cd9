import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { embedMetrics } from "../contract/embed-api.ts";
import { openclipVitB32, pixelBytes } from "../contract/model-signature.ts";
import { picture } from "../engine/test-images.ts";
import { TritonError } from "../triton/transport.ts";
import { type RunningEmbedServer, startEmbedServer } from "./embed-server.ts";
import type { Embedder } from "./embedder.ts";
import { readSettings } from "./settings.ts";
import { type TestRepository, testRepository } from "./test-repository.ts";
import { type TritonProcess, tritonProcess } from "./test-triton-process.ts";
import { createTritonEmbedder } from "./triton-embedder.ts";

/** The gateway in front of real processes that die, hang and come back while they are asked all the time. */

/** Far above what any step takes, far below what only a hang would take. */
const longMs = 20_000;
/** A call that waited for this would be found by {@link longMs}. */
const timeoutMs = 60_000;

let repository: TestRepository;
let tritons: readonly TritonProcess[];
beforeAll(async () => {
  repository = await testRepository();
  tritons = await Promise.all(
    [0, 1].map(() => tritonProcess(repository.path, { model: openclipVitB32.name })),
  );
  await Promise.all(tritons.map((triton) => triton.start()));
});
afterAll(async () => {
  await Promise.all((tritons ?? []).map((triton) => triton.kill()));
  await repository?.remove();
});

interface Gateway {
  readonly embedder: Embedder;
  /** Of each target, in the order of `tritons`. */
  healthy(): readonly boolean[];
  answeredBy(): readonly number[];
  close(): Promise<void>;
}
const opened: Gateway[] = [];
afterEach(async () => {
  for (const { close } of opened.splice(0)) await close();
});

async function gateway(): Promise<Gateway> {
  const healthy = new Map<string, boolean>();
  const answered = new Map<string, number>();
  const embedder = createTritonEmbedder({
    targets: tritons.map(({ target }) => target),
    model: openclipVitB32.name,
    timeoutMs,
    maxBatchSize: 8,
    observer: {
      batch: () => {},
      queued: () => {},
      health: (target, count) => healthy.set(target, count > 0),
      ended: (target, ok) => answered.set(target, (answered.get(target) ?? 0) + (ok ? 1 : 0)),
    },
  });
  const made: Gateway = {
    embedder,
    healthy: () => tritons.map(({ target }) => healthy.get(target) ?? false),
    answeredBy: () => tritons.map(({ target }) => answered.get(target) ?? 0),
    close: () => embedder.close(),
  };
  opened.push(made);
  await until(() => made.healthy().every(Boolean));
  return made;
}

/** Waits, bounded, and gives the time that it took. */
async function until(condition: () => boolean): Promise<number> {
  const startedAt = performance.now();
  while (!condition()) {
    if (performance.now() - startedAt > longMs) throw new Error("it did not come to pass");
    await sleep(10);
  }
  return performance.now() - startedAt;
}

const image = (value: number) => new Uint8Array(pixelBytes).fill(value);

/** Requests without a pause, until it is stopped. */
function load({ embedder }: Gateway) {
  const counts = { answered: 0, refused: 0, wrong: 0, slowestMs: 0 };
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
        // refused before it was accepted: the caller hears 503, and comes back
        const refused = error instanceof TritonError && error.code === "unavailable";
        if (refused) counts.refused += 1;
        else lost.push(error);
        await sleep(20);
      }
    }
  };
  const clients = Array.from({ length: 6 }, (_, value) => client(10 + 40 * value));
  return {
    counts,
    lost,
    /** Until so many more are answered. */
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

describe("under load, with two Tritons", () => {
  test("both get a part of the calls", async () => {
    const made = await gateway();
    const running = load(made);
    await running.more(40);
    await running.stop();
    const [first, second] = made.answeredBy();
    expect(Math.min(first!, second!)).toBeGreaterThan(0.4 * Math.max(first!, second!));
  });

  test("no request is lost when one is killed, and it is used again when it is back", async () => {
    const made = await gateway();
    const running = load(made);
    await running.more(20);
    await tritons[0]!.kill();
    await until(() => !made.healthy()[0]);
    await running.more(40);
    expect(made.healthy()).toEqual([false, true]);
    await tritons[0]!.start();
    await until(() => made.healthy()[0]!);
    const [before] = made.answeredBy();
    await running.more(40);
    await running.stop();
    expect(made.answeredBy()[0]).toBeGreaterThan(before!);
    expect(running.counts.refused).toBe(0);
  });

  test("the requests of one that hangs are answered by the other, long before the deadline", async () => {
    const made = await gateway();
    const running = load(made);
    await running.more(20);
    tritons[0]!.signal("SIGSTOP");
    try {
      await until(() => !made.healthy()[0]);
      await running.more(40);
    } finally {
      tritons[0]!.signal("SIGCONT");
    }
    await until(() => made.healthy()[0]!);
    const [before] = made.answeredBy();
    await running.more(40);
    await running.stop();
    expect(made.answeredBy()[0]).toBeGreaterThan(before!);
    expect(running.counts.slowestMs).toBeLessThan(timeoutMs / 5);
    expect(running.counts.refused).toBe(0);
  });

  test("requests that were accepted wait when all die, and are answered when one is back", async () => {
    const made = await gateway();
    const running = load(made);
    await running.more(20);
    await Promise.all(tritons.map((triton) => triton.kill()));
    await until(() => made.healthy().every((healthy) => !healthy));
    expect(await made.embedder.ready()).toBe(false);
    expect(made.embedder.trouble).toContain(`${tritons[0]!.target}: `);
    await tritons[1]!.start();
    await until(() => made.healthy()[1]!);
    await running.more(40);
    await running.stop();
    await tritons[0]!.start();
  });

  test("no request is lost while one stops in order", async () => {
    const made = await gateway();
    const running = load(made);
    await running.more(20);
    tritons[1]!.signal("SIGTERM");
    await until(() => !made.healthy()[1]);
    await running.more(40);
    await running.stop();
    expect(running.counts.refused).toBe(0);
    await tritons[1]!.kill();
    await tritons[1]!.start();
  });
});

describe("as an embed server", () => {
  let server: RunningEmbedServer;
  let url: string;
  const start = async (targets: readonly string[], model: string = openclipVitB32.name) => {
    const settings = readSettings({
      ENGINE: "triton",
      TRITON_GRPC_URLS: targets.join(),
      TRITON_MODEL: model,
      HOST: "127.0.0.1",
      LOG_LEVEL: "silent",
    });
    server = await startEmbedServer({ ...settings, PORT: 0 });
    await server.loaded;
    url = `http://127.0.0.1:${server.port}`;
  };
  afterEach(() => server.stop());
  const readiness = async () => {
    const answer = await fetch(`${url}/readyz`);
    return { status: answer.status, ...((await answer.json()) as { reason?: string }) };
  };
  const reasonWith = async (words: string) => {
    let reason = "";
    const found = async () => {
      reason = (await readiness()).reason ?? "";
      return reason.includes(words);
    };
    while (!(await found())) await sleep(20);
    return reason;
  };

  test("is ready while one of its Tritons is, and counts the calls of each", async () => {
    await start([tritons[0]!.target, "127.0.0.1:9"]);
    while ((await readiness()).status !== 200) await sleep(20);
    const answer = await fetch(`${url}/embed`, {
      method: "POST",
      headers: { "content-type": "image/jpeg" },
      body: new Uint8Array(await picture()),
    });
    expect(answer.status).toBe(200);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const value = (name: string, target: string) =>
      metrics.split("\n").find((line) => line.startsWith(`${name}{target="${target}"}`));
    const { tritonHealthy, tritonRequests, tritonFailures } = embedMetrics;
    expect(value(tritonHealthy, tritons[0]!.target)).toMatch(/ 1$/);
    expect(value(tritonHealthy, "127.0.0.1:9")).toMatch(/ 0$/);
    expect(value(tritonRequests, tritons[0]!.target)).toMatch(/ 1$/);
    expect(value(tritonFailures, tritons[0]!.target)).toMatch(/ 0$/);
  });

  test("says why it is not ready, and refuses with 503", async () => {
    await start(["127.0.0.1:9"]);
    expect(await reasonWith("ECONNREFUSED")).toBe(
      "no Triton can be used: 127.0.0.1:9: connect ECONNREFUSED 127.0.0.1:9",
    );
    const answer = await fetch(`${url}/embed`, {
      method: "POST",
      headers: { "content-type": "image/jpeg" },
      body: new Uint8Array(await picture()),
    });
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).toBe("1");
    expect(await answer.json()).toMatchObject({ error: { code: "unavailable" } });
  });

  test("says that its Triton has no such model", async () => {
    await start([tritons[0]!.target], "resnet50");
    expect(await reasonWith("resnet50")).toBe(
      `no Triton can be used: ${tritons[0]!.target}: resnet50 is not ready`,
    );
  });
});
