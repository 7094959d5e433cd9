import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test, vi } from "vitest";
import { startFreezingProxy } from "../../client/triton/test-freezing-proxy.ts";
import type { ModelInferResponse } from "../../client/triton/wire-grpc.ts";
import type { ImageEmbedder } from "../models/embedder.ts";
import { axes, embedderOf, embeddingWidth, FakeTriton, gate, until } from "./test-fake-triton.ts";
import type { TritonEmbedderOptions } from "./triton-tower.ts";

/** Triton servers that are ready but whose inferences fail, beside a healthy one. */

/** Embedder of these servers, all in rotation, and the events of each. */
async function pool(
  tritons: readonly (FakeTriton | string)[],
  options: Partial<TritonEmbedderOptions> = {},
) {
  const targets = tritons.map((triton) => (typeof triton === "string" ? triton : triton.target));
  const inRotation = new Map<string, boolean>();
  const ejections: string[] = [];
  const reasons: string[] = [];
  const embedder = await embedderOf(targets, {
    ...options,
    observer: {
      onBatch: () => {},
      onDequeue: () => {},
      onAttemptEnd: () => {},
      onEjection: (target) => ejections.push(target),
      onHealthChange(target, healthy, reason) {
        inRotation.set(target, healthy > 0);
        reasons.push(reason);
      },
    },
  });
  const states = () => targets.map((target) => inRotation.get(target) ?? false);
  await until(() => states().every(Boolean));
  return { embedder, states, ejections, reasons, targets };
}

/** Sends requests from several clients, and fails with the first failure. */
async function load(embedder: ImageEmbedder, requests: number, clients = 4): Promise<void> {
  let sent = 0;
  const send = async () => {
    while (sent < requests) {
      const value = sent++ % 200;
      expect(await axes(embedder, value)).toEqual([value]);
    }
  };
  await Promise.all(Array.from({ length: clients }, send));
}

type Fault = (triton: FakeTriton) => void;
const failure =
  (code: status): Fault =>
  (triton) => {
    triton.failure = { code, details: "boom\r\nline 2" };
  };
const response =
  (corrupt: (response: ModelInferResponse) => object): Fault =>
  (triton) => {
    triton.corrupt = corrupt;
  };
const output =
  (change: object): Fault =>
  (triton) => {
    triton.corrupt = (sound) => ({ ...sound, outputs: [{ ...sound.outputs[0], ...change }] });
  };
const raw = (change: (bytes: Buffer) => Buffer) =>
  response((sound) => ({
    ...sound,
    raw_output_contents: sound.raw_output_contents.map((bytes) => change(Buffer.from(bytes))),
  }));

function withFloat(bytes: Buffer, value: number): Buffer {
  bytes.writeFloatLE(value);
  return bytes;
}

const faults: readonly [string, Fault][] = [
  ["fails with INTERNAL", failure(status.INTERNAL)],
  ["fails with UNKNOWN", failure(status.UNKNOWN)],
  ["fails with UNIMPLEMENTED", failure(status.UNIMPLEMENTED)],
  ["rejects its key", failure(status.UNAUTHENTICATED)],
  ["fails with UNAVAILABLE", failure(status.UNAVAILABLE)],
  ["returns NaN", raw((bytes) => withFloat(bytes, Number.NaN))],
  ["returns an infinity", raw((bytes) => withFloat(bytes, Number.POSITIVE_INFINITY))],
  ["returns zero vectors", raw((bytes) => bytes.fill(0))],
  ["returns fewer bytes", raw((bytes) => bytes.subarray(0, 8))],
  ["returns 5 MB", raw(() => Buffer.alloc(5_000_000))],
  ["returns no outputs", response((sound) => ({ ...sound, outputs: [], raw_output_contents: [] }))],
  ["returns another output", output({ name: "__proto__" })],
  ["returns another type", output({ datatype: "INT32" })],
  ["returns an unknown type", output({ datatype: "constructor" })],
  ["returns a negative shape", output({ shape: [-1, 9e15] })],
  ["returns a transposed shape", output({ shape: [embeddingWidth, 1] })],
];

