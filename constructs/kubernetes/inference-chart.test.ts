import { expect, test } from "vitest";
import { HelmProvider } from "#providers/helm/lib/provider/index.js";
import { DataResource } from "../terraform/cdktf.ts";
import { findings, synth } from "../test-synth.ts";
import type { ChartValues } from "./chart-values.ts";
import { InferenceChart, type InferenceChartProps } from "./inference-chart.ts";

function chart(props: Partial<InferenceChartProps> = {}) {
  return synth((stack) => {
    new HelmProvider(stack, "helm", {});
    new InferenceChart(stack, "inference", {
      folder: "helm/clipstack",
      namespace: "inference",
      values: {},
      timeoutSeconds: 300,
      ...props,
    });
  });
}
const release = (props: Partial<InferenceChartProps> = {}) => chart(props).only("helm_release");

test("installs the chart by a path relative to the project", () => {
  expect(release().chart).toBe(`\${path.root}/../../../helm/clipstack`);
});

test("upgrades the release when a file of the chart changes", () => {
  const { description } = release();
  expect(description).toMatch(/^chart \$\{substr\(sha256\(/);
  expect(description).toContain(`fileset("\${path.root}/../../../helm/clipstack", "**")`);
});

test("does not upgrade the release when documentation or a test changes", () => {
  const [, ignored = ""] = /regexall\("([^"]+)", file\)/.exec(release().description) ?? [];
  const counts = (file: string) => !new RegExp(ignored).test(file);
  expect(["README.md", "values-kind.yaml", "chart.integ.test.ts"].filter(counts)).toEqual([]);
  const files = ["Chart.yaml", "values.yaml", "templates/quota.yaml", "templates/README.md"];
  expect(files.filter(counts)).toEqual(files);
});

test("rejects unknown values", () => {
  expect(
    findings((stack) => {
      new HelmProvider(stack, "helm", {});
      const values = { embed: { replica: 2 } } as ChartValues;
      const props = { folder: "chart", namespace: "inference", values, timeoutSeconds: 300 };
      new InferenceChart(stack, "inference", props);
    }),
  ).toEqual(['test/inference: values.embed: Unrecognized key: "replica"']);
});

test.each([
  ["26.07-py3", true],
  ["26.05-py3", false],
])("with the tag %s, rejects precision_mode in a configuration: %s", (tag, isRejected) => {
  const texts = { clip_trt: 'parameters { key: "precision_mode", value: "FP16" }' };
  const rejected = findings((stack) => {
    new HelmProvider(stack, "helm", {});
    const values = { triton: { image: { tag }, modelConfig: { texts } } };
    const props = { folder: "chart", namespace: "inference", values, timeoutSeconds: 300 };
    new InferenceChart(stack, "inference", props);
  });
  const line = `test/inference: values.triton.modelConfig.texts.clip_trt must not set precision_mode from Triton 26.06 on, whose TensorRT takes the precision from the graph, got the tag ${tag}`;
  expect(rejected).toEqual(isRejected ? [line] : []);
});

test("keeps the type of every value, Terraform expressions included", () => {
  const tag = `k8s-cpu-\${local.content}`;
  const [values] = release({ values: { embed: { image: { tag }, replicas: 2 } } }).values;
  expect(JSON.parse(values)).toEqual({ embed: { image: { tag }, replicas: 2 } });
});

test("limits the time of the operation, and leaves the readiness of the pods to a gate", () => {
  expect(release({ timeoutSeconds: 1500 })).toMatchObject({
    wait: false,
    timeout: 1500,
    timeouts: { create: "1560s", update: "1560s", delete: "1560s" },
    atomic: false,
    cleanup_on_fail: true,
  });
});

test("depends on the given resources", () => {
  const { json, at } = synth((stack) => {
    new HelmProvider(stack, "helm", {});
    const cluster = new DataResource(stack, "cluster", {});
    const props = { folder: "chart", namespace: "inference", values: {}, timeoutSeconds: 300 };
    new InferenceChart(stack, "inference", { ...props, dependsOn: [cluster] });
  });
  const [cluster] = Object.keys(json.resource.terraform_data);
  expect(at("test/inference/release").depends_on).toEqual([`terraform_data.${cluster}`]);
});
