import { expect, test } from "vitest";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { renderText } from "../../report/render/render-text.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { compareRecords, differences, mismatches } from "./compare.ts";
import { compareReport, verdictText } from "./compare-report.ts";
import { testBenchRecord, testLoadPoint } from "./test-bench-record.ts";

const record = (
  loadPoints: readonly LoadPoint[],
  changes: Partial<BenchRecord> = {},
): BenchRecord => testBenchRecord({ loadPoints: [...loadPoints], studies: [], ...changes });

const limit = { failOver: 0.1 };
const endpoints = ["embed-http", "onnx-grpc"];
const cells = (slower: number, changes: Partial<LoadPoint> = {}) =>
  endpoints.flatMap((endpoint) =>
    [1, 8].map((batch) => testLoadPoint({ endpoint, batch, slower }, changes)),
  );

test("a record compared with itself has no regression", () => {
  const all = testBenchRecord();
  const found = compareRecords(all, all, limit);
  expect(found.regressions).toEqual([]);
  expect(found.onlyFrom).toEqual([]);
  expect(
    found.endpoints.every(({ changes }) => changes.every(({ judgement }) => judgement === "same")),
  ).toBe(true);
});

test("30 % slower is a regression of each endpoint and load point, with ratio and interval", () => {
  const { regressions } = compareRecords(record(cells(1)), record(cells(1.3)), limit);
  expect(regressions[0]).toMatch(
    /^embed-http: throughput over its 2 load points 0\.7\d × \(0\.7\d to 0\.\d\d\)$/,
  );
  expect(regressions.join("\n")).toMatch(
    /onnx-grpc, 8 images per request, 1 client: p50 1\.3\d × \(1\.2\d to 1\.3\d\)/,
  );
});

test("5 % slower is a regression with a limit of 2 %, not of 10 %", () => {
  const [before, after] = [record(cells(1)), record(cells(1.05))];
  expect(compareRecords(before, after, limit).regressions).toEqual([]);
  expect(compareRecords(before, after, { failOver: 0.005 }).regressions).not.toEqual([]);
});

test("one load point of several needs attention beyond the limit and is a regression beyond twice the limit", () => {
  const one = (slower: number) =>
    [1, 4, 8, 16, 32].map((batch) => testLoadPoint({ batch, slower: batch === 8 ? slower : 1 }));
  const little = compareRecords(record(one(1)), record(one(1.16)), limit);
  expect(little.regressions).toEqual([]);
  expect(little.suspects[0]).toMatch(
    /^onnx-http, 8 images per request, 1 client: throughput 0\.8\d × /,
  );
  const far = compareRecords(record(one(1)), record(one(1.5)), limit);
  expect(far.regressions[0]).toMatch(
    /^onnx-http, 8 images per request, 1 client: throughput 0\.6\d × /,
  );
});

test("drift of a few percent does not fail; 20 % slower does", () => {
  let seed = 7;
  const uniform = () => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return (seed + 0.5) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  const run = (slower: number) =>
    record(
      ["embed-http", "onnx-grpc"].flatMap((endpoint) =>
        [1, 4, 8, 16, 32].map((batch) =>
          testLoadPoint({ endpoint, batch, slower: slower * Math.exp(0.04 * normal()) }),
        ),
      ),
    );
  const fails = (slower: number) =>
    Array.from({ length: 10 }, () => compareRecords(run(1), run(slower), limit)).filter(
      ({ regressions }) => regressions.length > 0,
    ).length;
  expect(fails(1)).toBe(0);
  expect(fails(1.2)).toBe(10);
});

test("the only load of an endpoint is a load in words", () => {
  const [before, after] = [1, 1.4].map((slower) => record([testLoadPoint({ slower })]));
  expect(compareRecords(before!, after!, limit).regressions[0]).toMatch(
    /over its 1 load point 0\.7/,
  );
});

test("30 % slower is no regression if the rounds differ as much", () => {
  const factors = [0.7, 1.1, 0.8, 1.3, 1.2];
  const noisy = (slower: number) =>
    cells(slower).map((point) => ({
      ...point,
      rounds: point.rounds.map((round, i) => ({
        ...round,
        imagesPerSecond: point.imagesPerSecond * factors[i]!,
        latencyMs: { ...round.latencyMs!, p50: round.latencyMs!.p50 / factors[i]! },
      })),
    }));
  const found = compareRecords(record(noisy(1)), record(noisy(1.3)), limit);
  expect(found.regressions.filter((line) => !line.includes("p9"))).toEqual([]);
});

test("one round of a record is not compared, however many windows it has", () => {
  const once = cells(2).map((point) => ({ ...point, rounds: point.rounds.slice(0, 1) }));
  const found = compareRecords(record(cells(1)), record(once), limit);
  expect(found.judged).toBe(0);
  expect(verdictText(found)).toBe("no load point has enough rounds to compare");
});

