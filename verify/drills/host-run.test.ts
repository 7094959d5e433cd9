import { expect, test } from "vitest";
import { renderText } from "../../report/render/render-text.ts";
import { interruption, judgeBy } from "./drill-load.ts";
import { drillRecord, type PhaseLoad } from "./drill-record.ts";
import { drillReport } from "./drill-report.ts";
import { judgePhase } from "./host-run.ts";
import { testHostDrillRecord as record } from "./test-drill-record.ts";

const phase = (more: Partial<PhaseLoad>): PhaseLoad => ({
  phase: "killed",
  seconds: 5,
  requests: 25,
  failed: 0,
  errors: {},
  rejected: {},
  longestGapMs: 300,
  disturbedSeconds: 0,
  ...more,
});
const refused = { failed: 2, errors: { "connection refused": 2 } };
const rejected = { rejected: { "503 with Retry-After": 3 } };
const silent = { failed: 1, errors: { "no response in time": 1 } };
const wrong = { failed: 1, errors: { "wrong embedding": 1 } };
const during = { isDuring: true, isOutage: false };
const outage = { isDuring: true, isOutage: true };
const after = { isDuring: false, isOutage: false };

test.each([
  ["every request succeeds", {}, during, true],
  ["no request was sent", { requests: 0 }, during, false],
  ["a rejection with Retry-After during the disturbance", rejected, during, true],
  ["a rejection with Retry-After afterwards", rejected, after, false],
  ["a refused connection to a server that is not disturbed", refused, during, false],
  ["a refused connection to the disturbed server", refused, outage, true],
  ["a request without a response", silent, outage, false],
  ["a wrong embedding", wrong, outage, false],
])("judges a phase: %s", (_, load, options, passed) => {
  expect(judgePhase(phase(load), options).passed).toBe(passed);
});

test("describes a phase", () => {
  const load = phase({ ...refused, ...rejected, longestGapMs: 1_234, disturbedSeconds: 2.5 });
  expect(judgePhase(load, during).message).toBe(
    "25 requests, 20 succeeded; rejected: 3 × 503 with Retry-After; 2 of 25 requests failed: 2 × connection refused; longest time without a success 1.2 s; the last unsuccessful request ended after 2.5 s",
  );
});

const body = (...values: readonly number[]) => Buffer.from(Float32Array.from(values).buffer);
const retryAfter = [Buffer.from("Retry-After"), Buffer.from("1")];

test.each([
  ["the same embedding", 200, body(1, 0), [], ""],
  ["another order of additions", 200, body(1, 0.001), [], ""],
  ["the embedding of another image", 200, body(0, 1), [], "wrong embedding"],
  ["a truncated body", 200, body(1), [], "wrong embedding"],
  ["an overloaded server", 429, body(), retryAfter, "429 with Retry-After"],
  ["an overloaded server without Retry-After", 429, body(), [], "429"],
  ["a value that looks like the name", 503, body(), [...retryAfter].reverse(), "503"],
  ["an internal error", 500, body(), retryAfter, "500"],
])("judges a response: %s", (_, status, response, headers, code) => {
  const judge = judgeBy([body(0, 1), body(1, 0)]);
  expect(judge(1, { status, headers, body: response })).toBe(code);
});

test("measures the interruption of a phase", () => {
  const sample = (dueMs: number, doneMs: number, code = "") => {
    return { dueMs, sentMs: dueMs, doneMs, bytes: 0, code };
  };
  const samples = [sample(100, 150), sample(200, 1_200, "503"), sample(300, 1_000)];
  expect(interruption(samples, 100, 1_500)).toEqual({ longestGapMs: 850, disturbedSeconds: 1.1 });
  expect(interruption([sample(100, 150)], 100, 200)).toEqual({
    longestGapMs: 50,
    disturbedSeconds: 0,
  });
});

test("the report names the host, the disturbed service and what clients saw", () => {
  expect(drillRecord.parse(record)).toEqual(record);
  expect(renderText(drillReport(record))).toMatchInlineSnapshot(`
    "Environment  multi-gpu-4x
    Service      triton-0
    Host         ssh://gpu.example, Docker 29.1.3
    When         2026-11-21 21:00 UTC, 16 s

    Checks

    Is a killed server restarted, with no accepted request lost?

    outcome  check                             finding
    ✓ pass   nothing accepted is lost: killed  35 requests, 33 succeeded; rejected: 2 × 503 with Retry-After

    Load

    5 requests per second, a new connection for each request, to http://127.0.0.1:8002

    phase   seconds  requests  failed  errors  rejected                  longest gap ms  disturbed s  p50 ms  p95 ms  p99 ms  max ms  samples
    killed      7.0        35       0  none    2 × 503 with Retry-After             501          0.6    29.0     186   317 *     317       33

    1 check passed.
    "
  `);
});
