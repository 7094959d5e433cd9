import { expect, test } from "vitest";
import { parseHey } from "./baseline-generators.ts";

const hey = `
Summary:
  Total:	1.0042 secs
  Requests/sec:	241.9792

Latency distribution:
  10%% in 0.0307 secs
  50%% in 0.0312 secs
  95%% in 0.0350 secs
  99%% in 0.0401 secs

Status code distribution:
  [200]	243 responses
`;

test("the request rate and latencies are parsed from hey's output", () => {
  expect(parseHey(hey)).toEqual({
    requestsPerSecond: 241.9792,
    p50Ms: expect.closeTo(31.2),
    p95Ms: expect.closeTo(35),
  });
});

test.each([
  ["a status", "[503]	12 responses"],
  ["an error", '[3]	Post "http://127.0.0.1:1/": EOF'],
])("fails when hey saw %s that is not good", (_what, line) => {
  expect(() => parseHey(`${hey}  ${line}\n`)).toThrow(`hey: ${line.replace("\t", " ")}`);
});
