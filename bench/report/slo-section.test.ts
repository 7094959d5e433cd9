import { expect, test } from "vitest";
import type { Section } from "../../report/document/document.ts";
import { renderHtml } from "../../report/render/render-html.ts";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { parseBenchRecord } from "../record/bench-record.ts";
import { benchRecordText } from "../record/record-text.ts";
import type { SloSearch, SloTrial } from "../record/slo-search.ts";
import { benchReport } from "./bench-report.ts";
import { testBenchRecord, testLoadPoint } from "./test-bench-record.ts";

function trial(changes: Partial<SloTrial> = {}): SloTrial {
  return {
    purpose: "search",
    ratePerSecond: 50,
    seed: 1,
    seconds: 10,
    requests: 500,
    failed: 0,
    requestsPerSecond: 50,
    goodputPerSecond: 49.8,
    achievedShare: 1,
    percentileMs: 180,
    verdict: "met",
    ...changes,
  };
}

const confirmation = trial({
  purpose: "confirmation",
  seed: 2,
  goodputPerSecond: 49.6,
  percentileMs: 190,
});
const tooFast = trial({ ratePerSecond: 51, percentileMs: 240, verdict: "latency" });

function search(changes: Partial<SloSearch> = {}): SloSearch {
  return {
    environment: "single-gpu",
    service: "triton-onnx",
    endpoint: "onnx-http",
    payload: "fp32",
    serialization: "binary",
    imagesPerRequest: 4,
    slo: { percentile: "p99", limitMs: 200 },
    arrivals: "poisson",
    tolerance: 0.02,
    closedLoopPerSecond: 80,
    trials: [tooFast, trial(), confirmation],
    ...changes,
  };
}

const reportOf = (...slo: readonly SloSearch[]) => benchReport(testBenchRecord({ slo: [...slo] }));
const slosOf = (...slo: readonly SloSearch[]): Section =>
  reportOf(...slo).summary.find(({ id }) => id === "slos")!;

const cells = ({ tables }: Section) =>
  Object.fromEntries(
    (tables[0]?.columns ?? []).map(({ label }, i) => [label, tables[0]?.rows[0]?.[i]?.text]),
  );

test("a record with searches is valid, and one without a search as well", () => {
  const record = testBenchRecord({ slo: [search({ demandPerSecond: 500 })] });
  expect(parseBenchRecord(benchRecordText(record), "x").slo).toEqual(record.slo);
  expect(parseBenchRecord(benchRecordText(testBenchRecord()), "x").slo).toBeUndefined();
});

test("the operator table has the confirmed rate, goodput beside throughput, and the closed loop", () => {
  const section = slosOf(search());
  expect(section.title).toBe("Highest rate within the SLO");
  expect(cells(section)).toEqual({
    endpoint: "onnx-http",
    batch: "4",
    SLO: "p99 ≤ 200 ms",
    "requests/s": "50.0",
    "images/s": "200",
    "throughput images/s": "200",
    "goodput images/s": "198",
    "percentile ms": "190",
    "closed loop images/s": "320",
  });
  expect(section.answer).toEqual([
    "`onnx-http`, 4 images per request: 50.0 requests per second with a p99 of 190 ms, goodput 49.6.",
  ]);
});

test("a demand is divided by the rate, with and without headroom", () => {
  const section = slosOf(search({ demandPerSecond: 500 }));
  // 500 / 200 and 500 / 160
  expect(cells(section)).toMatchObject({ replicas: "3", "with headroom": "4" });
  expect(section.answer[0]).toContain("500 images per second need 3 replicas, 4 with headroom");
  expect(section.notes.at(-1)).toContain("no more than 80 % of its rate");
});

test("a search without a confirmation has no rate and no replicas", () => {
  const unconfirmed = slosOf(search({ trials: [tooFast, trial()], demandPerSecond: 500 }));
  expect(cells(unconfirmed)).toMatchObject({ "requests/s": "–", replicas: "–" });
  expect(unconfirmed.answer[0]).toMatch(/a rate met the SLO, but no confirmation did\.$/);
  expect(slosOf(search({ trials: [tooFast] })).answer[0]).toMatch(
    /no rate down to 51.0 requests per second met the SLO\.$/,
  );
});

test("a search with only invalid trials says nothing about the SLO", () => {
  const invalid = trial({ ratePerSecond: 40, verdict: "client" });
  expect(slosOf(search({ trials: [invalid, invalid] })).answer[0]).toMatch(
    /: no valid trial was measured\. 2 trials of 2 invalid because the load generator was too slow/,
  );
});

test("a result that the client limited or that is not close to the limit says so", () => {
  const limited = [trial({ ratePerSecond: 70, verdict: "client" }), trial(), confirmation];
  const [answer] = slosOf(search({ trials: limited })).answer;
  expect(answer).toContain("the next higher rate that failed is 70.0");
  expect(answer).toContain("so the server's limit can be higher");
});

test("a trial whose percentile falls on a failed request is later than every response", () => {
  const failed = trial({
    ratePerSecond: 60,
    failed: 20,
    achievedShare: 0.96,
    percentileMs: undefined,
    verdict: "achieved",
  });
  const report = reportOf(search({ trials: [failed, tooFast, trial(), confirmation] }));
  const trials = report.sections.find(({ id }) => id === "slo-trials");
  expect(trials?.tables[0]?.rows[0]?.map(({ text }) => text)).toEqual([
    ...["onnx-http", "4", "search", "60.0", "50.0", "49.8", "96 %", "> all", "500", "20"],
    "rate not achieved",
  ]);
});

test("the plot has the limit as a line and rings the confirmation", () => {
  const html = renderHtml(reportOf(search()));
  expect(html).toContain("SLO 200 ms");
  expect(html).toContain("p99 by offered rate");
  const trials = reportOf(search()).sections.find(({ id }) => id === "slo-trials");
  expect(trials?.figures[0]?.draw(900).match(/class="ring"/g)).toHaveLength(1);
});

test("without a search the table is labelled as a closed loop", () => {
  const report = benchReport(testBenchRecord());
  const section = report.summary.find(({ id }) => id === "slos");
  expect(section?.title).toBe("Highest throughput within a p95 SLO, closed loop");
  expect(section?.notes[0]).toMatch(/^A closed loop hides stalls/);
  expect(renderMarkdown(report)).toContain("p95 ms, closed loop");
});

test("failed requests count against the p95 of that table", () => {
  const point = testLoadPoint();
  const p95 = (errors: Record<string, number>) => {
    const record = testBenchRecord({ loadPoints: [{ ...point, errors }], studies: [] });
    const section = benchReport(record).summary.find(({ id }) => id === "slos");
    return Number(section?.tables[0]?.rows[0]?.at(-1)?.text);
  };
  // 0.9 % failed: the p95 moves up within the histogram
  expect(p95({ "503": Math.floor(0.009 * point.samples) })).toBeGreaterThan(p95({}));
});
