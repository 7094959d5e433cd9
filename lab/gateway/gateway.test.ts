import { expect, test } from "vitest";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { compareGateway, gatewayResults } from "./compare.ts";
import { type GatewaySubject, gatewayLoads } from "./loads.ts";
import { type GatewayRecord, type GatewayRun, parseGatewayRecord } from "./record.ts";
import { gatewayReport } from "./report.ts";
import { planGateway } from "./run.ts";

function run(
  round: number,
  subject: GatewaySubject,
  cpuMsPerImage: number,
  latency = { p50Ms: 10, p95Ms: 12, p99Ms: 25 },
): GatewayRun {
  return {
    ...{ load: "thumbnails", subject, round, cpuMsPerImage, failures: {} },
    imagesPerSecond: 1_000 / cpuMsPerImage,
    ...(subject !== "ceiling" && { latency }),
    othersShare: 0.4,
  };
}

/** The machine is twice as slow in the second round. */
const runs = [
  run(1, "gateway-uint8", 1),
  run(1, "gateway-uint8-2-cores", 1.25),
  run(1, "gateway-jpeg", 0.4),
  run(1, "baseline", 4),
  run(2, "baseline", 8),
  run(2, "gateway-jpeg", 0.8),
  run(2, "gateway-uint8-2-cores", 2),
  run(2, "gateway-uint8", 2),
];

const record: GatewayRecord = {
  schema: 1,
  kind: "bench-gateway",
  startedAt: "2026-11-24T10:00:00.000Z",
  finishedAt: "2026-11-24T10:05:00.000Z",
  subject: {
    machine: { cpu: "CPU", cores: 2, os: "Linux", node: "20", memoryMiB: 8_000 },
    model: "openclip-vit-b32",
    baseline: { packages: ["pillow==13.0.0"] },
    pinned: true,
    images: [{ kind: "thumbnail", bytes: [9_800, 10_400] }],
    settings: { rounds: 2, seconds: 4, warmupSeconds: 2, loads: ["thumbnails"] },
  },
  runs,
};

test("divides processor times of the same round, so that a slow round changes no ratio", () => {
  const [row] = compareGateway(record);
  expect(row?.measures.againstBaseline).toEqual({ value: 4, rounds: [4, 4] });
  expect(row?.measures.scaling?.rounds).toEqual([0.8, 1]);
  expect(row?.measures.jpegMs?.rounds).toEqual([0.4, 0.8]);
  expect(row?.measures.ofCeiling).toBeUndefined();
});

test("judges only figures that were measured and have a target", () => {
  const results = gatewayResults(compareGateway(record));
  expect(results.map(({ measure, passed }) => [measure, passed])).toEqual([
    ["againstBaseline", true],
    ["jpegMs", false],
    ["scaling", true],
    ["p99OfP50", false],
    ["p95OfP50", true],
  ]);
});

test("reports targets, images per second and core, and the share of other processes", () => {
  const text = renderMarkdown(gatewayReport(record));
  expect(text).toContain("3 of 5 targets met");
  expect(text).toContain(
    "| 10 KB thumbnails, 16 clients | baseline ÷ gateway, exact | 4.00 (4.00, 4.00) |",
  );
  expect(text).toMatch(/Images per second and core[\s\S]*750 \(1000, 500\)/);
  expect(text).toContain("thumbnails 40 %");
});

test("rejects a record with an unknown subject", () => {
  const other = { ...record, runs: [{ ...runs[0], subject: "peer" }] };
  expect(() => parseGatewayRecord(JSON.stringify(other), "record.json")).toThrow(
    /^record\.json: runs\.0\.subject/,
  );
});

test("reverses the subjects in every second round", () => {
  const steps = planGateway(gatewayLoads.slice(0, 1), 2, new Set());
  const [first, second] = [1, 2].map((round) =>
    steps.filter((step) => step.round === round).map(({ subject }) => subject),
  );
  expect(second).toEqual([...first!].reverse());
});
