import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { stringify } from "yaml";
import { dcgmMetrics } from "../contract/metrics/dcgm-metrics.ts";
import { embedMetrics } from "../contract/metrics/embed-metrics.ts";
import { tritonMetrics } from "../contract/metrics/triton-metrics.ts";
import { runbookOf } from "./alerts.ts";
import { testRules } from "./test-services.ts";

const { CLIPSTACK_PROMTOOL: promtool = "promtool" } = process.env;
const missing = spawnSync(promtool, ["--version"]).status === 0 ? "" : `no ${promtool}`;

type Series = Readonly<Record<string, string>>;

const { requests, requestSeconds, images, pendingImages, tritonHealthy, ready } = embedMetrics;
const embed = 'job="embed",instance="embed:8002"';
const triton = 'job="triton",instance="triton:8002",model="openclip_vit_b32"';
const gpu = 'Hostname="gpu-host",gpu="0",UUID="GPU-a"';
const answered = `${requests}{${embed},route="/embed",status="200"}`;
const failed = `${requests}{${embed},route="/embed",status="503"}`;
const fast = `${requestSeconds}_bucket{${embed},route="/embed",le="0.25"}`;
const count = `${requestSeconds}_count{${embed},route="/embed"}`;
const embedded = `${images}{${embed},model="openclip-vit-b32"}`;
const pending = `${pendingImages}{${embed}}`;
const inferences = `${tritonMetrics.count}{${triton}}`;
const executions = `${tritonMetrics.executions}{${triton}}`;
const waiting = `${tritonMetrics.pendingRequests}{${triton}}`;
const events = `${dcgmMetrics.clockEvents}{${gpu},clock_event="hw_thermal"}`;
const use = `${dcgmMetrics.utilization}{${gpu}}`;
const otherUse = use.replace('gpu="0",UUID="GPU-a"', 'gpu="1",UUID="GPU-b"');
const xid = `${dcgmMetrics.xid}{${gpu}}`;
const healthy = `${tritonHealthy}{${embed},target="triton:8001",model="openclip_vit_b32"}`;

const expiry = `${embedMetrics.certificateExpiry}{${embed}}`;
const certificate = `${embedMetrics.fileValid}{${embed},file="certificate"}`;

/** Counter with this increase per minute for a day. */
const perMinute = (increase: number) => `0+${increase}x1440`;
const always = (value: number) => `${value}x1440`;

/** Series after which an alert fires or does not, after `at`: one sample per minute. */
interface Case {
  readonly at: string;
  readonly firing: readonly Series[];
  readonly silent: readonly Series[];
}

