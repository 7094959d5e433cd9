import { afterEach, expect, test, vi } from "vitest";
import { Admission } from "./admission.ts";

afterEach(() => {
  vi.useRealTimers();
});

/** Admission with one slot, held by a request that announced 1000 bytes three seconds ago. */
function acceptedRequest() {
  vi.useFakeTimers({ toFake: ["performance"] });
  const admission = new Admission({ maxQueueSize: 1, maxQueueBytes: 10_000 }, () => 0);
  const drop = vi.fn();
  const place = admission.reserve(1_000, drop);
  vi.advanceTimersByTime(3_000);
  return { admission, place, drop };
}

test("a slow body loses its slot to another request", () => {
  const { admission, place, drop } = acceptedRequest();
  place.receive(500);
  admission.reserve(100, () => {});
  expect(drop).toHaveBeenCalledOnce();
  expect(String(drop.mock.calls[0])).toMatch(/: 500 of 1000 bytes in 3 s$/);
  expect(place.released).toBe(true);
});

test("a complete body keeps its slot until it is read", () => {
  const { admission, place, drop } = acceptedRequest();
  place.receive(1_000);
  place.complete();
  expect(() => admission.reserve(100, () => {})).toThrow(
    "the queue is full, the limit is 1 items; retry later",
  );
  expect(drop).not.toHaveBeenCalled();
  expect(place.released).toBe(false);
});