test("30 % faster is better and not a regression", () => {
  const found = compareRecords(record(cells(1.3)), record(cells(1)), limit);
  expect(found.regressions).toEqual([]);
  expect(verdictText(found)).toBe(
    "no regression of more than 10 % in 4 load points; higher throughput: embed-http and onnx-grpc",
  );
});

test("an invalid or drifting load point is listed but not compared", () => {
  const bad = cells(2, { invalid: ["The client was the limit."] });
  const found = compareRecords(record(cells(1)), record(bad), limit);
  expect(found.regressions).toEqual([]);
  expect(found.loadPoints[0]?.exclusionReasons).toEqual([
    "second record: The client was the limit.",
  ]);
  expect(verdictText(found)).toBe("no reliable load point to compare");
});

test("new failed requests are a regression", () => {
  const failing = cells(1, { errors: { "503": 400 } });
  const { regressions } = compareRecords(record(cells(1)), record(failing), limit);
  expect(regressions[0]).toMatch(
    /^embed-http, 1 image per request, 1 client: 1\d\.\d % of the requests failed, previously 0\.0 %$/,
  );
});

test("load points of only one record are listed", () => {
  const found = compareRecords(record(cells(1)), record(cells(1).slice(0, 3)), limit);
  expect(found.onlyFrom).toEqual(["onnx-grpc, 8 images per request, 1 client"]);
  expect(found.onlyTo).toEqual([]);
});

test("a missing endpoint or load point fails unless allowed", () => {
  const [before, all] = [record(cells(1)), cells(1)];
  const missing = (left: readonly LoadPoint[], allowMissing = false) =>
    compareRecords(before, record(left), { ...limit, allowMissing }).broken;
  expect(missing(all)).toEqual([]);
  expect(missing(all.slice(0, 3))).toEqual([
    "onnx-grpc, 8 images per request, 1 client: not in the second record",
  ]);
  expect(missing(all.slice(0, 2))).toEqual([
    "onnx-grpc: not in the second record, the first has 2 load points",
  ]);
  expect(missing(all.slice(0, 2), true)).toEqual([]);
});

test("a failed second run is listed with its failures if the first passed", () => {
  const failed = { passed: false, failures: ["trt-http: other embeddings"] };
  const found = compareRecords(record(cells(1)), record(cells(1), failed), limit);
  expect(found.broken).toEqual([
    "The second run failed and the first passed: trt-http: other embeddings",
  ]);
  expect(verdictText(found)).toBe("1 failed run or missing load point");
  expect(compareRecords(record(cells(1), failed), record(cells(1), failed), limit).broken).toEqual(
    [],
  );
});

test("a load point of both a study and the grid is compared once", () => {
  const twice = [testLoadPoint(), testLoadPoint({ study: "batch" })];
  expect(compareRecords(record(twice), record(twice), limit).loadPoints).toHaveLength(1);
});

test("records of different machines, models, targets, GPUs or images are not comparable", () => {
  const base = testBenchRecord();
  const { subject, settings } = base;
  const other: BenchRecord = {
    ...base,
    subject: {
      ...subject,
      target: "addresses",
      machine: { ...subject.machine, cores: 4 },
      model: { name: "tiny" },
      gpu: undefined,
    },
    settings: { ...settings, images: { ...settings.images, count: 3 } },
  };
  expect(mismatches(base, base)).toEqual([]);
  expect(mismatches(base, other)).toEqual([
    "the machine differs: Test CPU, 8 cores, then Test CPU, 4 cores",
    "the target differs: deployed, then addresses",
    "the model differs: generated abababababab, then tiny",
    "the GPU differs: 1 × NVIDIA A10, then none",
    "the set of images differs: 32 (mean 10240 bytes), then 3 (mean 10240 bytes)",
  ]);
});

test("another version of Node is a difference, not a mismatch", () => {
  const base = testBenchRecord();
  const machine = { ...base.subject.machine, node: "v22.0.0" };
  const other = { ...base, subject: { ...base.subject, machine } };
  expect(mismatches(base, other)).toEqual([]);
  expect(differences(base, other)).toEqual(["The Node differs: v20.20.0, then v22.0.0."]);
});

test("the text has ratios with intervals and ends with the verdict", () => {
  const [before, after] = [record(cells(1)), record(cells(1.3))];
  const text = renderText(compareReport(before, after, compareRecords(before, after, limit)));
  expect(text).toMatch(/embed-http +2 +0\.7\d × \(/);
  expect(text.trimEnd().split("\n").at(-1)).toMatch(/^\d+ regressions of more than 10 %\.$/);
});

test("the Markdown lists regressions before the tables", () => {
  const [before, after] = [record(cells(1)), record(cells(1.3))];
  const text = renderMarkdown(compareReport(before, after, compareRecords(before, after, limit)));
  expect(text.indexOf("- **Worse**")).toBeGreaterThan(0);
  expect(text.indexOf("- **Worse**")).toBeLessThan(text.indexOf("| endpoint |"));
});
