import { expect, test } from "vitest";
import type { VerifyRecord } from "../bench/record/record.ts";
import { failedCheck, testRecord } from "../bench/record/test-record.ts";
import { renderHtml } from "../report/render/render-html.ts";
import { renderMarkdown } from "../report/render/render-md.ts";
import { renderText } from "../report/render/render-text.ts";
import { verifyReport } from "./verify-report.ts";

const reportHtml = (record: VerifyRecord) => renderHtml(verifyReport(record));
const reportMarkdown = (record: VerifyRecord) => renderMarkdown(verifyReport(record));
const reportText = (record: VerifyRecord) => renderText(verifyReport(record));

const failed = () => {
  const record = testRecord();
  return { ...record, checks: [...record.checks, failedCheck()], passed: false };
};

const triton = (name: string, server: "tritonserver" | "emulator") =>
  ({ name, kind: "triton", backend: "onnxruntime", server, resource: name, processes: 1 }) as const;

/** Outline of a page: tags, relevant attributes and headings. */
function outline(html: string): string {
  return [...html.matchAll(/<h([12])[^>]*>(.*?)<\/h\1>|<(svg|table|figure|details)[\s>]/g)]
    .map((match) =>
      match[1] === undefined ? `  ${match[3]}` : (match[2] ?? "").replace(/<[^>]+>/g, ""),
    )
    .join("\n");
}

test("the HTML report has a section for every question", () => {
  expect(outline(reportHtml(testRecord()))).toMatchInlineSnapshot(`
    "!40 checks passed
    Checks
      table
    Endpoints
      table
    Limitations
    Evidence
    Every check
      details
      table
      details
      table
      details
      table
    System under test"
  `);
});

test("a failure comes first in the HTML report, with the container's name", () => {
  const html = reportHtml(failed());
  expect(html.indexOf("Failures")).toBeLessThan(html.indexOf(">Checks<"));
  expect(html).toContain("docker_container.triton (container &#39;single-gpu-triton-onnx&#39;)");
  expect(html).toContain("1 of 41 checks failed");
});

