import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { capacityTable } from "../../bench/capacity/capacity-table.ts";
import { gpuNames } from "../../contract/gpus.ts";
import { type CheckRow, checkPublished, relativeError, summarize } from "./check.ts";
import { parsePublished } from "./published.ts";
import { calibratedTable } from "./table.ts";
import { testFacts as facts } from "./test-facts.ts";

const rows = checkPublished(facts);
const row = (figure: string) => rows.find((one) => one.figure === figure) as CheckRow;

test("every published figure is checked once", () => {
  const figures = [...facts.published.values()].flatMap(({ id, figures }) =>
    figures.map((figure) => `${id}/${figure.id}`),
  );
  expect(rows.map(({ figure }) => figure)).toEqual(figures);
  expect(figures.length).toBeGreaterThan(100);
});

test("reproduces every figure that sets a parameter and every derived figure", () => {
  expect(summarize(rows).broken).toEqual([]);
});

test("no throughput or latency of several clients sets a parameter", () => {
  const several = [...facts.published.values()]
    .filter(({ setting }) => setting.place === "remote")
    .flatMap(({ id, figures }) =>
      figures
        .filter(({ load, quantity }) => {
          const outcome = quantity === "throughput" || quantity === "requests";
          return (load?.concurrency ?? 1) > 1 && (outcome || quantity === "latency");
        })
        .map((figure) => `${id}/${figure.id}`),
    );
  expect(several.length).toBeGreaterThan(15);
  for (const figure of several) expect(row(figure).role, figure).toBe("predicted");
});

test("predicts the throughput of several clients with tensors: half of it within 10 %, all but one within 21 %", () => {
  const errors = rows
    .filter(({ figure, role, unit }) => {
      const ofSeveral = /\/(c\d+-throughput|onnx-http-c16|onnx-grpc-c16|(json|binary)-throughput)$/;
      return role === "predicted" && ofSeveral.test(figure) && unit !== "inferences/s";
    })
    .map(({ error = 0 }) => Math.abs(error))
    .sort((a, b) => a - b);
  expect(errors.length).toBe(12);
  expect(errors[6]).toBeLessThan(0.1);
  expect(errors[10]).toBeLessThan(0.21);
  // the gRPC channel of the RTX 4090, whose round trip is unknown
  expect(row("rtx-4090-protocols/onnx-grpc-c16").error).toBe(errors[11]);
});

test("predicts other GPUs from one by their peak arithmetic", () => {
  for (const gpu of ["rtx-3090", "rtx-5090"]) {
    expect(Math.abs(row(`model-only/${gpu}`).error ?? 1)).toBeLessThan(0.05);
  }
});

test("lists unexplained figures with their error and a reason", () => {
  const { notExplained } = summarize(rows).predicted;
  expect(notExplained.map(({ figure }) => figure)).toContain("rtx-a4000-remote/binary-b32-latency");
  for (const { figure, note } of notExplained) expect(note, figure).not.toBe("");
  for (const { figure, role, note } of rows) {
    if (role === "carried") expect(note, figure).not.toBe("");
  }
});

test("marks figures with an assumed load", () => {
  expect(rows.filter(({ assumed }) => assumed.length > 0).map(({ figure }) => figure)).toEqual([
    "rtx-4080-remote/throughput",
    "rtx-a4000-remote/json-throughput",
    "rtx-a4000-remote/binary-throughput",
  ]);
});

test("the guide contains the figures of the check", () => {
  const guide = readFileSync(new URL("../../docs/capacity.md", import.meta.url), "utf8");
  const { figures, byRole, predicted } = summarize(rows);
  expect(guide).toContain(
    `prints all ${figures} published figures. ${byRole.predicted} are predicted: ${predicted.within10} within 10 %, ${predicted.within25} within 25 %, median ${Math.round(100 * predicted.medianError)} %`,
  );
  expect(guide).toContain(
    `${byRole.calibrates} set a parameter, ${byRole.derived} follow by formula`,
  );
});

test("an error is relative to the nearer end of a range and 0 within it", () => {
  expect(relativeError(90, 100, 120)).toBeCloseTo(-0.1, 9);
  expect(relativeError(132, 100, 120)).toBeCloseTo(0.1, 9);
  expect(relativeError(110, 100, 120)).toBe(0);
});

const file = {
  schema: 1,
  id: "a",
  title: "A",
  source: { name: "somebody", seen: "2026-11" },
  setting: { place: "local" },
  missing: [],
  figures: [{ id: "x", label: "x", quantity: "latency", unit: "ms", value: 1 }],
};

test.each([
  ["{", "a.json: must be JSON"],
  [JSON.stringify({ ...file, id: "b" }), "a.json: id must be the file's name, got 'b'"],
  [
    JSON.stringify({ ...file, figures: [...file.figures, ...file.figures] }),
    "a.json: figure ids must be unique, got 'x' twice",
  ],
  [
    JSON.stringify({ ...file, figures: [{ ...file.figures[0], range: [1, 2] }] }),
    "a.json: figures.0 must have a value or a range",
  ],
])("fails on a wrong file of figures: %#", (text, message) => {
  expect(() => parsePublished(text, "a.json")).toThrow(message);
});

test("no published result is labelled as this project's embed server", () => {
  for (const { id, figures } of facts.published.values()) {
    for (const { id: figure, label, load } of figures) {
      expect(load?.endpoint, `${id}/${figure}`).not.toBe("embed-http");
      expect(`${figure} ${label}`).not.toMatch(/\bembed\b/);
    }
  }
});

test("a GPU has its peak in the catalogue or in gpu-peaks.json, not in both", () => {
  const { published } = facts;
  const derived = published.get("gpu-peaks")?.figures.map(({ gpu }) => gpu) ?? [];
  expect(derived).not.toEqual([]);
  expect(derived.filter((gpu) => gpuNames.some((name) => name === gpu))).toEqual([]);
});

test("the measured figures are the medians of at least three rounds", () => {
  const measured = facts.published.get("clipstack-ingest")!.figures;
  expect(measured.length).toBe(13);
  for (const { id, value, rounds = [] } of measured) {
    const sorted = [...rounds].sort((a, b) => a - b);
    expect(rounds.length, id).toBeGreaterThanOrEqual(3);
    expect(value, id).toBe(sorted[Math.floor(sorted.length / 2)]);
  }
});

test("clipstack capacity uses the calibrated table", () => {
  expect(capacityTable).toEqual(calibratedTable(facts));
});

test.each([
  [["calibrate", "parameters"], /"bandwidthMbps": 190/],
  [["calibrate", "cross-validate"], /of 43 figures are inside their P10-P90 interval/],
  [["calibrate"], /Of \d+ predicted figures, \d+ are within 10 %/],
])("npm run lab -- %s", (args, prints) => {
  const main = fileURLToPath(new URL("../main.ts", import.meta.url));
  const command = ["--import", import.meta.resolve("tsx"), main, ...args];
  expect(execFileSync(process.execPath, command, { encoding: "utf8" })).toMatch(prints);
});
