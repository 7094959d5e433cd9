import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { ruleGroups } from "../../monitoring/alerts.ts";
import { chart, noHelm, objectOf, runProgram, template } from "./test-helm.ts";

/** Evaluates the PromQL of Triton's queue time, as rendered by the chart, with Prometheus' `promtool`. */

const { CLIPSTACK_PROMTOOL: promtool = "promtool" } = process.env;
const noPromtool =
  noHelm || (runProgram(promtool, ["--version"]).code === 0 ? "" : `no ${promtool}`);

const values = {
  triton: {
    enabled: true,
    server: "emulator",
    gpus: 0,
    autoscaling: { enabled: true, prometheus: { url: "http://prometheus:9090" } },
  },
  prometheusRule: { enabled: true },
} as const satisfies ChartValues;

/** Counters of one model in one pod: growth per 15 seconds, or the samples. */
interface Model {
  readonly pod: string;
  readonly model?: string;
  readonly queueMicroseconds: number | string;
  readonly requests: number | string;
  readonly namespace?: string;
}

const growing = (by: number | string) => (typeof by === "string" ? by : `0+${by}x40`);

describe.skipIf(noPromtool !== "")(
  `queue time in PromQL${noPromtool && ` (skipped: ${noPromtool})`}`,
  () => {
    let folder: string;
    /** Expected values of the recording rule, per pod. */
    let record: string;
    /** Expected value of KEDA's query for all pods. */
    let ofRelease: string;

    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), "clipstack-rules-"));
      const objects = template(values);
      const { spec } = objectOf(objects, "PrometheusRule", "clipstack-triton");
      writeFileSync(join(folder, "rules.yaml"), stringify(spec));
      record = spec.groups[0].rules[0].record;
      ofRelease = objectOf(objects, "ScaledObject", "clipstack-triton").spec.triggers[0].metadata
        .query;
    });
    afterAll(() => rmSync(folder, { recursive: true, force: true }));

    /** Output of promtool for the expected values of `expr` after five minutes of `models`. */
    function check(
      expr: string,
      models: readonly Model[],
      expected: readonly { readonly labels: string; readonly value: number }[],
      interval = "15s",
    ) {
      const series = models.flatMap(
        ({ pod, model = "openclip_vit_b32", namespace = "clipstack", ...counters }) => {
          const labels = `{namespace="${namespace}",pod="${pod}",model="${model}",version="1"}`;
          return [
            {
              series: `nv_inference_queue_duration_us${labels}`,
              values: growing(counters.queueMicroseconds),
            },
            {
              series: `nv_inference_request_success${labels}`,
              values: growing(counters.requests),
            },
          ];
        },
      );
      checkSeries(expr, series, expected, interval);
    }

    /** Asserts the values of `expr` after five minutes of `series`. */
    function checkSeries(
      expr: string,
      series: readonly { readonly series: string; readonly values: string }[],
      expected: readonly { readonly labels: string; readonly value: number }[],
      interval = "15s",
    ) {
      const test = {
        rule_files: ["rules.yaml"],
        evaluation_interval: "15s",
        tests: [
          {
            interval,
            input_series: series,
            promql_expr_test: [{ expr, eval_time: "5m", exp_samples: expected }],
          },
        ],
      };
      const file = join(folder, "test.yaml");
      writeFileSync(file, stringify(test));
      const { code, stdout, stderr } = runProgram(promtool, ["test", "rules", file]);
      expect(code, `${stdout}${stderr}`).toBe(0);
    }
    const recorded = (pod: string, value: number) => ({
      labels: `{__name__="${record}", namespace="clipstack", pod="${pod}"}`,
      value,
    });
    const pod = "clipstack-triton-a";

    test("is the mean over the requests of one model", () => {
      check(record, [{ pod, queueMicroseconds: 30_000, requests: 3 }], [recorded(pod, 10)]);
    });

    test("is the mean over the requests of all models, not the mean of the models", () => {
      // 300 requests at 20 ms; an average with the idle models would be 5 ms
      check(
        record,
        [
          { pod, queueMicroseconds: 6_000_000, requests: 300 },
          { pod, model: "openclip_vit_b32_u8", queueMicroseconds: 0, requests: 0 },
          { pod, model: "openclip_vit_b32_jpeg", queueMicroseconds: 0, requests: 0 },
          { pod, model: "openclip_vit_b32_trt", queueMicroseconds: 0, requests: 0 },
        ],
        [recorded(pod, 20)],
      );
    });

    test("is 0, not absent, in a pod without traffic", () => {
      check(record, [{ pod, queueMicroseconds: 0, requests: 0 }], [recorded(pod, 0)]);
    });

    test("is not affected by a reset of a pod's counters", () => {
      // the container restarts after two minutes: counters from 0, at the same rate
      check(
        record,
        [
          {
            pod,
            queueMicroseconds: "0+100000x16 0+100000x20",
            requests: "0+10x16 0+10x20",
          },
        ],
        [recorded(pod, 10)],
      );
    });

    test("has one value for each pod of this release only", () => {
      check(
        record,
        [
          { pod, queueMicroseconds: 10_000, requests: 1 },
          { pod: "clipstack-triton-b", queueMicroseconds: 30_000, requests: 1 },
          { pod: "other-triton-a", queueMicroseconds: 90_000, requests: 1 },
          { pod, namespace: "elsewhere", queueMicroseconds: 90_000, requests: 1 },
        ],
        [recorded(pod, 10), recorded("clipstack-triton-b", 30)],
      );
    });

    test("is, for KEDA, the mean over all pods, including idle ones", () => {
      check(
        ofRelease,
        [
          { pod, queueMicroseconds: 80_000, requests: 1 },
          { pod: "clipstack-triton-b", queueMicroseconds: 0, requests: 0 },
        ],
        [{ labels: "{}", value: 40 }],
      );
    });

    test.each([
      ["10s", "1m"],
      ["30s", "2m"],
      ["40s", "160s"],
      ["1m", "4m"],
    ])("has a sufficient window for a scrape interval of %s", (interval, window) => {
      const objects = template({ ...values, serviceMonitor: { interval } });
      const [trigger] = objectOf(objects, "ScaledObject", "clipstack-triton").spec.triggers;
      expect(trigger.metadata.query).toContain(`[${window}]`);
      check(
        trigger.metadata.query,
        [{ pod, queueMicroseconds: 80_000, requests: 1 }],
        [{ labels: "{}", value: 80 }],
        interval,
      );
    });

    test("is the same in the rule and in the query of the Prometheus adapter", () => {
      const { rules } = parse(
        readFileSync(join(chart, "prometheus", "adapter-rules.yaml"), "utf8"),
      );
      const [rule] = rules.custom;
      expect(rule.name.as).toBe("clipstack_triton_queue_milliseconds");
      // as substituted by the adapter for the pods of a Deployment
      const query = rule.metricsQuery
        .replaceAll("<<.LabelMatchers>>", `namespace="clipstack",pod=~"${pod}"`)
        .replaceAll("<<.GroupBy>>", "pod");
      check(
        query,
        [
          { pod, queueMicroseconds: 6_000_000, requests: 300 },
          { pod, model: "openclip_vit_b32_u8", queueMicroseconds: 0, requests: 0 },
        ],
        [{ labels: `{pod="${pod}"}`, value: 20 }],
      );
    });

    test("the alerts are those of the release, with its values", () => {
      const rule = (own: ChartValues["prometheusRule"]) =>
        objectOf(
          template({ ...values, prometheusRule: { enabled: true, ...own } }),
          "PrometheusRule",
          "clipstack-triton",
        ).spec;
      const facts = {
        latencySloSeconds: 1,
        usdPerHour: 0.8,
        predictedImagesPerSecond: 500,
        budgetUsdPer1000Images: 0.01,
      } as const;
      const { latencySloSeconds, ...others } = facts;
      const of = (component: string) => `namespace="clipstack",pod=~"clipstack-${component}-.+"`;
      const { groups } = ruleGroups({
        selectors: { embed: of("embed"), triton: of("triton"), gpu: 'gpu!=""' },
        latencySeconds: latencySloSeconds,
        ...others,
      });
      expect(rule(facts).groups.slice(1)).toEqual(groups);
      expect(JSON.stringify(rule({}))).not.toMatch(/[A-Z]+_[A-Z_]+SELECTOR|_HOUR|_SECONDS|_IMAGES/);
    });

    describe("scaling from zero", () => {
      const activity = () => {
        const objects = template({
          embed: { backend: "triton" },
          triton: {
            ...values.triton,
            autoscaling: { ...values.triton.autoscaling, scaleToZero: { enabled: true } },
          },
        });
        return objectOf(objects, "ScaledObject", "clipstack-triton").spec.triggers[1].metadata
          .query;
      };
      const requests = (samples: string, route = "/embed") => ({
        series: `clipstack_embed_requests_total{namespace="clipstack",pod="clipstack-embed-a",route="${route}",status="503"}`,
        values: samples,
      });

      test.each([
        ["the first request of a gateway", [requests("_x18 1 1")], 1],
        ["requests, after a restart of the gateway", [requests("900+0x16 0+15x3")], 1],
        ["requests for an hour", [requests("0+15x40")], 1],
        ["no request", [requests("7+0x20")], 0],
        ["health checks only", [requests("7+0x20"), requests("0+15x20", "/readyz")], 0],
      ])("is positive or not with %s", (_name, series, value) => {
        checkSeries(`sgn(${activity()})`, series, [{ labels: "{}", value }]);
      });
    });
  },
);