test.each(faults)(
  "no request fails, and the server leaves the rotation, if it %s",
  async (_, fault) => {
    const [faulty, sound] = [await new FakeTriton().start(), await new FakeTriton().start()];
    const { embedder, states, ejections, reasons } = await pool([faulty, sound]);
    fault(faulty);
    await load(embedder, 40);
    expect(states()).toEqual([false, true]);
    expect(ejections).toEqual([faulty.target]);
    expect(reasons.at(-1)).toMatch(/^\S+ failed while others answered, next attempt in 5 s: .+$/);
    const { arrived } = faulty;
    await load(embedder, 20);
    expect(faulty.arrived).toBe(arrived);
  },
);

test("an ejected server is tried again, and returns to rotation once it answers", async () => {
  const [faulty, sound] = [await new FakeTriton().start(), await new FakeTriton().start()];
  const { embedder, states, reasons } = await pool([faulty, sound]);
  failure(status.INTERNAL)(faulty);
  await load(embedder, 40);
  const attempt = faulty.arrived;
  await sleep(5_100);
  await load(embedder, 40);
  // one attempt, then twice the time
  expect(faulty.arrived).toBe(attempt + 1);
  expect(reasons.at(-1)).toContain("next attempt in 10 s");
  faulty.failure = undefined;
  const elapsed = performance.now() + 10_000;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => elapsed);
  onTestFinished(() => clock.mockRestore());
  expect(await axes(embedder, 1)).toEqual([1]);
  clock.mockRestore();
  expect(states()).toEqual([true, true]);
  expect(faulty.arrived).toBe(attempt + 2);
}, 15_000);

test("a hanging call is answered by another server after a tenth of its deadline", async () => {
  const [hanging, sound] = [await new FakeTriton().start(), await new FakeTriton().start()];
  const { embedder, states, ejections, reasons } = await pool([hanging, sound], {
    timeoutMs: 20_000,
  });
  await load(embedder, 10);
  hanging.gate = gate().closed;
  const startedAt = performance.now();
  await load(embedder, 40);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
  expect(states()).toEqual([false, true]);
  expect(ejections).toEqual([hanging.target]);
  expect(reasons.at(-1)).toMatch(/no response in \d+ ms$/);
  await until(() => hanging.cancelled > 0);
}, 15_000);

test("a call is not hedged while the servers are slow", async () => {
  const tritons = [await new FakeTriton().start(), await new FakeTriton().start()];
  const { embedder, ejections } = await pool(tritons, { timeoutMs: 3_000 });
  for (const triton of tritons) {
    Object.defineProperty(triton, "gate", { get: () => sleep(400) });
  }
  // the first two calls measure the time
  await load(embedder, 2, 1);
  const before = tritons[0]!.arrived + tritons[1]!.arrived;
  await load(embedder, 8, 2);
  expect(tritons[0]!.arrived + tritons[1]!.arrived - before).toBe(8);
  expect(ejections).toEqual([]);
});

test.each([status.INVALID_ARGUMENT, status.FAILED_PRECONDITION, status.OUT_OF_RANGE])(
  "a client error is neither repeated nor counted, %i",
  async (code) => {
    const [first, second] = [await new FakeTriton().start(), await new FakeTriton().start()];
    const { embedder, states, ejections } = await pool([first, second]);
    for (const triton of [first, second]) triton.failure = { code, details: "bad" };
    for (let request = 0; request < 10; request++) {
      await expect(axes(embedder, 1)).rejects.toMatchObject({ code: "rejected" });
    }
    expect(first.arrived + second.arrived).toBe(10);
    expect([states(), ejections]).toEqual([[true, true], []]);
  },
);

test("a request that fails on every server is repeated once and ejects none", async () => {
  const tritons = await Promise.all([0, 1, 2].map(() => new FakeTriton().start()));
  // never hedged
  const { embedder, states, ejections } = await pool(tritons, { timeoutMs: 300_000 });
  for (const triton of tritons) failure(status.INTERNAL)(triton);
  for (let request = 0; request < 10; request++) {
    await expect(axes(embedder, 1)).rejects.toMatchObject({ code: "rejected" });
  }
  expect(tritons.reduce((sum, { arrived }) => sum + arrived, 0)).toBe(20);
  expect([states(), ejections]).toEqual([[true, true, true], []]);
});

