import { expect, test } from "vitest";
import { warningText } from "../../target/subject/subject-caveats.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { caveatsOf } from "./caveats.ts";
import {
  testBenchRecord,
  testEnvironment,
  testLoadPoint,
  testSimulationRecord,
} from "./test-bench-record.ts";
import { verdictOf } from "./verdict.ts";

const record = (
  loadPoints: readonly LoadPoint[],
  changes: Partial<BenchRecord> = {},
): BenchRecord => testBenchRecord({ loadPoints: [...loadPoints], studies: [], ...changes });

const choice = (of: BenchRecord, goal: string) =>
  verdictOf(of).choices.find((it) => it.goal === goal)!;

const closed = (concurrency: number) => ({ kind: "closed loop", concurrency }) as const;

test("recommends the endpoint with the lowest p50 of one image and one client for latency", () => {
  const found = choice(
    record([testLoadPoint({ endpoint: "onnx-http" }), testLoadPoint({ endpoint: "trt-grpc" })]),
    "latency",
  );
  expect(found.winner?.name).toBe("trt-grpc");
  expect(found.setting).toContain("1 image per request, 1 client");
  expect(found.why[0]).toMatch(
    /^`onnx-http` takes 1\.[34]\d × as long \(7\.\d+ ms, interval of the ratio 1\.40 to 1\.42\)\.$/,
  );
});

test("the reason names the part in which the runner-up loses most", () => {
  const found = choice(
    record([testLoadPoint({ endpoint: "embed-http" }), testLoadPoint({ endpoint: "onnx-http" })]),
    "latency",
  );
  expect(found.why[1]).toBe(
    "`onnx-http` spends 3.24 ms more on transfer and network: its requests have 602 kB instead of 10.6 kB.",
  );
});

test("recommends the load point with the most images per second for throughput, with its latency", () => {
  const found = choice(
    record([
      testLoadPoint({ endpoint: "onnx-grpc" }),
      testLoadPoint({ endpoint: "onnx-grpc", load: closed(32) }),
      testLoadPoint({ endpoint: "onnx-http", load: closed(32) }),
    ]),
    "throughput",
  );
  expect(found.winner?.point.load).toEqual(closed(32));
  expect(found.setting).toMatch(/^1 image per request, 32 clients; p50 [\d.]+ ms, p95 [\d.]+ ms$/);
});

test("cost is the price per hour divided by the images per hour", () => {
  const point = testLoadPoint(
    { endpoint: "embed-http", load: closed(32) },
    { imagesPerSecond: 24.3 },
  );
  const price = { usdPerHour: 2, date: "2026-11-21", source: "--price" };
  const base = testBenchRecord();
  const found = choice(record([point], { subject: { ...base.subject, price } }), "cost");
  // 2 / 3600 / 24.3 × 1000
  expect(found.value).toBe("$0.0229");
});

test("the cost of one other endpoint is a figure, of several a range", () => {
  const loadPoints = ["embed-http", "onnx-http", "trt-grpc"].map((endpoint) =>
    testLoadPoint({ endpoint }),
  );
  expect(choice(record(loadPoints.slice(0, 2)), "cost").why.join(" ")).toMatch(
    /`onnx-http` costs \$[\d.]+\.$/,
  );
  expect(choice(record(loadPoints), "cost").why.join(" ")).toMatch(
    /The others cost from \$[\d.]+ \(`[\w-]+`\) to \$[\d.]+ \(`[\w-]+`\)\.$/,
  );
});

test("half of the latency is not called most of it", () => {
  const point = testLoadPoint({ endpoint: "onnx-http" });
  const server = { source: "triton", requests: 1, requestMs: 5.03, inferMs: 5.03 } as const;
  const found = choice(
    record([{ ...point, latencyMs: { ...point.latencyMs!, mean: 10 }, server }]),
    "throughput",
  );
  expect(found.why.join(" ")).toContain("The largest part of the latency (50 %)");
});

