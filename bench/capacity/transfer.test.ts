import { expect, test } from "vitest";
import { type Link, transfer } from "./transfer.ts";

const link: Link = { bandwidthMbps: 80, roundTripMs: 40, connections: "new" };

test("the transmission time follows from the bandwidth", () => {
  expect(transfer(1_000_000, link).wireMs).toBeCloseTo(100, 9);
});

test("a body within the initial window waits for the connection only", () => {
  expect(transfer(10_000, link)).toEqual({ wireMs: 1, setUpMs: 40, rampMs: 0 });
});

test("a larger body waits one round trip per doubling of the window until it fills the link", () => {
  // windows of 14 600, 29 200, 58 400, … : the link holds 400 000 bytes, so the sixth window fills it
  const { wireMs, rampMs } = transfer(600_000, { ...link, bandwidthMbps: 80 });
  const sent = 14_600 * (2 ** 5 - 1);
  expect(wireMs + rampMs).toBeCloseTo(5 * 40 + ((600_000 - sent) * 8) / 80_000, 9);
});

test("a kept connection has no setup or ramp time", () => {
  const kept = transfer(600_000, { ...link, connections: "kept" });
  expect(kept).toEqual({ wireMs: 60, setUpMs: 0, rampMs: 0 });
});

test("without a round trip, setup and ramp times are zero", () => {
  expect(transfer(600_000, { ...link, roundTripMs: 0 })).toEqual({
    wireMs: 60,
    setUpMs: 0,
    rampMs: 0,
  });
});
