import { expect, test } from "vitest";
import { metricsSettings, parseTritonArgs, renderTritonCommand } from "./triton-flags.ts";

const repository = "--model-repository=/models";

test("--metrics-config may be given several times, and comes back as it was", () => {
  const values = ["summary_latencies=true", "summary_quantiles=0.5:0.05,0.99:0.001"];
  const [, ...args] = renderTritonCommand({
    "model-repository": "/models",
    "metrics-config": values,
  });
  expect(args).toEqual([repository, ...values.map((value) => `--metrics-config=${value}`)]);
  const flags = parseTritonArgs([repository, "--metrics-config", values[0]!, args[2]!]);
  expect(flags["metrics-config"]).toEqual(values);
  expect(metricsSettings(values)).toEqual({
    counterLatencies: true,
    summaryLatencies: true,
    summaryQuantiles: [0.5, 0.99],
    histogramLatencies: false,
  });
});

test.each([
  ["no value", "summary_latencies", "must be <setting>=<value>"],
  ["no boolean", "summary_latencies=on", "summary_latencies must be true or false"],
  [
    "no quantiles",
    "summary_quantiles=0.5,0.9",
    "summary_quantiles must be <quantile>:<error>,… of 0 to 1",
  ],
  [
    "a setting that Triton does not have",
    "summary_latency=true",
    "knows counter_latencies, summary_latencies, histogram_latencies, summary_quantiles",
  ],
])("--metrics-config fails on %s", (_, value, rule) => {
  expect(() => parseTritonArgs([repository, `--metrics-config=${value}`])).toThrow(
    `--metrics-config ${rule}, got '${value}'`,
  );
});
