import { expect, test } from "vitest";
import { parsePerfAnalyzer } from "./import-perf-analyzer.ts";
import { importedSection } from "./imported-section.ts";
import { testBenchRecord } from "./test-bench-record.ts";

/** As perf_analyzer 2.50 writes it with `-f`. */
const csv = `Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
1,136.5,120,2800,40,180,3100,80,15,7250,7600,7900,8300
4,380.25,130,2900,3000,180,3100,80,15,10300,12000,12400,13500
`;

test("reads each row, microseconds as milliseconds", () => {
  const { rows, file, program } = parsePerfAnalyzer(csv, "somewhere/triton.csv", "onnx-http b1");
  expect({ file, program }).toEqual({ file: "triton.csv", program: "perf_analyzer" });
  expect(rows).toHaveLength(2);
  expect(rows[0]).toEqual({
    label: "onnx-http b1",
    concurrency: 1,
    inferencesPerSecond: 136.5,
    p50Ms: 7.25,
    p90Ms: 7.6,
    p95Ms: 7.9,
    p99Ms: 8.3,
    queueMs: 0.04,
    inputMs: 0.18,
    inferMs: 3.1,
    outputMs: 0.08,
  });
});

test("without a label, the file name is the label", () => {
  expect(parsePerfAnalyzer(csv, "x/onnx-grpc.csv").rows[0]?.label).toBe("onnx-grpc");
});

test("reads a run at fixed rates; missing columns have no value", () => {
  const { rows } = parsePerfAnalyzer(
    "Request Rate,Inferences/Second,p99 latency\n50,49.8,9000\n",
    "r.csv",
  );
  expect(rows[0]).toMatchObject({ ratePerSecond: 50, inferencesPerSecond: 49.8, p99Ms: 9 });
  expect(rows[0]?.p50Ms).toBeUndefined();
});

const noColumns =
  "must be CSV of perf_analyzer with the columns Concurrency or Request Rate and Inferences/Second";
const columns = "Concurrency,Inferences/Second";

test.each([
  ["a,b\n1,2\n", noColumns],
  ["", noColumns],
  [`${columns}\n1,fast\n`, 'row 1: Inferences/Second must be a number, at least 0, got "fast"'],
  [`${columns}\n1.5,100\n`, 'row 1: Concurrency must be a whole number, at least 1, got "1.5"'],
  [`${columns}\n1,-100\n`, 'row 1: Inferences/Second must be a number, at least 0, got "-100"'],
  [
    `${columns},p99 latency\n1,100,-5\n`,
    'row 1: p99 latency must be a number, at least 0, got "-5"',
  ],
])("fails on %j with the file and the rule", (text, message) => {
  expect(() => parsePerfAnalyzer(text, "x.csv")).toThrow(`x.csv: ${message}`);
});

test("a labelled load is compared with its load point", () => {
  const record = testBenchRecord();
  const section = importedSection({
    ...record,
    imported: [parsePerfAnalyzer(csv, "triton.csv", "onnx-http b1")],
  })!;
  expect(section.answer[0]).toMatch(
    /^In 2 common load points, throughput differs by at most \d\.\d %\.$/,
  );
  expect(section.tables[0]?.rows[0]?.slice(0, 5).map(({ text }) => text)).toEqual([
    "onnx-http b1",
    "1",
    "137",
    "135",
    "0.99 ×",
  ]);
});

test("a large difference is printed as a factor", () => {
  const slow = csv.replace("136.5", "50.5");
  const section = importedSection({
    ...testBenchRecord(),
    imported: [parsePerfAnalyzer(slow, "triton.csv", "onnx-http b1")],
  })!;
  expect(section.answer[0]).toMatch(
    /^In 2 common load points, throughput differs by a factor of up to 2\.\d\d\.$/,
  );
});

test("without a matching label, the section explains how to label the file", () => {
  const section = importedSection({
    ...testBenchRecord(),
    imported: [parsePerfAnalyzer(csv, "triton.csv")],
  })!;
  expect(section.answer[0]).toContain("label the file with a load, as in `onnx-http b8`");
});