test("without a measured GPU, the report has no cost and gives the reason", () => {
  const base = testBenchRecord();
  const subject = { ...base.subject, gpu: undefined };
  const found = choice({ ...base, subject }, "cost");
  expect(found.winner).toBeUndefined();
  expect(found.why[0]).toContain("No GPU was measured");
});

test("an invalid load point is never recommended", () => {
  const best = testLoadPoint(
    { endpoint: "trt-grpc", load: closed(64), slower: 0.1 },
    { invalid: ["The client was the limit."] },
  );
  const found = verdictOf(record([testLoadPoint({ endpoint: "onnx-http" }), best]));
  expect(found.choices.map(({ winner }) => winner?.name)).toEqual([
    "onnx-http",
    "onnx-http",
    "onnx-http",
  ]);
});

test("a drifting load point is marked, and loses to no other because of its drift", () => {
  const drifting = testLoadPoint(
    { endpoint: "trt-grpc", load: closed(32) },
    { stability: { verdict: "drifting", changeInRound: 0.01, changeOverRounds: -0.31, p: 0.001 } },
  );
  const steady = testLoadPoint({ endpoint: "onnx-http", load: closed(32) });
  expect(choice(record([drifting, steady]), "throughput")).toMatchObject({
    winner: { name: "trt-grpc" },
    ties: [],
    doubts: [
      "Its throughput drifted: +1.0 % within a round, −31 % from the first to the last round.",
    ],
  });
});

test("a difference within the noise is a tie", () => {
  const [a, b] = [
    testLoadPoint({ endpoint: "onnx-http" }),
    testLoadPoint({ endpoint: "onnx-http" }, { endpoint: "trt-http" }),
  ];
  const found = choice(record([a, b]), "latency");
  expect(found.ties).toHaveLength(1);
  expect(found.why).toEqual([
    expect.stringMatching(
      /^The difference from `trt-http` \(7\.\d+ ms\) is within the noise: .*; either is suitable\.$/,
    ),
    "Clients of `onnx-http` must decode and resize each image first; the figures exclude that work.",
  ]);
});

test("names the client work of an endpoint with tensor input", () => {
  const found = choice(
    record([testLoadPoint({ endpoint: "trt-grpc" }), testLoadPoint({ endpoint: "embed-http" })]),
    "latency",
  );
  expect(found.why.join(" ")).toMatch(
    /must decode and resize each image first.*`embed-http` accepts image files/,
  );
});

test("lists the highest throughput for each SLO that allows more", () => {
  const { sloChoices } = verdictOf(testBenchRecord());
  const rates = sloChoices.map(({ point }) => point.imagesPerSecond);
  expect(sloChoices.length).toBeGreaterThan(1);
  expect(rates).toEqual([...rates].sort((a, b) => a - b));
  for (const { sloMs, point } of sloChoices)
    expect(point.latencyMs!.p95).toBeLessThanOrEqual(sloMs);
});

test("load points of a study with changed conditions are not recommended", () => {
  const four = testLoadPoint({
    endpoint: "onnx-grpc",
    study: "scaling",
    conditions: { gpus: 4 },
    slower: 0.2,
  });
  expect(
    choice(record([testLoadPoint({ endpoint: "onnx-http" }), four]), "latency").winner?.name,
  ).toBe("onnx-http");
});

test("without a reliable load point, nothing is recommended", () => {
  const found = verdictOf(record([testLoadPoint({}, { invalid: ["The client was the limit."] })]));
  expect(found.headline).toBe("No reliable load point was measured");
  expect(found.choices.every(({ winner }) => winner === undefined)).toBe(true);
});

test("with one round, nothing is compared", () => {
  const once = (endpoint: string, slower: number) => {
    const point = testLoadPoint({ endpoint, slower });
    return { ...point, rounds: point.rounds.slice(0, 1), stability: { verdict: "short" } } as const;
  };
  const loadPoints = [once("onnx-http", 1), once("trt-http", 9)];
  const found = verdictOf(record(loadPoints));
  expect(found.headline).toMatch(
    /^One round, nothing is compared\. Lowest latency: tie of `onnx-http` and `trt-http`, /,
  );
  expect(found.choices[0]?.why[0]).toMatch(
    /^The difference from `trt-http` \(.* ms\) is not judged: that requires two rounds of both\.$/,
  );
});

