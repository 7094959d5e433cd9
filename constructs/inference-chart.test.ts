import { HelmProvider } from "@cdktf/provider-helm/lib/provider/index.js";
import { expect, test } from "vitest";
import { DataResource } from "./cdktf.ts";
import { chartFiles, InferenceChart, type InferenceChartProps } from "./inference-chart.ts";
import { synth } from "./test-synth.ts";

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
  for (const pattern of chartFiles) expect(description).toContain(`"${pattern}"`);
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
