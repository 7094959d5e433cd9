import { expect, test, vi } from "vitest";
import { timeSlice } from "./time-slice.ts";

/** Rounds of the event loop while something is done. */
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

/** Work of three pieces, each longer than a turn. */
async function longWork(name: string, done: string[]): Promise<void> {
  for (let piece = 0; piece < 3; piece++) {
    if (timeSlice.exhausted) await timeSlice.next();
    busy(3);
  }
  done.push(name);
}

test("much work that begins at once takes its turns one after the other, each in a round of its own", async () => {
  const names = Array.from({ length: 20 }, (_, index) => `work ${index}`);
  const done: string[] = [];
  const rounds = await roundsDuring(() => Promise.all(names.map((name) => longWork(name, done))));
  expect(rounds).toBeGreaterThanOrEqual(3 * names.length);
  expect(done).toEqual(names);
});

test("work that is short waits for nobody's turn", async () => {
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