test("more endpoints require a clearer difference, because the best of many is ahead by chance", () => {
  const faster = testLoadPoint({ endpoint: "onnx-http" });
  const slower = {
    ...testLoadPoint({ endpoint: "onnx-grpc" }),
    rounds: faster.rounds.map((round, i) => ({
      ...round,
      imagesPerSecond: round.imagesPerSecond * [0.95, 0.97, 0.96, 0.94, 0.98][i]!,
    })),
    imagesPerSecond: faster.imagesPerSecond * 0.96,
  };
  const ties = (others: readonly LoadPoint[]) =>
    choice(record([faster, slower, ...others]), "throughput").ties;
  expect(ties([])).toEqual([]);
  const many = ["embed-http", "trt-http", "trt-grpc", "onnx-http_uint8"];
  expect(ties(many.map((endpoint) => testLoadPoint({ endpoint, slower: 50 })))).toEqual([
    "onnx-grpc",
  ]);
});

test("the headline of a failed run is the failure", () => {
  const failed = testBenchRecord({ passed: false, failures: ["trt-http: other embeddings"] });
  expect(verdictOf(failed).headline).toBe(
    "The run failed: 1 failure; the recommendations cover the remaining load points",
  );
});

test("the headline of a deployed run is the recommendation", () => {
  expect(verdictOf(testBenchRecord()).headline).toMatch(
    /^Lowest latency: `[\w-]+`, [\d.]+ ms p50; highest throughput: `[\w-]+`, [\d.]+ images\/s$/,
  );
});

test("the headline names tied endpoints together", () => {
  const [a, b] = [
    testLoadPoint({ endpoint: "trt-http" }),
    testLoadPoint({ endpoint: "trt-http" }, { endpoint: "onnx-http" }),
  ];
  expect(verdictOf(record([a, b])).headline).toMatch(
    /^Lowest latency: tie of `onnx-http` and `trt-http`, [\d.]+ ms p50; highest throughput: tie of `onnx-http` and `trt-http`, /,
  );
});

test("the headline starts with missing stability", () => {
  const drifting = { stability: { verdict: "drifting" } } as const;
  const all = ["trt-grpc", "onnx-http"].map((endpoint) => testLoadPoint({ endpoint }, drifting));
  expect(verdictOf(record(all)).headline).toMatch(
    /^No stable load point\. Lowest latency: `trt-grpc`/,
  );
});

const poisson = (ratePerSecond: number) =>
  ({ kind: "open loop", arrivals: "poisson", ratePerSecond, seed: 1 }) as const;

test("without closed loops, latency is compared at the same rate, and an offered rate is not a throughput", () => {
  const held = record([
    testLoadPoint({ endpoint: "trt-grpc", load: poisson(20) }),
    testLoadPoint({ endpoint: "onnx-http", load: poisson(20) }),
  ]);
  expect(choice(held, "latency")).toMatchObject({
    winner: { name: "trt-grpc" },
    setting: expect.stringContaining("Poisson 20 /s"),
  });
  expect(choice(held, "throughput").title).toBe("Highest rate sustained");
  expect(choice(held, "throughput").why[0]).toBe(
    "It sustained the offered 20.0 images/s; its maximum may be higher.",
  );
  expect(verdictOf(held).headline).toMatch(
    /^Lowest latency: `trt-grpc`, .*; highest rate sustained: /,
  );
});

test("a rate that was not sustained is the highest throughput", () => {
  const late = record([testLoadPoint({ load: poisson(5_000) })]);
  expect(choice(late, "throughput").title).toBe("Highest throughput");
  expect(choice(late, "throughput").why[0]).toMatch(
    /^It did not sustain the offered rate: 5[^ ]*000 images\/s were offered, and [\d.]+ % of the requests succeeded\.$/,
  );
});

test("the headline is correct without a latency recommendation", () => {
  const failedAlone = testLoadPoint({}, { invalid: ["The client was the limit."] });
  const held = record([failedAlone, testLoadPoint({ load: poisson(20) })]);
  expect(verdictOf(held).headline).not.toContain("$");
});

