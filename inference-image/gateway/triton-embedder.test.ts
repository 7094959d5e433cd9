import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { expect, onTestFinished, test, vi } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { closedPort } from "../../http/test-listener.ts";
import { axes, embedderOf, FakeTriton, fp32Model, gate, image, until } from "./test-fake-triton.ts";
import { TritonImageEmbedder } from "./triton-embedder.ts";

const jpegModel = tritonModel(defaultModel, "jpeg");
const u8Model = tritonModel(defaultModel, "u8");

test.each([
  ["FP32", fp32Model],
  ["UINT8", u8Model],
])("sends a model that takes %s what it takes, in the order of the images", async (_, model) => {
  const triton = await new FakeTriton(model).start();
  const embedder = await embedderOf([triton]);
  expect(await axes(embedder, 5, 1, 3)).toEqual([5, 1, 3]);
  expect(embedder.input).toBe("pixels");
});

test("forwards files to a model that decodes them, each in its own call", async () => {
  const triton = await new FakeTriton(jpegModel).start();
  const embedder = await embedderOf([triton]);
  expect(embedder.input).toBe("encoded");
  expect(await axes(embedder, 5, 1, 3)).toEqual([5, 1, 3]);
  expect(triton.calls).toEqual([1, 1, 1]);
});

test("reports the image of the request that the model cannot decode", async () => {
  const triton = await new FakeTriton(jpegModel).start();
  const embedder = await embedderOf([triton]);
  triton.rejection = (level) => (level === 7 ? "image 0 cannot be decoded: no end" : undefined);
  await expect(axes(embedder, 5, 7, 3)).rejects.toMatchObject({
    code: "undecodable_image",
    message: "image 1 cannot be decoded: no end",
    image: 1,
  });
});

test("fails only the request with an invalid embedding and reports its image", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton], { callsPerTriton: 1 });
  const { closed, open } = gate();
  triton.gate = closed;
  triton.normOf = (level) => (level === 7 ? Number.NaN : 3);
  const [first, sound, broken] = [axes(embedder, 1), axes(embedder, 2), axes(embedder, 5, 7)];
  await until(() => triton.arrived === 1);
  open();
  await expect(broken).rejects.toMatchObject({ index: 1 });
  expect(await Promise.all([first, sound])).toEqual([[1], [2]]);
  expect(triton.calls).toEqual([1, 3]);
});

test("splits requests beyond the message size limit", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton], { maxBatchSize: 2 });
  expect(await axes(embedder, 1, 2, 3, 4, 5)).toEqual([1, 2, 3, 4, 5]);
  expect(triton.calls.sort()).toEqual([1, 2, 2]);
});

test("splits requests beyond the model's batch size", async () => {
  const triton = await new FakeTriton(fp32Model, 4).start();
  const embedder = await embedderOf([triton]);
  await axes(embedder, 1, 2, 3, 4, 5);
  expect(triton.calls.sort()).toEqual([1, 4]);
});

test("batches the requests that arrive while its Triton servers are busy", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton], { callsPerTriton: 1 });
  const { closed, open } = gate();
  triton.gate = closed;
  const answers = [1, 2, 3, 4].map((value) => axes(embedder, value));
  await until(() => triton.arrived === 1);
  expect(embedder.waitingItems).toBe(3);
  open();
  expect(await Promise.all(answers)).toEqual([[1], [2], [3], [4]]);
  expect(triton.calls).toEqual([1, 3]);
});

test("sends queued requests in the order of their arrival, not of their decoding", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton], { callsPerTriton: 1, maxBatchSize: 1 });
  const { closed, open } = gate();
  triton.gate = closed;
  const answered: number[] = [];
  const requests = [0, 3, 1, 2].map(async (order) => {
    await embedder.embed([image(order)], { order });
    answered.push(order);
  });
  await until(() => triton.arrived === 1);
  open();
  await Promise.all(requests);
  expect(answered).toEqual([0, 1, 2, 3]);
});

test("sends one call more than the model has instances", async () => {
  const triton = new FakeTriton();
  triton.instances = [{ kind: "KIND_GPU", count: 1, gpus: [0, 1, 2, 3] }];
  await triton.start();
  const embedder = await embedderOf([triton]);
  const { closed, open } = gate();
  triton.gate = closed;
  const answers = Array.from({ length: 9 }, (_, value) => axes(embedder, value));
  await until(() => triton.arrived === 5);
  expect(embedder.waitingItems).toBe(4);
  open();
  await Promise.all(answers);
  expect(triton.calls).toEqual([1, 1, 1, 1, 1, 4]);
});

