import { afterEach, describe, expect, test, vi } from "vitest";
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

describe("the bytes of a client", () => {
  const limits = { maxQueueSize: 100, maxQueueBytes: 1_000 };
  const received = (admission: Admission, bytes: number, client: string) => {
    const reservation = admission.reserve(bytes, () => {}, client);
    reservation.complete();
    return reservation;
  };

  test("leave a quarter of the capacity to others", () => {
    const admission = new Admission(limits, () => 0);
    received(admission, 700, "a");
    expect(() => received(admission, 51, "a")).toThrow(
      "the queue has 700 bytes of requests and responses of this client, the limit is 750; retry later",
    );
    received(admission, 250, "b");
    expect(() => received(admission, 51, "c")).toThrow(
      "the queue has 950 bytes of requests and responses, the limit is 1000; retry later",
    );
  });

  test("become those of the response, until it is sent", () => {
    const admission = new Admission(limits, () => 0);
    const reservation = received(admission, 900, "a");
    reservation.parsed();
    reservation.respond(200);
    expect(admission.bytes).toBe(200);
    received(admission, 500, "a");
    reservation.end();
    expect(admission.bytes).toBe(500);
  });

  test("remain after a disconnect until the body is parsed", () => {
    const admission = new Admission(limits, () => 0);
    const reservation = received(admission, 700, "a");
    reservation.end();
    expect(admission.bytes).toBe(700);
    reservation.respond(10);
    expect(admission.bytes).toBe(0);
  });

  test("evict only slow bodies of that client", () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const admission = new Admission(limits, () => 0);
    const drops = [vi.fn(), vi.fn()];
    admission.reserve(200, drops[0]!, "a");
    admission.reserve(600, drops[1]!, "b");
    vi.advanceTimersByTime(3_000);
    received(admission, 200, "b");
    expect(drops.map((drop) => drop.mock.calls.length)).toEqual([0, 1]);
  });
});
