import { HelmProvider } from "@cdktf/provider-helm/lib/provider/index.js";
import { expect, test } from "vitest";
import { DataResource } from "../cdktf.ts";
import { findings, synth } from "../test-synth.ts";
import type { ChartValues } from "./chart-values.ts";
import { InferenceChart, type InferenceChartProps } from "./inference-chart.ts";

function chart(props: Partial<InferenceChartProps> = {}) {
  return synth((stack) => {
    new HelmProvider(stack, "helm", {});
    new InferenceChart(stack, "inference", {
      namespace: "inference",
      values: {},
      timeoutSeconds: 300,
      ...props,
    });
  });
}
const release = (props: Partial<InferenceChartProps> = {}) => chart(props).only("helm_release");

test("is the chart of the project, wherever the project lies", () => {
  expect(release().chart).toBe(`\${path.root}/../../../helm/clipstack`);
});

test("is upgraded when a file of the chart changes", () => {
  const { description } = release();
  expect(description).toMatch(/^chart \$\{substr\(sha256\(/);
  expect(description).toContain(`fileset("\${path.root}/../../../helm/clipstack", "**")`);
});

test("is not upgraded when its documentation or a test changes", () => {
  const [, ignored = ""] = /regexall\("([^"]+)", file\)/.exec(release().description) ?? [];
  const counts = (file: string) => !new RegExp(ignored).test(file);
  expect(["README.md", "values-kind.yaml", "chart.integ.test.ts"].filter(counts)).toEqual([]);
  const files = ["Chart.yaml", "values.yaml", "templates/quota.yaml", "templates/README.md"];
  expect(files.filter(counts)).toEqual(files);
});

test("fails on values that the chart does not have", () => {
  expect(
    findings((stack) => {
      new HelmProvider(stack, "helm", {});
      const values = { embed: { replica: 2 } } as ChartValues;
      const props = { namespace: "inference", values, timeoutSeconds: 300 };
      new InferenceChart(stack, "inference", props);
    }),
  ).toEqual(['test/inference: values.embed: Unrecognized key: "replica"']);
});

test("keeps the type of every value, also of those that only Terraform knows", () => {
  const tag = `k8s-cpu-\${local.content}`;
  const [values] = release({ values: { embed: { image: { tag }, replicas: 2 } } }).values;
  expect(JSON.parse(values)).toEqual({ embed: { image: { tag }, replicas: 2 } });
});

test("waits as long as it is told, and goes back when that was not enough", () => {
  expect(release({ timeoutSeconds: 1500 })).toMatchObject({
    wait: true,
    timeout: 1500,
    timeouts: { create: "1560s", update: "1560s", delete: "1560s" },
    atomic: true,
    cleanup_on_fail: true,
  });
});

test("leaves the wait to a gate that says why", () => {
  expect(release({ waits: "gate" })).toMatchObject({ wait: false, atomic: false });
});

test("comes after what it depends on", () => {
  const { json, at } = synth((stack) => {
    new HelmProvider(stack, "helm", {});
    const cluster = new DataResource(stack, "cluster", {});
    const props = { namespace: "inference", values: {}, timeoutSeconds: 300 };
    new InferenceChart(stack, "inference", { ...props, dependsOn: [cluster] });
  });
  const [cluster] = Object.keys(json.resource.terraform_data);
  expect(at("test/inference/release").depends_on).toEqual([`terraform_data.${cluster}`]);
});