test("distributes calls over all Triton servers", async () => {
  const tritons = await Promise.all([0, 1, 2].map(() => new FakeTriton().start()));
  const embedder = await embedderOf(tritons);
  await until(async () => {
    await axes(embedder, 1);
    return tritons.every(({ calls }) => calls.length > 0);
  });
  for (const triton of tritons) triton.calls.length = 0;
  for (let request = 0; request < 6; request++) await axes(embedder, 1);
  expect(tritons.map(({ calls }) => calls.length)).toEqual([2, 2, 2]);
});

test("uses an initially missing Triton once it is available", async () => {
  const [up, late] = [await new FakeTriton().start(), await new FakeTriton().start()];
  const port = Number(late.target.split(":")[1]);
  late.stop();
  const embedder = await embedderOf([up, late]);
  await axes(embedder, 1);
  const back = await new FakeTriton().start(port);
  await until(async () => {
    await axes(embedder, 1);
    return back.calls.length > 0;
  });
});

test.each([
  [status.UNAVAILABLE, "Server is stopping"],
  [status.NOT_FOUND, "Request for unknown model: 'openclip_vit_b32' has no available versions"],
])("sends a call that its stopping Triton rejects to another one, %i", async (code, details) => {
  const [leaving, staying] = [await new FakeTriton().start(), await new FakeTriton().start()];
  const embedder = await embedderOf([leaving, staying]);
  leaving.failure = { code, details };
  const answers = Array.from({ length: 8 }, (_, at) => axes(embedder, at));
  expect((await Promise.all(answers)).flat()).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect(staying.calls.reduce((sum, size) => sum + size, 0)).toBe(8);
});

test("takes a Triton server out of rotation while its model is not ready", async () => {
  const [first, second] = [await new FakeTriton().start(), await new FakeTriton().start()];
  const healthy = new Map<string, number>();
  const observer = {
    onBatch: () => {},
    onDequeue: () => {},
    onAttemptEnd: () => {},
    onHealthChange: (target: string, count: number) => void healthy.set(target, count),
  };
  const embedder = await embedderOf([first, second], { observer });
  await until(() => healthy.get(first.target) === 1 && healthy.get(second.target) === 1);
  first.ready = false;
  await until(() => healthy.get(first.target) === 0);
  const { arrived } = first;
  for (let request = 0; request < 4; request++) await axes(embedder, 1);
  expect(first.arrived).toBe(arrived);
  first.ready = true;
  await until(() => healthy.get(first.target) === 1);
  for (let request = 0; request < 4; request++) await axes(embedder, 1);
  expect(first.arrived).toBeGreaterThan(arrived);
});

test("is ready while one Triton server is healthy and otherwise reports why not", async () => {
  const triton = await new FakeTriton().start();
  const down = await closedPort();
  const embedder = await embedderOf([triton, `127.0.0.1:${down}`]);
  expect([await embedder.ready(), embedder.unavailableReason]).toEqual([true, undefined]);
  triton.ready = false;
  await until(async () => !(await embedder.ready()));
  expect(embedder.unavailableReason).toBe(
    `no Triton server can be used: ${triton.target}: ${fp32Model.name} is not ready; 127.0.0.1:${down}: connect ECONNREFUSED 127.0.0.1:${down}`,
  );
  await sleep(2_100);
  await expect(axes(embedder, 1)).rejects.toThrow(`[unavailable] ${embedder.unavailableReason}`);
});

test("reports a target that cannot be resolved", async () => {
  const embedder = new TritonImageEmbedder({
    targets: ["no-such-host.invalid:8001"],
    spec: defaultModel,
    model: fp32Model.name,
    timeoutMs: 1_000,
    maxBatchSize: 32,
  });
  onTestFinished(() => embedder.close());
  await until(() => embedder.unavailableReason?.includes("resolved") ?? false);
  expect(embedder.unavailableReason).toBe(
    "no Triton server can be used: no-such-host.invalid:8001: the name cannot be resolved",
  );
});

test("resolves Triton servers by host name", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton.target.replace("127.0.0.1", "localhost")]);
  expect(await axes(embedder, 3)).toEqual([3]);
});

test("rejects another model in one line", async () => {
  const other = await new FakeTriton({
    ...fp32Model,
    inputs: [{ name: "data", dataType: "FP32", dims: [3, 336, 336] }],
  }).start();
  const embedder = await embedderOf([other], { usable: 0 });
  await until(() => embedder.unavailableReason?.includes("must") ?? false);
  expect(embedder.unavailableReason).toBe(
    `no Triton server can be used: ${other.target}: openclip_vit_b32 must take image UINT8 [-1, 224, 224, 3], or image FP32 [-1, 3, 224, 224], or image BYTES [-1, 1], or image UINT8 [-1, -1] and give embedding FP32 [-1, 512], got data FP32 [-1, 3, 336, 336] and embedding FP32 [-1, 512]`,
  );
});

