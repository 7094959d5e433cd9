import { expect, test } from "vitest";
import { reportHtml } from "./report-html.ts";
import { reportMarkdown } from "./report-md.ts";
import { reportText } from "./report-text.ts";
import { summarize } from "./summary.ts";
import { failedCheck, testRecord } from "./test-record.ts";

const failed = () => {
  const record = testRecord();
  return { ...record, checks: [...record.checks, failedCheck()], passed: false };
};

const triton = (name: string, engine: "tritonserver" | "bundled") =>
  ({ name, kind: "triton", backend: "onnx", engine, resource: name, processes: 1 }) as const;

/** Tags, attributes that matter and headings: the tree, not the text. */
function outline(html: string): string {
  return [...html.matchAll(/<h([12])[^>]*>(.*?)<\/h\1>|<(svg|table|figure|details)[\s>]/g)]
    .map((match) =>
      match[1] === undefined ? `  ${match[3]}` : (match[2] ?? "").replace(/<[^>]+>/g, ""),
    )
    .join("\n");
}

test("the HTML report has a section for every question", () => {
  expect(outline(reportHtml(testRecord()))).toMatchInlineSnapshot(`
    "✓All 40 checks passed
    Checks
      table
      details
    How to read this
    Latency and throughput
      figure
      svg
      svg
      svg
      svg
      svg
      figure
      svg
      table
    Parity
      figure
      svg
      table
    Every check
      details
      table
      details
      table
    What was measured, and on what"
  `);
});

test("a failure comes first in the HTML report, with the container's name", () => {
  const html = reportHtml(failed());
  expect(html.indexOf("What failed")).toBeLessThan(html.indexOf(">Checks<"));
  expect(html).toContain("docker_container.triton (container &#39;single-gpu-triton-onnx&#39;)");
  expect(html).toContain("1 of 41 checks failed");
});

test("the HTML report asks the network for nothing and runs no script", () => {
  const html = reportHtml(failed());
  expect(html).not.toMatch(/<script|<link|<img|@import|url\(|\ssrc=|https?:\/\/(?!127\.0\.0\.1)/i);
  expect(html).toContain("default-src 'none'");
});

test("text of a record is not markup in the HTML report", () => {
  const record = { ...testRecord(), checks: [failedCheck({ message: '<b>&"quoted"</b>' })] };
  const html = reportHtml(record);
  expect(html).toContain("&lt;b&gt;&amp;&quot;quoted&quot;&lt;/b&gt;");
  expect(html).not.toContain("<b>");
});

test("numbers that cannot be drawn do not end up in the plots", () => {
  const record = testRecord();
  const [first, ...rest] = record.checks.filter(({ id }) => id === "parity");
  const odd = {
    ...first!,
    images: [{ image: "a.jpg", cosine: 1, relativeDifference: 0 }],
    measured: { cosine: 1, relativeDifference: 0, images: 1 },
  };
  const html = reportHtml({ ...record, checks: [odd, ...rest], measurements: [] });
  expect(html).not.toMatch(/NaN|Infinity/);
});

test("a run without measurements and parity still has a report", () => {
  const record = { ...testRecord(), checks: [failedCheck()], measurements: [], passed: false };
  expect(reportHtml(record)).toContain("1 of 1 checks failed");
  expect(reportMarkdown(record)).toContain("1 of 1 checks failed");
});

test("the Markdown report has the failure, the matrix and the paths", () => {
  const text = reportMarkdown(failed());
  expect(text).toContain(
    "- **wiring** single-gpu / triton-onnx: publishes 8010 for its port 8009, but listens on 8000, 8001, 8002 (`docker_container.triton (container 'single-gpu-triton-onnx')`)",
  );
  expect(text).toContain("| single-gpu | **FAIL** | pass | pass |");
  expect(text).toContain(
    "| single-gpu | embed-http | 60.0 ms | 78.0 ms | 96.0 ms \\* | 40.0 | 100 | 1.000000 | 2e-5 % |",
  );
});

test("text of a record is not markup in the Markdown report", () => {
  const record = { ...testRecord(), checks: [failedCheck({ message: "a|b <c> *d*" })] };
  expect(reportMarkdown(record)).toContain("a\\|b \\<c\\> \\*d\\*");
});

test("a report says what the numbers do not", () => {
  const words = summarize(testRecord()).caveats.map((it) => it.slice(0, it.indexOf(":")));
  expect(words).toEqual([
    "Embedded runtime",
    "CPU in place of a GPU",
    "Random weights",
    "Short load",
  ]);
});

test("every report says what the Tritons are deployed with", () => {
  const record = testRecord();
  const [first, ...rest] = record.environments;
  const services = [
    ...first!.services,
    triton("triton-onnx", "bundled"),
    triton("triton-trt", "tritonserver"),
  ];
  const told = { ...record, environments: [{ ...first!, services }, ...rest] };
  const line =
    "Engine of the Tritons as deployed: triton-trt of single-gpu: NVIDIA's tritonserver; triton-onnx of single-gpu: clipstack's bundled server, in place of NVIDIA's.";
  expect(summarize(told).caveats).toContain(line);
  expect(reportText(told)).toContain(line);
  expect(reportMarkdown(told)).toContain(line);
  expect(reportHtml(told)).toContain("engine bundled");
});

test("a report says that a file was edited by hand", () => {
  const record = testRecord();
  const [first, ...rest] = record.environments;
  const edited = { ...first!, artefact: { ...first!.artefact, editedByHand: true } };
  const { caveats } = summarize({ ...record, environments: [edited, ...rest] });
  expect(caveats.at(-1)).toBe(
    "single-gpu: single-gpu/cdk.tf.json was edited after it was synthesized, and was verified as it lies.",
  );
});

test("an environment whose checks were all skipped has not passed", () => {
  const record = { ...testRecord(), checks: [failedCheck({ id: "stop", outcome: "skip" })] };
  expect(summarize(record).matrix[0]?.cells.stop.outcome).toBe("skip");
});

test("the table for a terminal is aligned", () => {
  expect(reportText(failed())).toMatchInlineSnapshot(`
    "            wiring  start  endpoints  embedding  parity  batches  batching  errors  load  stop
    single-gpu    ✘       ✔        ✔          ✔        ✔        ✔        ✔        ✔      ✔     ✔
    kind-local    ✔       ✔        ✔          ✔        ✔        ✔        ✔        ✔      ✔     ✔

                path        p50 ms  p95 ms  p99 ms  images/s    cosine  difference
    single-gpu  embed-http    60.0    78.0  96.0 *      40.0  1.000000      2e-5 %
    single-gpu  onnx-http     72.0    93.6   115 *      36.0  1.000000      3e-5 %
    single-gpu  onnx-grpc     84.0     109     134      32.0  1.000000      4e-5 %
    kind-local  embed-http    96.0     125     154      28.0  1.000000      5e-5 %

    * from too few requests: about the slowest of them"
  `);
});