test("an endpoint with many failed requests ranks last, with the reason", () => {
  const failing = testLoadPoint(
    { endpoint: "trt-grpc", slower: 0.1 },
    { errors: { UNAVAILABLE: 900_000 } },
  );
  const found = record([failing, testLoadPoint({ endpoint: "onnx-http" })]);
  expect(choice(found, "latency").winner?.name).toBe("onnx-http");
  expect(choice(found, "throughput").winner?.name).toBe("onnx-http");
  expect(choice(found, "throughput").why[0]).toMatch(
    /^`trt-grpc` measured better \(.*\), but \d\d % of its requests failed\.$/,
  );
  const alone = verdictOf(record([failing]));
  expect(alone.choices[1]?.doubts).toEqual([
    expect.stringMatching(/^9\d % of its requests failed\.$/),
  ]);
  expect(alone.headline).toMatch(/^Many requests failed\. Lowest latency: `trt-grpc`/);
  expect(alone.sloChoices).toEqual([]);
});

test("caveats are ordered by severity", () => {
  expect(caveatsOf(testSimulationRecord()).map(({ kind, title }) => `${kind}: ${title}`)).toEqual([
    "subject: CPU instead of GPU",
    "subject: Local simulation",
    "figures: 1 load point invalid",
    "figures: 1 load point drifting",
    "figures: Failed requests",
    "figures: Few samples",
    "know: Random weights",
    "know: Decoding",
    "know: Closed loop",
  ]);
});

test("the warning names the severe caveats", () => {
  expect(warningText(caveatsOf(testBenchRecord()))).toBe(
    "1 load point invalid, 1 load point drifting, failed requests and few samples",
  );
});

test("latency is compared at the smallest common load, also if an endpoint is invalid there", () => {
  const grid = ["embed-http", "onnx-http"].flatMap((endpoint) => [
    testLoadPoint(
      { endpoint },
      endpoint === "embed-http" ? { invalid: ["The client was the limit."] } : {},
    ),
    testLoadPoint({ endpoint, load: closed(4) }),
  ]);
  const found = choice(record(grid), "latency");
  expect(found.winner?.name).toBe("onnx-http");
  expect(found.setting).toContain("1 client;");
});

test("reasons that differ only in numbers are listed once", () => {
  const late = (ms: number) => ({ invalid: [`The generator was ${ms} ms late.`] });
  const [first] = caveatsOf(
    record([testLoadPoint({}, late(11.5)), testLoadPoint({ batch: 8 }, late(30))]),
  );
  expect(first?.text).toContain("The generator was 11.5 ms late. Invalid load points are listed");
});

test("a caveat names its load points and their reason", () => {
  const [first] = caveatsOf(testBenchRecord());
  expect(first?.text).toBe(
    "trt-grpc b1 c128 (b: images per request, c: clients). The busiest worker of the load generator used 0.97 of a core: the client may be the limit. Invalid load points are listed but never recommended.",
  );
});

test("an edited artefact and the notes of an environment are caveats", () => {
  const base = testBenchRecord();
  const environments = [
    testEnvironment({
      artefact: { file: "a.json", sha256: "ab", editedByHand: true },
      notes: ["embed: no volume is mounted"],
    }),
  ];
  const texts = caveatsOf({ ...base, subject: { ...base.subject, environments } }).map(
    ({ text }) => text,
  );
  expect(texts).toContain("a.json was edited after it was synthesized, and was used as edited.");
  expect(texts).toContain("embed: no volume is mounted.");
});

test("a stand-in is a caveat, not the model with random weights", () => {
  const base = testBenchRecord();
  const model = { name: "generated", spec: "my-vit", weights: "random", architecture: "stand-in" };
  const record = { ...base, subject: { ...base.subject, model } };
  expect(caveatsOf(record)[0]).toMatchObject({ kind: "subject", title: "Stand-in" });
  expect(caveatsOf(record).map(({ title }) => title)).not.toContain("Random weights");
  expect(verdictOf(record).headline).toContain("measured with a stand-in for the model");
});