test("excludes a Triton server with another model input than the others", async () => {
  const pixels = await new FakeTriton(u8Model).start();
  const floats = await new FakeTriton(fp32Model).start();
  const reasons: string[] = [];
  const observer = {
    onBatch: () => {},
    onDequeue: () => {},
    onAttemptEnd: () => {},
    onHealthChange: (_target: string, _count: number, reason: string) => void reasons.push(reason),
  };
  const embedder = await embedderOf([pixels, floats], { observer });
  await until(() => reasons.some((reason) => reason.includes("on the other Triton servers")));
  expect(await axes(embedder, 1, 2)).toEqual([1, 2]);
});

test("reads the model metadata again after a restart of its Triton server", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton]);
  await axes(embedder, 1);
  triton.stop();
  await until(() => embedder.unavailableReason !== undefined);
  await new FakeTriton(u8Model).start(Number(triton.target.split(":")[1]));
  await until(() => embedder.unavailableReason === undefined);
  expect(await axes(embedder, 4, 2)).toEqual([4, 2]);
});

test("does not retry a request that Triton rejected", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton]);
  triton.failure = { code: status.INVALID_ARGUMENT, details: "no" };
  await expect(axes(embedder, 1)).rejects.toMatchObject({ code: "rejected" });
  expect(triton.arrived).toBe(1);
});

test("sends the deadline to Triton and fails when it passes", async () => {
  const triton = await new FakeTriton().start();
  const timeoutMs = 1_000;
  const embedder = await embedderOf([triton], { timeoutMs });
  triton.gate = gate().closed;
  const sentAt = Date.now();
  await expect(axes(embedder, 1)).rejects.toMatchObject({ code: "timeout" });
  const deadlineMs = Number(triton.deadline) - sentAt;
  expect(deadlineMs).toBeGreaterThan(0);
  // the deadline counts from the arrival of the call, which is later on a slow machine
  expect(deadlineMs).toBeLessThan(timeoutMs + 10_000);
});

test("cancels the call to Triton if its client disconnects", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton]);
  triton.gate = gate().closed;
  const caller = new AbortController();
  const call = embedder.embed([image(1)], { signal: caller.signal });
  await until(() => triton.arrived === 1);
  caller.abort();
  await expect(call).rejects.toMatchObject({ code: "cancelled" });
  await until(() => triton.cancelled === 1);
});

test("continues a call while at least one of its clients is connected", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton], { callsPerTriton: 1 });
  const { closed, open } = gate();
  triton.gate = closed;
  const first = axes(embedder, 1);
  const caller = new AbortController();
  const gone = embedder.embed([image(2)], { signal: caller.signal });
  const stays = axes(embedder, 3);
  await until(() => triton.arrived === 1);
  caller.abort();
  await expect(gone).rejects.toMatchObject({ code: "cancelled" });
  open();
  expect(await Promise.all([first, stays])).toEqual([[1], [3]]);
  expect(triton.calls).toEqual([1, 1]);
});

test("closes after the calls in flight are answered", async () => {
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton], { callsPerTriton: 1 });
  const { closed, open } = gate();
  triton.gate = closed;
  const calls = [axes(embedder, 7), axes(embedder, 8)];
  await until(() => triton.arrived === 1);
  const ended = embedder.close();
  open();
  expect(await Promise.all(calls)).toEqual([[7], [8]]);
  await ended;
});

test("is still connected after an idle hour", async () => {
  const start = Date.now();
  // timers longer than a test are recorded and fired manually
  const distant: (() => void)[] = [];
  const setTimer = globalThis.setTimeout;
  const later = (run: () => void, ms = 0) => {
    if (ms < 10 * 60_000) return setTimer(run, ms);
    distant.push(run);
    return setTimer(() => {}, 0);
  };
  vi.spyOn(globalThis, "setTimeout").mockImplementation(later as typeof setTimeout);
  vi.useFakeTimers({ toFake: ["Date", "setInterval", "clearInterval"], now: start });
  onTestFinished(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });
  const triton = await new FakeTriton().start();
  const embedder = await embedderOf([triton]);
  for (let minute = 1; minute <= 60; minute += 1) {
    await vi.advanceTimersByTimeAsync(60_000);
    if (minute % 31 === 0) for (const run of distant.splice(0)) run();
  }
  await sleep(100);
  expect(await embedder.ready()).toBe(true);
  expect(await axes(embedder, 7)).toEqual([7]);
});

test("an image after its deadline does not affect the others in the queue", async () => {
  const triton = await new FakeTriton().start();
  const { closed, open } = gate();
  triton.gate = closed;
  const embedder = await embedderOf([triton], { callsPerTriton: 1, timeoutMs: 3_000 });
  const old = [axes(embedder, 1), axes(embedder, 2)].map((answer) => answer.catch(String));
  await sleep(1_500);
  const young = axes(embedder, 3);
  for (const answer of old) expect(await answer).toMatch(/\[timeout\] .* in 3000 ms$/);
  open();
  expect(await young).toEqual([3]);
});
