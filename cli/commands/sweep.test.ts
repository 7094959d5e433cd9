import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, expect, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import { parseBenchRecord } from "../../bench/record/bench-record.ts";
import { studyIds, studyQuestions } from "../../bench/record/study-result.ts";
import { clipstack, startClipstack } from "../test-programs.ts";
import { synthesized } from "../test-synthesized.ts";
import { gridOf, studiesOf } from "./sweep.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-cli-sweep-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** An environment of one embed server; arguments that study it in no time, and where its port and record are. */
async function one() {
  const [port = 0] = await freePorts(1);
  const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port }]));
  const reports = mkdtempSync(join(folder, "reports-"));
  const sizes = ["--batch-sizes", "1", "--concurrency", "1,2", "--rounds", "1"];
  const loads = ["--rounds", "1", "--window", "0.1", "--windows", "3", "--warmup", "0.1"];
  const common = ["--environment", "one", "--no-synth", "--weights", "tiny", "--report", reports];
  return {
    port,
    reports,
    args: [...common, ...sizes, ...loads],
    env: { CDKTF_OUTDIR: outdir },
  };
}

test("studies run in a fixed order", () => {
  expect(studiesOf(["memory,batch", "cold-start"])).toEqual({
    studies: ["cold-start", "batch", "memory"],
    named: true,
  });
  expect(studiesOf(["all"])).toEqual({ studies: studyIds, named: false });
});

test("deployments and addresses are measured at the loads of the published tables, simulations at fewer", () => {
  const args = { channels: ["each"], queueDelay: [0] } as const;
  const simulated = gridOf({ ...args });
  expect(simulated.protocol).toMatchObject({ batchSizes: [1, 8], concurrency: [1, 16] });
  expect(Math.max(...simulated.concurrency.concurrency)).toBe(32);
  for (const target of [{ target: "deployed" }, { url: [] }] as const) {
    const grid = gridOf({ ...args, ...target });
    expect(grid.protocol).toMatchObject({
      batchSizes: [1, 4, 8, 16, 32],
      concurrency: [1, 8, 16],
    });
    expect(grid.concurrency.concurrency).toEqual([1, 2, 4, 8, 16, 32, 64, 128]);
  }
  const given = gridOf({ ...args, target: "deployed", batchSizes: [2], concurrency: [3] });
  expect(given.protocol).toMatchObject({ batchSizes: [2], concurrency: [3] });
  expect(given.concurrency.concurrency).toEqual([3]);
});

test("an unknown study is rejected with the names of all studies", async () => {
  const { code, stderr } = await clipstack(["sweep", "single-gpu"]);
  expect(code).toBe(2);
  expect(stderr.trim().split("\n").at(-1)).toBe(
    `clipstack: study must be one of ${studyIds.join(", ")}, all, got 'single-gpu'; select environments with --environment`,
  );
});

test("options for deployed environments require --target deployed", async () => {
  const { code, stderr } = await clipstack(["sweep", "cold-start", "--restart"]);
  expect(code).toBe(2);
  expect(stderr).toContain("clipstack: --restart: requires --target deployed");
});

test("an unreadable record of --against is rejected", async () => {
  const args = ["sweep", "scaling", "--target", "deployed", "--against", "no-such.json"];
  const { code, stderr } = await clipstack(args);
  expect(code).toBe(2);
  expect(stderr).toContain("clipstack: --against no-such.json: does not exist");
});

test("the help lists the question of each study", async () => {
  const { code, stdout } = await clipstack(["sweep", "--help"]);
  expect(code).toBe(0);
  for (const question of Object.values(studyQuestions)) expect(stdout).toContain(question);
});

test("a sweep saves a record and its reports and exits with 0", async () => {
  const { args, env, reports } = await one();
  const output = join(folder, "output.json");
  const studies = ["cold-start", "batch", "concurrency", "memory"];
  const { code, stdout, stderr } = await clipstack(
    ["sweep", ...studies, "--json", "--output", output, ...args],
    env,
  );
  expect(stderr).not.toContain("✘");
  expect(code).toBe(0);
  const record = parseBenchRecord(stdout, "stdout");
  expect(parseBenchRecord(readFileSync(output, "utf8"), "output")).toEqual(record);
  expect(new Set(record.studies.map(({ study }) => study))).toEqual(new Set(studies));
  expect(record.subject.environments.map(({ name }) => name)).toEqual(["one"]);
  expect(record.loadPoints.length).toBe(1 + 2 + 1);
  expect(readdirSync(reports).filter((name) => name.endsWith(".html"))).toHaveLength(1);
});

test("an unavailable study is a failure, and the other studies run", async () => {
  const { args, env } = await one();
  const { code, stdout, stderr } = await clipstack(
    ["sweep", "scaling", "queue-delay", "cold-start", "--json", ...args],
    env,
  );
  expect(code).toBe(1);
  expect(parseBenchRecord(stdout, "stdout").studies.map(({ study }) => study)).toEqual([
    "cold-start",
  ]);
  expect(stderr).toContain(
    "✘ scaling of one: requires a deployed environment (--target deployed), because simulated GPUs share the cores of this machine",
  );
  expect(stderr).toContain("✘ queue-delay of one: none of onnx-http, trt-http is available");
});

test("Ctrl-C saves the measurements and leaves no process running", async () => {
  const { args, env, reports, port } = await one();
  const { child, done } = startClipstack(
    ["sweep", "concurrency", ...args, "--windows", "100"],
    env,
  );
  let output = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  while (!output.includes("concurrency: embed-http")) await sleep(50);
  await sleep(2_000);
  child.kill("SIGINT");
  const { code } = await done;
  expect(code).toBe(130);
  const [json = ""] = readdirSync(reports).filter((name) => name.endsWith(".json"));
  const record = parseBenchRecord(readFileSync(join(reports, json), "utf8"), json);
  expect(record.interrupted).toBe(true);
  expect(record.loadPoints.at(-1)?.stability.verdict).toBe("interrupted");
  expect(await isPortInUse(port)).toBe(false);
});
