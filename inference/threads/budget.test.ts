import { expect, test } from "vitest";
import { Budget } from "./budget.ts";

test("admits images within the limit in order, and a single image beyond it", () => {
  const budget = new Budget(10);
  const admitted: string[] = [];
  const acquire = (name: string, pixels: number) =>
    budget.acquire(pixels, () => admitted.push(name));
  const releaseA = acquire("a", 6);
  const releaseB = acquire("b", 4);
  const releaseC = acquire("c", 20);
  acquire("d", 1);
  expect(admitted).toEqual(["a", "b"]);
  releaseA();
  expect(admitted).toEqual(["a", "b"]);
  releaseB();
  expect(admitted).toEqual(["a", "b", "c"]);
  releaseC();
  expect(admitted).toEqual(["a", "b", "c", "d"]);
});

test("removes a claim that is aborted while it waits", () => {
  const budget = new Budget(10);
  const admitted: string[] = [];
  const acquire = (name: string, pixels: number) =>
    budget.acquire(pixels, () => admitted.push(name));
  acquire("a", 6);
  const giveUpB = acquire("b", 6);
  acquire("c", 4);
  giveUpB();
  expect(admitted).toEqual(["a", "c"]);
});

test("holds the amount while the work runs and releases it if the work fails", async () => {
  const budget = new Budget(1);
  let fail = (_error: Error) => {};
  const first = budget.during(1, () => new Promise((_, reject) => (fail = reject)));
  const second = budget.during(1, async () => "done");
  const early = await Promise.race([second, Promise.resolve("waits")]);
  fail(new Error("no"));
  await expect(first).rejects.toThrow("no");
  expect([early, await second]).toEqual(["waits", "done"]);
});