test("the HTML report makes no network request and runs only its own script", () => {
  const html = reportHtml(failed());
  expect(html.match(/<script/g)).toHaveLength(1);
  expect(html).not.toMatch(/<link|<img|@import|url\(|\ssrc=|https?:\/\/(?!127\.0\.0\.1)/i);
  expect(html).toContain("default-src 'none'");
});

test("text of a record is escaped in the HTML report", () => {
  const record = { ...testRecord(), checks: [failedCheck({ message: '<b>&"quoted"</b>' })] };
  const html = reportHtml(record);
  expect(html).toContain("&lt;b&gt;&amp;&quot;quoted&quot;&lt;/b&gt;");
  expect(html).not.toContain("<b>&");
});

test("a run without measurements and parity still has a report", () => {
  const record = { ...testRecord(), checks: [failedCheck()], measurements: [], passed: false };
  expect(reportHtml(record)).toContain("1 of 1 check failed");
  expect(reportMarkdown(record)).toContain("1 of 1 check failed");
});

test("a failure is followed by its log", () => {
  const log = "not ready\n    line one\n    line two";
  const record = { ...testRecord(), checks: [failedCheck({ message: log })] };
  expect(reportHtml(record)).toContain("<pre>line one\nline two</pre>");
  expect(reportMarkdown(record)).toContain("  ```text\n  line one\n  line two\n  ```");
  expect(reportText(record)).toContain("not ready\n    line one\n    line two");
});

test("the Markdown report lists failures, checks and endpoints", () => {
  const text = reportMarkdown(failed());
  expect(text).toContain(
    "- **wiring single-gpu/triton-onnx**: publishes 8010 for its port 8009, but listens on 8000, 8001, 8002 (`docker_container.triton (container 'single-gpu-triton-onnx')`)",
  );
  expect(text).toContain("| single-gpu | ✗ FAIL | ✓ pass | ✓ pass |");
  expect(text).toContain(
    "| single-gpu | embed-http | 60.0 | 78.0 | 96.0 \\* | 40.0 | 100 | none | 1.000000 | 2e-5 % |",
  );
});

test("text of a record is escaped in the Markdown report", () => {
  const record = { ...testRecord(), checks: [failedCheck({ message: "a|b <c> *d*" })] };
  expect(reportMarkdown(record)).toContain("a\\|b \\<c\\> \\*d\\*");
});

test("a report lists the limitations of its figures", () => {
  expect(verifyReport(testRecord()).caveats.map(({ title }) => title)).toEqual([
    "CPU instead of GPU",
    "Local simulation",
    "Short load",
    "Random weights",
    "kind-local",
  ]);
});

test("every report names the deployed server of each Triton server", () => {
  const record = testRecord();
  const [first, ...rest] = record.environments;
  const services = [
    ...first!.services,
    triton("triton-onnx", "emulator"),
    triton("triton-trt", "tritonserver"),
  ];
  const deployed = { ...record, environments: [{ ...first!, services }, ...rest] };
  const line =
    "triton-trt of single-gpu: NVIDIA's tritonserver; triton-onnx of single-gpu: clipstack's Triton emulator";
  expect(reportText(deployed)).toContain(line);
  expect(reportMarkdown(deployed)).toContain(line);
  expect(reportHtml(deployed)).toContain(line.replaceAll("'", "&#39;"));
  expect(reportText(deployed)).toContain("Declared Triton");
  const onHost = { ...deployed, subject: { ...deployed.subject, target: "deployed" } as const };
  expect(reportText(onHost)).toContain("Deployed Triton");
});

test("a file edited by hand is a caveat", () => {
  const record = testRecord();
  const [first, ...rest] = record.environments;
  const edited = { ...first!, artefact: { ...first!.artefact, editedByHand: true } };
  const { caveats } = verifyReport({ ...record, environments: [edited, ...rest] });
  expect(caveats.map(({ text }) => text)).toContain(
    "single-gpu/cdk.tf.json was edited after it was synthesized, and was used as edited.",
  );
});

test("an environment with skipped checks only has not passed", () => {
  const record = { ...testRecord(), checks: [failedCheck({ id: "stop", outcome: "skip" })] };
  expect(verifyReport(record).summary[0]?.tables[0]?.rows[0]?.[1]?.text).toBe("– skipped");
});

test("services with the same endpoint are distinguished by name", () => {
  const record = testRecord();
  const [first] = record.measurements.filter(({ endpoint }) => endpoint === "onnx-http");
  const measurements = ["triton-0", "triton-1"].map((service) => ({ ...first!, service }));
  const perGpu = { ...record, checks: [], measurements };
  for (const report of [reportText, reportMarkdown, reportHtml]) {
    expect(report(perGpu)).toContain("single-gpu/triton-0");
    expect(report(perGpu)).toContain("single-gpu/triton-1");
  }
});

test("a deployment of random weights is a caveat by model, the simulation is not", () => {
  const record = testRecord();
  const model = { ...record.subject.model, spec: "my-vit", weights: "random" };
  const environments = record.environments.map((environment) => ({
    ...environment,
    models: undefined,
    model: undefined,
  }));
  const textOf = (target: "deployed" | "simulation") =>
    reportText({ ...record, subject: { ...record.subject, target, model }, environments } as never);
  const caveat = "! Random weights: The weights of my-vit are random:";
  expect(textOf("deployed")).toContain(caveat);
  expect(textOf("simulation")).not.toContain(caveat);
});

test("a report names the different model of an environment", () => {
  const record = testRecord();
  const [first, second] = record.environments;
  const model = { name: "/data/model.onnx", sha256: "0123456789ab".padEnd(64, "0") };
  const environments = [first!, { ...second!, model }];
  expect(verifyReport({ ...record, environments }).caveats).toContainEqual({
    kind: "know",
    title: "kind-local",
    text: "Compared with its own model, /data/model.onnx (sha256 0123456789ab).",
  });
});

test("the columns of a table on a terminal are aligned", () => {
  expect(reportText(failed())).toMatchInlineSnapshot(`
    "Environments  single-gpu, kind-local
    Target        simulation
    Model         generated (vit-b-32, random weights, seed 1, sha256 abababababab)
    Commit        0123456789ab
    When          2026-11-21 10:30 UTC, 1 min 35 s
    Machine       Test CPU, 2 cores, 24 GiB

    Checks

    environment  wiring  start   endpoints  embedding  parity  batches  batching  errors  load    stop
    single-gpu   ✗ FAIL  ✓ pass  ✓ pass     ✓ pass     ✓ pass  ✓ pass   ✓ pass    ✓ pass  ✓ pass  ✓ pass
    kind-local   ✓ pass  ✓ pass  ✓ pass     ✓ pass     ✓ pass  ✓ pass   ✓ pass    ✓ pass  ✓ pass  ✓ pass

    Endpoints

    environment  endpoint    p50 ms  p95 ms  p99 ms  images/s  requests  errors    cosine  difference
    single-gpu   embed-http    60.0    78.0  96.0 *      40.0       100  none    1.000000      2e-5 %
    single-gpu   onnx-http     72.0    93.6   115 *      36.0       300  none    1.000000      3e-5 %
    single-gpu   onnx-grpc     84.0     109     134      32.0       500  none    1.000000      4e-5 %
    kind-local   embed-http    96.0     125     154      28.0       700  none    1.000000      5e-5 %

    Closed loop: 4 clients, one image per request, 3 s per endpoint; this measures capacity, not latency at a fixed rate. Cosine and difference are the worst of 2 images against the local reference.

    ! CPU instead of GPU: single-gpu is configured for GPUs, but this run used 2 CPU cores, shared with the load generator. The figures predict neither the latency and throughput on a GPU nor which endpoint is faster there.
    ! Local simulation: Local processes of clipstack's server and Triton emulator replaced the containers. Ports, settings, models and protocols were tested as synthesized; images, drivers, networks and resource limits were not.
    ! Short load: A p99 marked with * comes from fewer than 500 requests, and is about the slowest of them.

    ✗ wiring single-gpu/triton-onnx: docker_container.triton (container 'single-gpu-triton-onnx'): publishes 8010 for its port 8009, but listens on 8000, 8001, 8002

    1 of 41 checks failed.
    "
  `);
});

test("each model of a service has its own row", () => {
  const record = testRecord();
  const ofModel =
    (model: string) =>
    <Entry extends { readonly environment: string; readonly endpoint?: string }>(entry: Entry) =>
      entry.endpoint === undefined ? entry : { ...entry, model };
  const models = ["openclip-vit-b32", "dinov2-small"];
  const text = reportText({
    ...record,
    checks: record.checks.flatMap((check) => models.map((model) => ofModel(model)(check))),
    measurements: record.measurements.flatMap((one) => models.map((model) => ofModel(model)(one))),
  });
  const rows = text.split("\n").filter((line) => line.includes("embed-http"));
  for (const model of models) {
    expect(rows.filter((row) => row.startsWith(`single-gpu, ${model} `))).toHaveLength(1);
  }
});

test("names every model, and has a caveat for a stand-in", () => {
  const record = testRecord();
  const models = [
    record.subject.model,
    {
      ...record.subject.model,
      spec: "my-vit",
      modality: "text" as const,
      architecture: "stand-in",
      sha256: "cd".repeat(32),
    },
  ];
  const text = reportText({
    ...record,
    environments: record.environments.map((environment) => ({ ...environment, models })),
  });
  expect(text).toMatch(
    /\nModels +generated \(vit-b-32, random weights, seed 1, sha256 abababababab\); generated \(my-vit text, stand-in, random weights, seed 1, sha256 cdcdcdcdcdcd\)\n/,
  );
  expect(text).toContain(
    "! Stand-in: A small generated model with random weights replaced my-vit,",
  );
});
