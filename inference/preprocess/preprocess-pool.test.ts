import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Worker } from "node:worker_threads";
import { afterEach, beforeEach, expect, test } from "vitest";
import { imageBytes } from "../../contract/model-shapes.ts";
import { Budget } from "../threads/budget.ts";
import { readImageHeader } from "./image-header.ts";
import { type PoolTask, PreprocessPool } from "./preprocess-pool.ts";
import { picture } from "./test-images.ts";
import { vitB32 } from "./test-inputs.ts";
import { slowProgressiveJpeg } from "./test-progressive.ts";

const pixelBytes = imageBytes(vitB32, "uint8")!;

/** Threads started by a test. */
const threads: Worker[] = [];
const remember = (thread: Worker) => threads.push(thread);
const pools: PreprocessPool[] = [];

beforeEach(() => {
  process.on("worker", remember);
});
afterEach(async () => {
  process.off("worker", remember);
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
  threads.splice(0);
});

function poolOf(
  threads: number,
  { budget = new Budget(100_000_000), timeoutMs = 60_000 } = {},
): PreprocessPool {
  const pool = new PreprocessPool({ threads, budget, timeoutMs });
  pools.push(pool);
  return pool;
}

async function taskOf(width: number, height: number, seed = 1): Promise<PoolTask> {
  const bytes = await picture("jpeg", { width, height, seed });
  return { bytes, header: readImageHeader(bytes)!, input: vitB32.input, mode: "exact" };
}

test("starts no thread before an image needs one", async () => {
  const pool = poolOf(2);
  expect(pool.size).toBe(0);
  await pool.run(await taskOf(320, 240));
  expect(pool.size).toBe(1);
});

test("starts another thread only if all are busy, up to the limit", async () => {
  const pool = poolOf(2);
  const task = await taskOf(800, 600);
  await pool.run(task);
  await pool.run(task);
  expect(pool.size).toBe(1);
  await Promise.all([1, 2, 3, 4, 5].map(() => pool.run(task)));
  expect(pool.size).toBe(2);
});

test("fails if a file has other dimensions than its header", async () => {
  const task = await taskOf(400, 300);
  const header = { ...task.header, width: 4000, height: 3000 };
  expect(await poolOf(1).run(task)).toHaveLength(pixelBytes);
  await expect(poolOf(1).run({ ...task, header })).rejects.toThrow(/extract_area|expected/);
});

test("does not modify the file", async () => {
  const task = await taskOf(800, 600);
  const before = Buffer.from(task.bytes);
  await poolOf(1).run(task);
  expect(before.equals(task.bytes)).toBe(true);
});

test("transfers the memory of a file if allowed", async () => {
  const task = await taskOf(800, 600);
  const expected = await poolOf(1).run(task);
  // the file is part of a larger buffer
  const body = new Uint8Array(task.bytes.length + 20);
  const bytes = body.subarray(7, 7 + task.bytes.length);
  bytes.set(task.bytes);
  expect(await poolOf(1).run({ ...task, bytes, transferred: true })).toEqual(expected);
  expect(body).toHaveLength(0);
});

test("rejects only a file with memory that cannot be transferred", async () => {
  const pool = poolOf(1);
  const task = await taskOf(40, 30);
  const bytes = new Uint8Array(task.bytes);
  structuredClone(bytes, { transfer: [bytes.buffer] }); // it was transferred before
  const rejected = pool.run({ ...task, bytes, transferred: true });
  const accepted = pool.run(task);
  await expect(rejected).rejects.toMatchObject({ code: "failed" });
  expect(await accepted).toHaveLength(pixelBytes);
  expect(await pool.run(task)).toHaveLength(pixelBytes);
  expect(pool.size).toBe(1);
});

test("reuses the memory of recycled images", async () => {
  const pool = poolOf(1);
  const [first, second] = await Promise.all([taskOf(640, 480, 1), taskOf(500, 700, 2)]);
  const expected = await poolOf(1).run(second);
  const pixels = await pool.run(first);
  const kept = await pool.run(first);
  pool.recycle(pixels);
  expect(await pool.run(second)).toEqual(expected);
  expect(pixels).toHaveLength(0);
  expect(kept).toHaveLength(pixelBytes);
  // no recycled memory is left: the next image gets its own
  expect(await pool.run(second)).toEqual(expected);
});

