import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { endpointStyle } from "../../report/plots/plot-styles.ts";
import { pageStyle } from "../../report/render/page-style.ts";
import { renderHtml } from "../../report/render/render-html.ts";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { renderText } from "../../report/render/render-text.ts";
import { type BenchRecord, parseBenchRecord } from "../record/bench-record.ts";
import { benchRecordText, benchReportName } from "../record/record-text.ts";
import { studyIds } from "../record/study-result.ts";
import { benchReport } from "./bench-report.ts";
import { sectionsOf } from "./sections.ts";
import { testBenchRecord, testLoadPoint, testSimulationRecord } from "./test-bench-record.ts";

const benchReportHtml = (record: BenchRecord) => renderHtml(benchReport(record));
const benchReportMarkdown = (record: BenchRecord) => renderMarkdown(benchReport(record));
const benchReportText = (record: BenchRecord) => renderText(benchReport(record));

const withoutLoadPoints = (): BenchRecord =>
  testBenchRecord({ loadPoints: [], studies: [], parity: [] });

const section = (record: BenchRecord, id: string) => sectionsOf(record).find((it) => it.id === id);

test("the test record is valid", () => {
  expect(parseBenchRecord(benchRecordText(testBenchRecord()), "x")).toEqual(
    JSON.parse(JSON.stringify(testBenchRecord())),
  );
});

test("the committed example is the report of its record", () => {
  const example = "bench/reports/2026-11-24T13-39-41Z-bench-single-gpu";
  const record = parseBenchRecord(readFileSync(`${example}.json`, "utf8"), "example");
  const renew = `renew it: npx clipstack report ${example}.json --format md --output ${example}.md`;
  expect(readFileSync(`${example}.md`, "utf8"), renew).toBe(benchReportMarkdown(record));
});

test("the page has recommendations, limitations and evidence, in this order", () => {
  const html = benchReportHtml(testBenchRecord());
  const headings = [...html.matchAll(/<h2[^>]*>(.*?)<\/h2>/g)].map((match) => match[1]);
  expect(headings).toMatchInlineSnapshot(`
    [
      "Recommendations",
      "Highest throughput within a p95 SLO, closed loop",
      "Limitations",
      "Evidence",
      "Latency of each endpoint at low load",
      "Batch size",
      "Concurrency and saturation",
      "Latency by part",
      "Cost",
      "Fixed request rates (open loop)",
      "Cold start",
      "Queue delay of the batcher",
      "gRPC compared with HTTP",
      "Memory",
      "Scaling across GPUs",
      "GPU topology",
      "Embedding parity",
      "All load points",
      "System under test",
    ]
  `);
});

test("every study has a section with an answer", () => {
  const ids = new Set(sectionsOf(testBenchRecord()).map(({ id }) => id));
  for (const study of studyIds) expect(ids, study).toContain(study);
  for (const { id, answer } of sectionsOf(testBenchRecord())) {
    if (id !== "loads") expect(answer.length, id).toBeGreaterThan(0);
  }
});

test("the notes of a study are in its section, also without results", () => {
  const studies = (["batch", "concurrency", "scaling"] as const).map((study) => ({
    study,
    environment: "single-gpu",
    notes: [`${study} was cut short.`],
  }));
  const record = testBenchRecord({
    studies,
    loadPoints: testBenchRecord().loadPoints.filter(({ study }) => study !== "scaling"),
  });
  for (const { study } of studies) {
    expect(section(record, study)!.notes, study).toContain(`${study} was cut short.`);
  }
  expect(section(record, "scaling")!.answer).toEqual(["No result."]);
});

test("the protocol section compares a shared channel with HTTP at the same load", () => {
  const point = (
    endpoint: "onnx-http" | "onnx-grpc",
    channels: "shared" | undefined,
    imagesPerSecond: number,
  ) =>
    testLoadPoint(
      {
        endpoint,
        load: { kind: "closed loop", concurrency: 16, channels },
        study: "protocol",
      },
      { imagesPerSecond },
    );
  const record = testBenchRecord({
    loadPoints: [
      point("onnx-http", undefined, 40),
      point("onnx-grpc", undefined, 38),
      point("onnx-grpc", "shared", 4),
    ],
  });
  const { answer, tables } = section(record, "protocol")!;
  expect(answer[0]).toMatch(
    /^`onnx-grpc`, 16 clients: one shared channel reaches 4\.0 images\/s, 0\.10 × of HTTP with a connection for each client \(40\.0\) and 38\.0 with a channel for each client\./,
  );
  const rows = tables.find(({ caption }) => caption === "Connections of the clients")!.rows;
  expect(rows.map((cells) => cells.map(({ text }) => text).slice(0, 6))).toEqual([
    ["onnx-http", "one per client", "1", "16", "40.0", "1.00 ×"],
    ["onnx-grpc", "one per client", "1", "16", "38.0", "0.95 ×"],
    ["onnx-grpc", "on a shared channel", "1", "16", "4.0", "0.10 ×"],
  ]);
});

