import { getEventListeners } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Expiry, WaitQueue } from "./wait-queue.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const [a, b, c] = [{ name: "a" }, { name: "b" }, { name: "c" }];

test("returns entries in order of arrival", () => {
  const queue = new WaitQueue<object>();
  for (const entry of [a, b, c]) queue.push(entry);
  expect(queue.first).toBe(a);
  expect([...queue]).toEqual([a, b, c]);
  expect([queue.shift(), queue.shift(), queue.shift(), queue.shift()]).toEqual([
    a,
    b,
    c,
    undefined,
  ]);
  expect(queue.length).toBe(0);
});

test("returns entries by their order, and entries without one last", () => {
  const queue = new WaitQueue<object>();
  const d = { name: "d" };
  queue.push(c, { order: 3 });
  queue.push(a, { order: 1 });
  queue.push(b, { order: 2 });
  queue.push(d);
  expect([...queue]).toEqual([a, b, c, d]);
  queue.delete(b);
  queue.push(b, { order: 3 });
  expect([...queue]).toEqual([a, c, d, b]);
});

test("an entry that was moved behind an earlier one still expires", () => {
  const queue = new WaitQueue<object>();
  const caller = new AbortController();
  const expiries: Expiry[] = [];
  queue.push(b, { order: 2, signal: caller.signal }, (expiry) => expiries.push(expiry));
  queue.push(a, { order: 1 });
  caller.abort();
  expect(expiries).toEqual(["aborted"]);
  expect([...queue]).toEqual([a]);
});

test("removes an aborted entry and keeps the order of the others", () => {
  const queue = new WaitQueue<object>();
  const caller = new AbortController();
  const expiries: Expiry[] = [];
  queue.push(a);
  queue.push(b, { signal: caller.signal, timeoutMs: 5 }, (expiry) => expiries.push(expiry));
  queue.push(c);
  caller.abort();
  expect([...queue]).toEqual([a, c]);
  vi.advanceTimersByTime(5);
  expect(expiries).toEqual(["aborted"]);
});

test("removes an entry exactly at its timeout", () => {
  const queue = new WaitQueue<object>();
  const expiries: Expiry[] = [];
  queue.push(a, { timeoutMs: 5 }, (expiry) => expiries.push(expiry));
  vi.advanceTimersByTime(4);
  expect(queue.length).toBe(1);
  vi.advanceTimersByTime(1);
  expect(queue.length).toBe(0);
  expect(expiries).toEqual(["timeout"]);
});

test("rejects an entry with an aborted signal", () => {
  const queue = new WaitQueue<object>();
  const expiries: Expiry[] = [];
  queue.push(a, { signal: AbortSignal.abort() }, (expiry) => expiries.push(expiry));
  expect(queue.length).toBe(0);
  expect(expiries).toEqual(["aborted"]);
});

test.each([
  ["shifted", (queue: WaitQueue<object>) => queue.shift()],
  ["deleted", (queue: WaitQueue<object>) => queue.delete(a)],
])("an entry that was %s no longer expires, and leaves no listener or timer", (_how, remove) => {
  const queue = new WaitQueue<object>();
  const caller = new AbortController();
  const expiries: Expiry[] = [];
  queue.push(a, { signal: caller.signal, timeoutMs: 5 }, (expiry) => expiries.push(expiry));
  remove(queue);
  expect(getEventListeners(caller.signal, "abort")).toEqual([]);
  expect(vi.getTimerCount()).toBe(0);
  caller.abort();
  expect(expiries).toEqual([]);
});

test("reports whether a deleted entry was waiting", () => {
  const queue = new WaitQueue<object>();
  queue.push(a);
  expect([queue.delete(a), queue.delete(a), queue.delete(b)]).toEqual([true, false, false]);
});
