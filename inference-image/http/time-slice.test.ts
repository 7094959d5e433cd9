import { expect, test, vi } from "vitest";
import { timeSlice } from "./time-slice.ts";

/** Counts the iterations of the event loop while `work` runs. */
async function roundsDuring(work: () => Promise<unknown>): Promise<number> {
  let rounds = 0;
  let ended = false;
  const count = () => {
    rounds += 1;
    if (!ended) setImmediate(count);
  };
  setImmediate(count);
  await work();
  ended = true;
  return rounds;
}

function busy(milliseconds: number): void {
  const until = performance.now() + milliseconds;
  while (performance.now() < until);
}

/** Work in three parts, each longer than a time slice. */
async function longWork(name: string, done: string[]): Promise<void> {
  for (let piece = 0; piece < 3; piece++) {
    if (timeSlice.exhausted) await timeSlice.next();
    busy(3);
  }
  done.push(name);
}

test("concurrent long work runs one time slice per iteration of the event loop", async () => {
  const names = Array.from({ length: 20 }, (_, index) => `work ${index}`);
  const done: string[] = [];
  const rounds = await roundsDuring(() => Promise.all(names.map((name) => longWork(name, done))));
  expect(rounds).toBeGreaterThanOrEqual(3 * names.length);
  expect(done).toEqual(names);
});

test("short work runs immediately", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    await timeSlice.next();
    expect(timeSlice.exhausted).toBe(false);
    vi.advanceTimersByTime(3);
    expect(timeSlice.exhausted).toBe(true);
  } finally {
    vi.useRealTimers();
  }
});