test("every linked heading exists", () => {
  const html = benchReportHtml(testBenchRecord());
  for (const [, id] of html.matchAll(/href="#([^"]+)"/g)) expect(html).toContain(`id="${id}"`);
});

test("the page loads nothing from the network and runs only its own script", () => {
  const html = benchReportHtml(testBenchRecord());
  expect(html).not.toMatch(/<link|<img|<iframe|@import|url\(|\ssrc=|https?:\/\//i);
  expect(html.match(/<script/g)).toHaveLength(1);
  expect(html).toMatch(
    /default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/]+=*'/,
  );
});

test("text of a record is escaped in HTML and Markdown", () => {
  const record = testBenchRecord({
    failures: ['<b>&"quoted"</b>'],
    notes: ["a|b <script>alert(1)</script> *d*"],
  });
  const html = benchReportHtml(record);
  expect(html).toContain("&lt;b&gt;&amp;&quot;quoted&quot;&lt;/b&gt;");
  expect(html).not.toContain("<script>alert");
  expect(benchReportMarkdown(record)).toContain("a\\|b \\<script\\>alert(1)\\</script\\> \\*d\\*");
});

test("a failed run starts with its failures", () => {
  const html = benchReportHtml(
    testBenchRecord({ passed: false, failures: ["trt-http: other embeddings"] }),
  );
  expect(html).toContain('<header class="bad">');
  expect(html.indexOf("trt-http: other embeddings")).toBeLessThan(html.indexOf("Recommendations"));
  expect(benchReportMarkdown(testBenchRecord({ passed: false, failures: ["x"] }))).toContain(
    "### Failures",
  );
  expect(benchReportText(testBenchRecord({ passed: false, failures: ["x is wrong"] }))).toContain(
    "x is wrong",
  );
});

test.each(
  Object.entries({
    "a run without loads": withoutLoadPoints(),
    "a run that answered nothing": testBenchRecord({
      loadPoints: [
        testLoadPoint(
          {},
          {
            samples: 0,
            latencyMs: undefined,
            histogram: [],
            imagesPerSecond: 0,
          },
        ),
      ],
      studies: [],
    }),
    "one load": testBenchRecord({ loadPoints: [testLoadPoint()], studies: [] }),
    "a load with a latency of almost nothing": testBenchRecord({
      loadPoints: [testLoadPoint({ slower: 1e-6 })],
      studies: [],
    }),
    "a rate alone": testBenchRecord({
      loadPoints: [
        testLoadPoint({
          load: { kind: "open loop", arrivals: "constant", ratePerSecond: 5, seed: 1 },
        }),
      ],
      studies: [],
    }),
    "local processes": testSimulationRecord(),
  }),
)("has a report with no broken number: %s", (_name, record) => {
  const html = benchReportHtml(record).replace(/<(script|style)>.*?<\/\1>/gs, "");
  for (const text of [html, benchReportMarkdown(record), benchReportText(record)]) {
    expect(text).not.toMatch(/NaN|Infinity|undefined/);
  }
});

test("endpoints of several environments are separate series", () => {
  const other = testBenchRecord().loadPoints.map((point) => ({
    ...point,
    environment: "multi-gpu-4x",
  }));
  const record = testBenchRecord({ loadPoints: [...testBenchRecord().loadPoints, ...other] });
  const names = section(record, "paths")!.tables[0]!.rows.map((row) => row[0]!.text);
  expect(names).toContain("single-gpu trt-grpc");
  expect(names).toContain("multi-gpu-4x trt-grpc");
  const titles = section(record, "concurrency")!.figures.map(({ title }) => title);
  expect(titles).toContain("Throughput by concurrency, multi-gpu-4x");
});

test("saturation is the measured maximum, next to the fitted one", () => {
  const table = section(testBenchRecord(), "concurrency")!.tables[0]!;
  const row = table.rows.find(([name]) => name?.text === "onnx-http")!;
  expect(row.slice(1, 6).map(({ text }) => text)).toEqual(["680", "32", "16", "683", "682 to 684"]);
});

test("saturation is not judged with an invalid load point or with four numbers of clients", () => {
  expect(benchReportHtml(testBenchRecord())).toContain('class="crossed"');
  const { answer, tables } = section(testBenchRecord(), "concurrency")!;
  expect(answer).toContain(
    "`trt-grpc`: saturation is not judged; that requires at least 5 numbers of clients, all of them valid, and 6 of 7 are.",
  );
  const row = tables[0]!.rows.find(([name]) => name?.text === "trt-grpc")!;
  expect(row.slice(1, 6).map((cell) => cell?.text)).toEqual(["–", "–", "–", "–", "–"]);

  const few = [1, 4, 8, 16].map((concurrency) =>
    testLoadPoint({ load: { kind: "closed loop", concurrency } }),
  );
  const found = section(testBenchRecord({ loadPoints: few, studies: [] }), "concurrency")!;
  expect(found.answer).toEqual([
    "Saturation is not judged: that requires at least 5 numbers of clients, all of them valid.",
  ]);
});

test("the efficiency of scaling and the fitted peak have intervals over the rounds", () => {
  const record = testBenchRecord();
  expect(section(record, "scaling")!.answer[0]).toMatch(
    /a scaling efficiency of [\d.]+ % \(95 %: [\d.]+ % to [\d.]+ %\)\.$/,
  );
  const once = record.loadPoints.map((point) => ({ ...point, rounds: point.rounds.slice(0, 1) }));
  const single = { ...record, loadPoints: once };
  expect(section(single, "scaling")!.answer[0]).toMatch(
    /a scaling efficiency of [\d.]+ % \(one round\)\.$/,
  );
  for (const id of ["batch", "protocol"]) {
    expect(section(single, id)!.answer.join(" "), id).toContain(" × (one round) ");
    expect(section(record, id)!.answer.join(" "), id).not.toContain("one round");
  }
  expect(section(single, "concurrency")!.tables[0]!.rows[0]![5]?.text).toBe("–");
});

test("the parts of the latency add up to its mean", () => {
  const table = section(testBenchRecord(), "time")!.tables[0]!;
  for (const row of table.rows) {
    const [whole, ...parts] = row.slice(2, 10).map(({ sort }) => Number(sort ?? 0));
    expect(parts.reduce((sum, part) => sum + part, 0)).toBeCloseTo(whole!, 6);
  }
});

test("costs require a price", () => {
  const found = section(testSimulationRecord(), "cost")!;
  expect(found.figures).toEqual([]);
  expect(found.tables).toEqual([]);
  expect(found.answer[0]).toContain("--price");
});

test("scaling is relative to one GPU at the same load per GPU", () => {
  const rows = section(testBenchRecord(), "scaling")!.tables[0]!.rows;
  const [one, , four] = rows.map((row) => Number(row[3]!.sort));
  expect(rows.map((row) => row[1]!.text)).toEqual(["1", "2", "4"]);
  expect(Number(rows[2]![5]!.sort)).toBeCloseTo(four! / (4 * one!), 9);
});

test("the Markdown fits into a pull request comment and names omitted sections", () => {
  const many = Array.from({ length: 12 }, (_, i) =>
    testBenchRecord().loadPoints.map((point) => ({ ...point, environment: `environment-${i}` })),
  ).flat();
  const text = benchReportMarkdown(testBenchRecord({ loadPoints: many }));
  expect(text.length).toBeLessThan(65_536);
  expect(text).toMatch(/Omitted because of the length limit: .*\. See the HTML report\./);
});

test("the Markdown begins with the verdict and its warning", () => {
  const lines = benchReportMarkdown(testSimulationRecord()).split("\n");
  expect(lines[0]).toMatch(
    /^## Sweep: Works at 96 of 97 load points, not at `onnx-grpc` \(1 image per request, 64 clients\); no performance conclusion$/,
  );
  expect(lines.slice(0, 8).join("\n")).toContain(
    "> [!WARNING]\n> CPU instead of GPU, local simulation,",
  );
});

test("the text has all load points, recommendations and limitations, and ends with the verdict", () => {
  const text = benchReportText(testBenchRecord());
  expect(text).toMatch(/Lowest latency +onnx-http_uint8 +4\.\d+ ms p50/);
  expect(text).toContain(
    "! 1 load point invalid: trt-grpc b1 c128 (b: images per request, c: clients).",
  );
  expect(text).not.toContain("`");
  expect(text).toContain("All load points");
  expect(text.trimEnd().split("\n").at(-1)).toMatch(/^Lowest latency: .*\.$/);
});

test("the file name of a run has its start, kind and environments, or that it measured addresses", () => {
  expect(benchReportName(testBenchRecord())).toBe("2026-11-21T10-30-00Z-sweep-single-gpu");
  const base = withoutLoadPoints();
  const record = { ...base, subject: { ...base.subject, environments: [] } };
  expect(benchReportName(record)).toBe("2026-11-21T10-30-00Z-bench-addresses");
});

test.each(["onnx-http_uint8", "trt-http_uint8", "onnx-grpc_jpeg", "onnx-http_json"])(
  "%s has its own colour in plots",
  (endpoint) => {
    const classes = endpointStyle(endpoint).colour.split(" ");
    expect(pageStyle).toMatch(new RegExp(`\\.series\\.${classes.at(-1)}[ ,]`));
  },
);