test("keeps the memory of a limited number of images", async () => {
  const pool = poolOf(1);
  const task = await taskOf(40, 30);
  const others = [new Uint8Array(10), new Uint8Array(2 * pixelBytes).subarray(0, pixelBytes)];
  for (const other of others) pool.recycle(other);
  const spares = Array.from({ length: 100 }, () => new Uint8Array(pixelBytes));
  for (const spare of spares) pool.recycle(spare);
  for (let image = 0; image < 100; image++) await pool.run(task);
  expect(spares.filter(({ length }) => length === 0)).toHaveLength(64);
  expect(others.map(({ length }) => length)).toEqual([10, pixelBytes]);
});

test("processes images in order of arrival", async () => {
  const pool = poolOf(1);
  const done: number[] = [];
  const tasks = await Promise.all([1, 2, 3, 4].map((seed) => taskOf(700, 500, seed)));
  await Promise.all(tasks.map((task, index) => pool.run(task).then(() => done.push(index))));
  expect(done).toEqual([0, 1, 2, 3]);
});

test("drops only an image that is aborted while it is queued", async () => {
  const pool = poolOf(1);
  const task = await taskOf(900, 700);
  await pool.run(task); // the thread is there
  const controller = new AbortController();
  const first = pool.run(task, controller.signal); // it is being worked on
  const second = pool.run(task, controller.signal);
  const third = pool.run(task);
  let answers = 0;
  threads[0]!.on("message", () => answers++);
  controller.abort(new Error("the caller went away"));
  await expect(second).rejects.toThrow("the caller went away");
  expect(await first).toHaveLength(pixelBytes);
  expect(await third).toHaveLength(pixelBytes);
  expect(answers).toBe(2);
  await expect(pool.run(task, controller.signal)).rejects.toThrow("the caller went away");
});

test("a thread that exits fails only its own image and is replaced", async () => {
  const pool = poolOf(1);
  const task = await taskOf(900, 700);
  await pool.run(task);
  const lost = pool.run(task);
  const kept = pool.run(task);
  await Promise.all([
    expect(lost).rejects.toMatchObject({
      code: "failed",
      message: "[failed] the decoding thread ended: exit code 1",
    }),
    threads[0]!.terminate(),
  ]);
  expect(await kept).toHaveLength(pixelBytes);
  expect(threads).toHaveLength(2);
});

/** Continues only when both images hold their pixels. */
class PairBudget extends Budget {
  readonly #granted: (() => void)[] = [];