test("the other images of a batch with an invalid embedding are answered", async () => {
  const tritons = [await new FakeTriton().start(), await new FakeTriton().start()];
  const { embedder, states } = await pool(tritons, { callsPerTriton: 1 });
  const { closed, open } = gate();
  for (const triton of tritons) {
    triton.gate = closed;
    triton.normOf = (level) => (level === 7 ? Number.NaN : 3);
  }
  const held = [axes(embedder, 1), axes(embedder, 2)];
  await until(() => tritons.every(({ arrived }) => arrived === 1));
  const [sound, broken] = [axes(embedder, 3), axes(embedder, 7)];
  open();
  await expect(broken).rejects.toMatchObject({ index: 0 });
  expect(await Promise.all([...held, sound])).toEqual([[1], [2], [3]]);
  expect(states()).toEqual([true, true]);
});

test("the last server stays in rotation", async () => {
  const triton = await new FakeTriton().start();
  const { embedder, states, ejections } = await pool([triton]);
  failure(status.INTERNAL)(triton);
  for (let request = 0; request < 5; request++) {
    await expect(axes(embedder, 1)).rejects.toMatchObject({ code: "rejected" });
  }
  triton.failure = undefined;
  expect(await axes(embedder, 1)).toEqual([1]);
  expect([states(), ejections]).toEqual([[true], []]);
});

test("an ejected server is used if the others become unavailable", async () => {
  const [faulty, other] = [await new FakeTriton().start(), await new FakeTriton().start()];
  const { embedder, states } = await pool([faulty, other]);
  failure(status.INTERNAL)(faulty);
  await load(embedder, 40);
  faulty.failure = undefined;
  other.stop();
  expect(await axes(embedder, 3)).toEqual([3]);
  await until(() => states()[0]!);
});

test("a call that failed waits for a server that is not ready for a moment", async () => {
  const [faulty, busy] = [await new FakeTriton().start(), await new FakeTriton().start()];
  // the share of it that the call waits is no whole number of milliseconds
  const { embedder, states } = await pool([faulty, busy], { timeoutMs: 59_999 });
  failure(status.INTERNAL)(faulty);
  busy.ready = false;
  await until(() => !states()[1]!);
  const embedded = axes(embedder, 3);
  await until(() => faulty.arrived > 0);
  busy.ready = true;
  expect(await embedded).toEqual([3]);
});

test("requests wait while no server is ready for a moment, and fail once that lasts", async () => {
  const triton = await new FakeTriton().start();
  const { embedder, states } = await pool([triton]);
  triton.ready = false;
  await until(() => !states()[0]!);
  const embedded = axes(embedder, 3);
  triton.ready = true;
  expect(await embedded).toEqual([3]);
  triton.ready = false;
  await until(() => !states()[0]!);
  await sleep(2_100);
  await expect(axes(embedder, 3)).rejects.toThrow("no Triton server can be used");
});

test("no request fails with one server faulty, one frozen and one healthy", async () => {
  const tritons = await Promise.all([0, 1, 2].map(() => new FakeTriton().start()));
  const [faulty, behind] = tritons as [FakeTriton, FakeTriton, FakeTriton];
  const proxy = await startFreezingProxy(Number(behind.target.split(":")[1]));
  onTestFinished(() => proxy.stop());
  const targets = [faulty.target, `127.0.0.1:${proxy.port}`, tritons[2]!.target];
  const { embedder, states } = await pool(targets, { timeoutMs: 20_000 });
  await load(embedder, 30);
  proxy.freeze();
  failure(status.INTERNAL)(faulty);
  await load(embedder, 300);
  // the connection is replaced
  await until(() => states()[1]!);
  expect(proxy.connections).toBeGreaterThan(1);
  await load(embedder, 30);
}, 30_000);

test("the only server is used again within ten seconds after its connection was dropped silently", async () => {
  const triton = await new FakeTriton().start();
  const proxy = await startFreezingProxy(Number(triton.target.split(":")[1]));
  onTestFinished(() => proxy.stop());
  const { embedder } = await pool([`127.0.0.1:${proxy.port}`], { timeoutMs: 20_000 });
  await load(embedder, 5);
  proxy.freeze();
  const startedAt = performance.now();
  await axes(embedder, 1);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
}, 20_000);
