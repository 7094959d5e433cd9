import { expect, test } from "vitest";
import { fuzz } from "./fuzz.ts";
import { soak } from "./soak.ts";
import { stops } from "./stops.ts";

test("nothing breaks the servers, of some thousand inputs", async () => {
  const { failures, sent, answers } = await fuzz({ inputs: 5_000, seed: 7, concurrency: 8 });
  expect(failures).toEqual([]);
  expect(sent).toBe(5_000);
  // what would refuse everything would break nothing either
  for (const answer of ["embed 200", "embed 422", "triton-http 200", "triton-grpc OK"]) {
    expect(answers[answer], answer).toBeGreaterThan(20);
  }
});

test("the embed server answers all of some hundred requests, and does not grow without bound", async () => {
  const { failures, health, memory, stopped } = await soak({
    requests: 1_000,
    warmUp: 400,
    concurrency: 32,
  });
  expect(failures).toEqual({});
  expect(health.errorsWithWarmup).toEqual({});
  expect(stopped).toBe("with code 0");
  // the long form says 1.1
  expect(memory.late / memory.early).toBeLessThan(1.5);
});

test("servers that stop under load lose no request", async () => {
  const { answered, lost, failed } = await stops({ stops: 12, parallel: 4 });
  expect(lost).toEqual([]);
  expect(failed).toEqual([]);
  expect(answered).toBeGreaterThan(12 * 8 - 1);
});
