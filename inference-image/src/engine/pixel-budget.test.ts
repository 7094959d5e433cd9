import { expect, test } from "vitest";
import { PixelBudget } from "./pixel-budget.ts";

/** Work that lasts until it is told to end. */
function held(budget: PixelBudget, started: string[], name: string, pixels: number) {
  const controller = new AbortController();
  let end = () => {};
  const gate = new Promise<void>((resolve) => {
    end = resolve;
  });
  const work = async () => {
    started.push(name);
    await gate;
  };
  const done = budget.during(pixels, 10, work, controller.signal);
  return { done, end, abort: () => controller.abort() };
}

test("lets in what fits, in order, and one image that is too large by itself", async () => {
  const budget = new PixelBudget();
  const started: string[] = [];
  const [a, b, c, d] = [
    held(budget, started, "a", 6),
    held(budget, started, "b", 4),
    held(budget, started, "c", 20),
    held(budget, started, "d", 1),
  ];
  await new Promise(setImmediate);
  expect(started).toEqual(["a", "b"]);
  a.end();
  b.end();
  await Promise.all([a.done, b.done]);
  await new Promise(setImmediate);
  expect(started).toEqual(["a", "b", "c"]);
  c.end();
  d.end();
  await Promise.all([c.done, d.done]);
  expect(started).toEqual(["a", "b", "c", "d"]);
});

test("gives up the place of one that is aborted while it waits", async () => {
  const budget = new PixelBudget();
  const started: string[] = [];
  const a = held(budget, started, "a", 6);
  const b = held(budget, started, "b", 6);
  const c = held(budget, started, "c", 4);
  b.abort();
  await expect(b.done).rejects.toMatchObject({ name: "AbortError" });
  await new Promise(setImmediate);
  expect(started).toEqual(["a", "c"]);
  a.end();
  c.end();
  await Promise.all([a.done, c.done]);
});