const cases: Readonly<Record<string, Case>> = {
  EmbedErrorBudgetBurn: {
    at: "10h",
    firing: [{ [answered]: perMinute(900), [failed]: perMinute(100) }],
    silent: [
      { [answered]: perMinute(1_000_000), [failed]: perMinute(100) },
      // an hour without failures ends the alert on an earlier disturbance
      { [answered]: perMinute(900), [failed]: "0+100x60 6000x1440" },
    ],
  },
  EmbedLatencyBudgetBurn: {
    at: "10h",
    firing: [{ [fast]: perMinute(500), [count]: perMinute(1000) }],
    silent: [{ [fast]: perMinute(999), [count]: perMinute(1000) }],
  },
  EmbedQueueGrowing: {
    at: "1h",
    firing: [{ [pending]: perMinute(10) }],
    silent: [{ [pending]: always(500) }, { [pending]: "0+5x10 50x1440" }],
  },
  EmbedNotReady: {
    at: "1h",
    firing: [
      { [`${ready}{${embed}}`]: always(0), [`up{${embed}}`]: always(1) },
      { [`up{${embed}}`]: always(0) },
    ],
    silent: [{ [`${ready}{${embed}}`]: always(1), [`up{${embed}}`]: always(1) }],
  },
  CertificateExpiring: {
    at: "1h",
    firing: [{ [expiry]: always(13 * 86_400) }, { [certificate]: always(0) }],
    silent: [{ [expiry]: always(15 * 86_400), [certificate]: always(1) }],
  },
  UpstreamEjected: {
    at: "1h",
    firing: [{ [healthy]: always(0) }],
    silent: [{ [healthy]: always(1) }],
  },
  TritonBatchCollapse: {
    at: "1h",
    firing: [{ [inferences]: perMinute(600), [executions]: perMinute(600), [waiting]: always(40) }],
    silent: [
      { [inferences]: perMinute(600), [executions]: perMinute(50), [waiting]: always(40) },
      { [inferences]: perMinute(600), [executions]: perMinute(600), [waiting]: always(0) },
    ],
  },
  GpuThrottled: {
    at: "1h",
    firing: [{ [events]: always(30) }],
    silent: [{ [events]: always(0) }, { [events.replace("hw_thermal", "power_cap")]: always(30) }],
  },
  GpuLost: {
    at: "1h",
    firing: [
      { [use]: "50x30 _x1440", [otherUse]: always(50) },
      { [use]: "50x30 _x1440" },
      { [use]: always(50), [xid]: always(79) },
    ],
    silent: [{ [use]: always(50), [otherUse]: always(0), [xid]: always(31) }],
  },
  HostIdle: {
    at: "5h",
    firing: [{ [embedded]: always(1000) }],
    silent: [{ [embedded]: perMinute(1) }],
  },
  HostAboveBudget: {
    at: "10h",
    // 0.8 $ for 60,000 images in an hour are 0.0133 $ for 1,000
    firing: [{ [embedded]: perMinute(1_000) }],
    silent: [{ [embedded]: perMinute(2_000) }],
  },
  BelowPredictedCapacity: {
    at: "1h",
    firing: [{ [embedded]: perMinute(6_000), [pending]: always(100) }],
    silent: [
      { [embedded]: perMinute(6_000), [pending]: always(0) },
      { [embedded]: perMinute(24_000), [pending]: always(100) },
    ],
  },
};

const names = [
  ...new Set(
    testRules.groups
      .flatMap((group) => group.rules as readonly { readonly alert?: string }[])
      .flatMap(({ alert }) => (alert === undefined ? [] : [alert])),
  ),
];

test("each alert has a case and a page, and each page an alert", () => {
  expect(Object.keys(cases)).toEqual(names);
  const root = fileURLToPath(new URL("../", import.meta.url));
  for (const name of names) expect(existsSync(join(root, runbookOf(name))), name).toBe(true);
  const index = readFileSync(join(root, "docs/runbooks/README.md"), "utf8");
  for (const name of names) expect(index).toContain(`[${name}](${name}.md)`);
});

describe.skipIf(missing !== "")(`alerts, by promtool${missing && ` (skipped: ${missing})`}`, () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "clipstack-alerts-"));
    writeFileSync(join(folder, "rules.yaml"), stringify(testRules));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const run = (...args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(promtool, args, { encoding: "utf8", cwd: folder });
    return { status, output: `${stdout}${stderr}` };
  };

  test("the rules are valid", () => {
    expect(run("check", "rules", "rules.yaml")).toMatchObject({ status: 0 });
  });

  const all = Object.entries(cases).flatMap(([name, { at, firing, silent }]) => [
    ...firing.map((series, index) => ({ name, at, series, state: "firing", index })),
    ...silent.map((series, index) => ({ name, at, series, state: "silent", index })),
  ]);
  test.each(all)("$name is $state, case $index", ({ name, at, series, state }) => {
    const query = {
      expr: `count(ALERTS{alertname="${name}",alertstate="firing"}) or vector(0)`,
      eval_time: at,
    };
    const text = (value: number) =>
      stringify({
        rule_files: ["rules.yaml"],
        evaluation_interval: "1m",
        tests: [
          {
            interval: "1m",
            input_series: Object.entries(series).map(([key, values]) => ({ series: key, values })),
            promql_expr_test: [{ ...query, exp_samples: [{ labels: "{}", value }] }],
          },
        ],
      });
    writeFileSync(join(folder, "none.yaml"), text(0));
    const outcome = run("test", "rules", "none.yaml");
    if (state === "silent") expect(outcome, outcome.output).toMatchObject({ status: 0 });
    // promtool prints the number of firing alerts, which is not zero
    else expect(outcome.output).toMatch(/got: \[?\s*(Labels:)?\{\} ?(Value:)? ?[1-9]/);
  });
});
