import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { BenchRecord, LoadPoint } from "../../bench/record/bench-record.ts";
import { benchRecordText } from "../../bench/record/record-text.ts";
import { testRecord } from "../../bench/record/test-record.ts";
import { testBenchRecord, testLoadPoint } from "../../bench/report/test-bench-record.ts";
import { recordText } from "../../report/save-reports.ts";
import { testDrillRecord } from "../../verify/drills/test-drill-record.ts";
import { clipstack } from "../test-programs.ts";
import { compareFiles, comparisonJson } from "./compare.ts";
import { outputOf, parseImport, registerReport, renderRecord } from "./report.ts";

let folder: string;
const file = (name: string) => join(folder, name);

const slower = (
  factor: number,
  machineCores = 8,
  changes: Partial<LoadPoint> = {},
  of: Partial<BenchRecord> = {},
) => {
  const record = testBenchRecord({
    loadPoints: ["embed-http", "onnx-http"].map((endpoint) =>
      testLoadPoint({ endpoint, slower: factor }, changes),
    ),
    studies: [],
    ...of,
  });
  const machine = { ...record.subject.machine, cores: machineCores };
  return benchRecordText({ ...record, subject: { ...record.subject, machine } });
};

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "clipstack-report-"));
  writeFileSync(file("bench.json"), benchRecordText(testBenchRecord()));
  writeFileSync(file("verify.json"), recordText(testRecord()));
  writeFileSync(file("k8s.json"), recordText(testDrillRecord));
  writeFileSync(file("slow.json"), slower(1.4));
  writeFileSync(file("fast.json"), slower(1));
  writeFileSync(file("other.json"), slower(1, 2));
  writeFileSync(file("drifting.json"), slower(5, 8, { stability: { verdict: "drifting" } }));
  writeFileSync(file("unsure.json"), slower(5, 8, { rounds: testLoadPoint().rounds.slice(0, 1) }));
  const failed = { passed: false, failures: ["onnx-http: other embeddings"] };
  writeFileSync(file("failed.json"), slower(1, 8, {}, failed));
  writeFileSync(file("failed-first.json"), slower(1, 8, {}, { ...failed, loadPoints: [] }));
  writeFileSync(
    file("lost.json"),
    slower(1, 8, {}, { loadPoints: [testLoadPoint({ endpoint: "onnx-http" })] }),
  );
  writeFileSync(file("no.json"), "{}");
  writeFileSync(
    file("pa.csv"),
    "Concurrency,Inferences/Second,p50 latency,p95 latency\n1,136,7200,7900\n",
  );
});

afterAll(() => rmSync(folder, { recursive: true }));

test("renders records of bench, verify and drills", () => {
  expect(renderRecord(file("bench.json"), "md")).toContain("## Sweep: Lowest latency");
  expect(renderRecord(file("bench.json"), "html")).toContain('<h2 id="choose">');
  expect(renderRecord(file("verify.json"), "md")).toContain("## Verification: 40 checks passed");
  expect(renderRecord(file("verify.json"), "text")).toContain("single-gpu");
  expect(renderRecord(file("k8s.json"), "html")).toContain("1 of 2 checks failed");
  expect(JSON.parse(renderRecord(file("k8s.json"), "json"))).toEqual(testDrillRecord);
});

test("--format json prints the record with the imported figures", () => {
  expect(JSON.parse(renderRecord(file("bench.json"), "json"))).toEqual(
    JSON.parse(readFileSync(file("bench.json"), "utf8")),
  );
  const both = JSON.parse(
    renderRecord(file("bench.json"), "json", [{ label: "onnx-http b1", file: file("pa.csv") }]),
  );
  expect(both.imported[0].rows[0]).toMatchObject({
    label: "onnx-http b1",
    inferencesPerSecond: 136,
  });
});

test("imported figures of perf_analyzer are compared in the report", () => {
  const text = renderRecord(file("bench.json"), "md", [
    { label: "onnx-http b1", file: file("pa.csv") },
  ]);
  expect(text).toContain("### Comparison with perf_analyzer");
});

test("JSON results are read as those of AIPerf or vllm bench", () => {
  const result = { request_throughput: 136, request_rate: "inf", max_concurrency: 1 };
  writeFileSync(file("vllm.json"), JSON.stringify(result));
  const imports = [{ label: "onnx-http b1", file: file("vllm.json") }];
  expect(renderRecord(file("bench.json"), "md", imports)).toContain(
    "### Comparison with vllm bench",
  );
});

test.each([
  ["onnx-http b8=a.csv", { label: "onnx-http b8", file: "a.csv" }],
  ["a.csv", { file: "a.csv" }],
])("reads --import %s", (given, expected) => {
  expect(parseImport(given)).toEqual(expected);
});

test("an import that violates the record schema is rejected", () => {
  writeFileSync(file("half.csv"), "Concurrency,Inferences/Second\n1.5,100\n");
  expect(() => renderRecord(file("bench.json"), "json", [{ file: file("half.csv") }])).toThrow(
    /half\.csv: row 1: Concurrency must be a whole number, at least 1, got "1\.5"$/,
  );
});

