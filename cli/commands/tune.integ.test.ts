import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readBenchRecord } from "../../bench/record/bench-record.ts";
import { startClipstack } from "../test-programs.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-tune-integ-"));
const environments = join(folder, "environments");
const file = join(environments, "host.yaml");
const text = `stack: single-gpu
accelerator: cpu
embed:
  port: 18002
tritonOnnx: { enabled: false }
tritonTrt: { enabled: false }
`;
const env = { CLIPSTACK_ENVIRONMENTS_DIR: environments, CDKTF_OUTDIR: join(folder, "cdktf.out") };
const output = join(folder, "record.json");
const args = [
  ...["tune", "host", "--slo", "p50=2s", "--vary", "maxQueueDelayMicroseconds", "--rounds", "2"],
  ...["--weights", "tiny", "--window", "0.1", "--windows", "1", "--warmup", "0.1", "--write"],
  ...["--concurrency", "2", "--report", folder, "--output", output],
];

beforeAll(() => {
  mkdirSync(environments);
  writeFileSync(file, text);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** State after a run: whether the server still responds, and the folders of candidates that exist. */
const remains = async () => {
  const answers = await fetch("http://127.0.0.1:18002/healthz").then(
    () => true,
    () => false,
  );
  const stacks = readdirSync(join(folder, "cdktf.out/stacks"));
  return { answers, candidates: stacks.filter((name) => name.startsWith("tune.")) };
};

test("Ctrl-C saves what was measured, and leaves the file as it was and no process", async () => {
  const { child, done } = startClipstack(args, env);
  let stderr = "";
  await new Promise<void>((resolve) => {
    child.stderr.on("data", (chunk) => {
      stderr += chunk;
      if (stderr.includes("embed-http b1 c2:")) resolve();
    });
    child.on("exit", () => resolve());
  });
  child.kill("SIGINT");
  const { code } = await done;
  expect([code, stderr]).toEqual([130, expect.stringContaining("what was measured until then")]);
  expect(readBenchRecord(output)).toMatchObject({
    interrupted: true,
    tune: { environment: "host" },
  });
  expect(readFileSync(file, "utf8")).toBe(text);
  expect(await remains()).toEqual({ answers: false, candidates: [] });
});