  override acquire(pixels: number, granted: () => void): () => void {
    return super.acquire(pixels, () => {
      this.#granted.push(granted);
      if (this.#granted.length === 2) for (const go of this.#granted) go();
    });
  }
}

test("decodes two images of 24 MP concurrently on two threads", async () => {
  const bytes = slowProgressiveJpeg(6_000, 4_000, 2);
  const task: PoolTask = {
    bytes,
    header: readImageHeader(bytes)!,
    input: vitB32.input,
    mode: "exact",
  };
  const pool = poolOf(2, { budget: new PairBudget(2 * 40_000_000) });
  const results = await Promise.all([pool.run(task), pool.run(task)]);
  expect(results.map(({ length }) => length)).toEqual([pixelBytes, pixelBytes]);
});

test("charges the pixels of an image only while it holds them", async () => {
  const held: number[] = [];
  class Recorded extends Budget {
    override acquire(pixels: number, granted: () => void): () => void {
      held.push(pixels);
      const release = super.acquire(pixels, granted);
      return () => {
        held.push(-pixels);
        release();
      };
    }
  }
  const pool = poolOf(1, { budget: new Recorded(1) });
  await pool.run(await taskOf(320, 240));
  expect(held, "a baseline JPEG is decoded row by row").toEqual([]);
  const bytes = await picture("png");
  await pool.run({ bytes, header: readImageHeader(bytes)!, input: vitB32.input, mode: "exact" });
  const broken = { bytes: bytes.subarray(0, 5_000), header: readImageHeader(bytes)! };
  await expect(pool.run({ ...broken, input: vitB32.input, mode: "exact" })).rejects.toThrow();
  expect(held).toEqual([76_800, -76_800, 76_800, -76_800]);
});

const slow = slowProgressiveJpeg(6_300, 6_300, 100);
const slowTask: PoolTask = {
  bytes: slow,
  header: readImageHeader(slow)!,
  input: vitB32.input,
  mode: "exact",
};

test("terminates a thread at the deadline of its image without losing other images", async () => {
  const pool = poolOf(1, { timeoutMs: 1_000 });
  const failed = pool.run(slowTask);
  const others = [1, 2].map(async () => pool.run(await taskOf(60, 40)));
  await expect(failed).rejects.toThrow("decoding took longer than 1000 ms");
  for (const pixels of await Promise.all(others)) expect(pixels).toHaveLength(pixelBytes);
  expect(pool.size).toBe(1);
  expect(threads).toHaveLength(2);
});

test("a process that decodes a slow image exits at the deadline", async () => {
  const program = fileURLToPath(new URL("./preprocess-process.mjs", import.meta.url));
  const task = { header: slowTask.header, mode: "exact", input: vitB32.input, timeoutMs: 500 };
  const child = promisify(execFile)(process.execPath, [program, JSON.stringify(task)]);
  child.child.stdin!.on("error", () => {});
  child.child.stdin!.end(slow);
  await expect(child).rejects.toMatchObject({ signal: "SIGKILL" });
});

test("decodes an image of many scans in a process, to the same pixels", async () => {
  // 80 scans of 4 MP are decoded in a process, 2 scans in a thread
  const images = [80, 2].map((scans) => slowProgressiveJpeg(2_000, 2_000, scans));
  const [many, few] = await Promise.all(
    images.map((bytes) =>
      poolOf(1).run({ bytes, header: readImageHeader(bytes)!, input: vitB32.input, mode: "exact" }),
    ),
  );
  expect(many).toEqual(few);
});

test("completes accepted images when it is closed and accepts no more", async () => {
  const pool = poolOf(1);
  const large = await taskOf(900, 700);
  const accepted = [pool.run(large), pool.run(large), pool.run(await taskOf(50, 40))];
  const closed = pool.close();
  await expect(pool.run(large)).rejects.toMatchObject({ code: "draining" });
  await closed;
  for (const pixels of await Promise.all(accepted)) expect(pixels).toHaveLength(pixelBytes);
  expect(pool.size).toBe(0);
});

const ending = fileURLToPath(new URL("./preprocess.ts", import.meta.url));

test.each([
  ["ends when nothing is left to do", ""],
  ["can be ended while images are decoded", "setTimeout(() => process.exit(0), 100);"],
])("a process that preprocesses %s", async (_, end) => {
  const size = end === "" ? 800 : 4000;
  const file = (await picture("jpeg", { width: size, height: size })).toString("base64");
  const code = `
    const { preprocess } = await import(${JSON.stringify(ending)});
    let text = "";
    for await (const part of process.stdin) text += part;
    const image = Buffer.from(text, "base64");
    ${end}
    const all = await Promise.all([1, 2, 3, 4].map(() => preprocess(image, ${JSON.stringify(vitB32.input)}, { maxPixels: 4e7 })));
    console.log(all.length);`;
  const child = promisify(execFile)(
    process.execPath,
    ["--import", "tsx", "--input-type=module", "--eval", code],
    { timeout: 25_000, cwd: fileURLToPath(new URL(".", import.meta.url)) },
  );
  child.child.stdin!.end(file);
  const { stdout, stderr } = await child; // rejects unless the exit code is 0
  expect(stdout).toBe(end === "" ? "4\n" : "");
  expect(stderr).toBe("");
});