test("the help of report shows no internal default, and --import is repeatable", () => {
  const command = new Command();
  registerReport(command);
  const [report] = command.commands;
  expect(report?.helpInformation()).not.toContain("[]");
  report?.parseOptions(["--import", "a.csv", "--import", "onnx-http b8=b.csv"]);
  expect(report?.opts().import).toEqual([
    { file: "a.csv" },
    { label: "onnx-http b8", file: "b.csv" },
  ]);
});

test("HTML is written next to its record, other formats to standard output", () => {
  expect(outputOf("x/a.json", { format: "html" })).toBe("x/a.html");
  expect(outputOf("x/a.json", { format: "md" })).toBeUndefined();
  expect(outputOf("x/a.json", { format: "md", output: "b.md" })).toBe("b.md");
  expect(outputOf("x/a.json", { format: "html", output: "-" })).toBeUndefined();
});

test("an invalid record is rejected with one line naming the file and the rule", () => {
  expect(() => renderRecord(file("no.json"), "md")).toThrow("no.json: kind is required");
  expect(() => renderRecord(file("missing.json"), "md")).toThrow(
    "missing.json: cannot be read: ENOENT",
  );
  expect(() => renderRecord(file("verify.json"), "md", [{ file: "a.csv" }])).toThrow(
    "--import needs a record of bench or sweep, got a verify record",
  );
});

test("reads records with a byte order mark", () => {
  for (const name of ["bench.json", "verify.json"]) {
    writeFileSync(file("mark.json"), `\uFEFF${readFileSync(file(name), "utf8")}`);
    expect(renderRecord(file("mark.json"), "md")).toBe(renderRecord(file(name), "md"));
  }
  writeFileSync(file("mark.json"), `\uFEFF${readFileSync(file("fast.json"), "utf8")}`);
  expect(compareFiles(file("mark.json"), file("fast.json"), { failOver: 0.1 }).exitCode).toBe(0);
});

test("an unknown key is named without a prefix", () => {
  writeFileSync(file("extra.json"), JSON.stringify({ ...testBenchRecord(), extra: 1 }));
  expect(() => renderRecord(file("extra.json"), "md")).toThrow(
    /extra\.json: unknown key 'extra' \(known: /,
  );
});

test("a comparison fails only on a regression", () => {
  const args = { failOver: 0.1 };
  expect(compareFiles(file("fast.json"), file("slow.json"), args).exitCode).toBe(1);
  expect(compareFiles(file("slow.json"), file("fast.json"), args).exitCode).toBe(0);
  expect(compareFiles(file("fast.json"), file("slow.json"), { failOver: 0.8 }).exitCode).toBe(0);
});

test.each([
  ["failed.json", 1],
  ["failed-first.json", 1],
  ["lost.json", 1],
  ["drifting.json", 2],
  ["unsure.json", 2],
])("a comparison with %s ends with %i, and did not pass", (second, code) => {
  const result = compareFiles(file("fast.json"), file(second), { failOver: 0.1 });
  expect(result.exitCode).toBe(code);
  expect(JSON.parse(comparisonJson(result)).passed).toBe(false);
});

test("--allow-missing accepts a missing endpoint", () => {
  const args = { failOver: 0.1, allowMissing: true } as const;
  expect(compareFiles(file("fast.json"), file("lost.json"), args).exitCode).toBe(0);
});

test("rejects records of different machines; --force compares them with a warning", () => {
  const args = { failOver: 0.1 };
  expect(() => compareFiles(file("fast.json"), file("other.json"), args)).toThrow(
    /cannot be compared: the machine differs: Test CPU, 8 cores, then Test CPU, 2 cores \(--force compares them anyway\)$/,
  );
  const { comparison } = compareFiles(file("fast.json"), file("other.json"), {
    ...args,
    force: true,
  });
  expect(comparison.warnings[0]).toContain("Not comparable: the machine differs");
});

test("a comparison as JSON contains the ratios and the verdict", () => {
  const result = compareFiles(file("fast.json"), file("slow.json"), { failOver: 0.1 });
  const json = JSON.parse(comparisonJson(result));
  expect(json.passed).toBe(false);
  expect(json.loads[0].changes[0]).toMatchObject({ metric: "throughput", judgement: "worse" });
});

test("the commands exit with their codes and print one line", async () => {
  const compare = ["compare", file("fast.json"), file("slow.json")];
  const compared = await clipstack(compare);
  expect(compared.code).toBe(1);
  expect(compared.stdout).toMatch(/regressions of more than 10 %\.$/);
  const allowed = await clipstack([...compare, "--fail-over", "80%"]);
  expect(allowed.code).toBe(0);
  const wrong = await clipstack(["report", file("no.json")]);
  expect(wrong).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/^clipstack: [^\n]*kind is required[^\n]*$/),
  });
  const bad = await clipstack([...compare, "--fail-over", "much"]);
  expect(bad.code).toBe(2);
  expect(bad.stderr).toContain("It must be a percentage from 0 to 1000, like 10%.");
});
