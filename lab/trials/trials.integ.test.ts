import { expect, test } from "vitest";
import { fuzz } from "./fuzz.ts";
import { drainedRequests, trialGateway } from "./gateway.ts";
import { soak } from "./soak.ts";
import { stops } from "./stops.ts";

test("both servers keep working after 5,000 malformed inputs", async () => {
  const { failures, sent, responses } = await fuzz({ inputs: 5_000, seed: 7, concurrency: 8 });
  expect(failures).toEqual([]);
  expect(sent).toBe(5_000);
  // a server that rejects everything would pass, too
  for (const response of ["embed 200", "embed 422", "triton-http 200", "triton-grpc OK"]) {
    expect(responses[response], response).toBeGreaterThan(20);
  }
});

test("the embed server answers 1,000 requests without excessive memory growth", async () => {
  const { failures, health, memory, stopped } = await soak({
    requests: 1_000,
    warmUp: 400,
    concurrency: 32,
  });
  expect(failures).toEqual({});
  expect(health.errorsWithWarmup).toEqual({});
  expect(stopped).toBe("with code 0");
  // `npm run lab -- soak` allows 1.1 after more requests
  expect(memory.late / memory.early).toBeLessThan(1.5);
});

test("servers that stop under load lose no request", async () => {
  const { answered, lost, failed } = await stops({ stops: 4, parallel: 4 });
  expect(lost).toEqual([]);
  expect(failed).toEqual([]);
  expect(answered).toBeGreaterThan(4 * 8 - 1);
});

test("a gateway with a frozen, a faulty and a restarted server answers every request", async () => {
  const { answered, failures, ejections, drained, stopped } = await trialGateway({ minutes: 0.1 });
  expect(failures).toEqual({});
  expect(answered).toBeGreaterThan(20);
  expect(ejections).toBeGreaterThan(0);
  expect(drained).toBe(drainedRequests);
  expect(stopped).toBe("with code 0");
});
