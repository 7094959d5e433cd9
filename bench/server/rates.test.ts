import { expect, test } from "vitest";
import { median } from "../src/statistics.ts";
import type { Answer } from "./load-job.ts";
import { answersPerSecond, counted } from "./rates.ts";

const answer = (connection: number, atMs: number, status = 200): Answer => ({
  connection,
  atMs,
  latencyMs: 1,
  status,
});

test("adds up the connections' rates", () => {
  const slow = [0, 100, 200, 300].map((atMs) => answer(0, 1_000 + atMs));
  const fast = [0, 50, 100].map((atMs) => answer(1, 1_000 + atMs));
  expect(answersPerSecond([...slow, ...fast], 2, 0)).toBeCloseTo(10 + 20);
});

test("is not misled by answers that come in bursts", () => {
  // 16 connections that are answered together, once every 400 ms: 40 a second, wherever the first burst falls
  const bursts = [3, 403, 803, 1_203].flatMap((burst) =>
    Array.from({ length: 16 }, (_, connection) => answer(connection, burst + connection / 8)),
  );
  expect(answersPerSecond(bursts, 16, 0)).toBeCloseTo(40);
});

test("leaves out the warm-up and what failed", () => {
  const answers = [answer(0, 10), answer(0, 110, 429), answer(0, 210), answer(0, 310)];
  expect(counted(answers, 50).map(({ atMs }) => atMs)).toEqual([210, 310]);
  expect(answersPerSecond(answers, 1, 50)).toBeCloseTo(10);
});

test("gives no rate where a connection has less than two answers", () => {
  expect(answersPerSecond([answer(0, 10), answer(0, 20), answer(1, 15)], 2, 0)).toBeUndefined();
});

test("the median of an even number of values is the mean of the two in the middle", () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
  expect(median([9, 1, 5])).toBe(5);
  expect(median([])).toBeUndefined();
});
