import { describe, expect, test } from "vitest";
import { findingsOf } from "../../constructs/checks/findings.ts";
import { Testing } from "../../constructs/terraform/cdktf.ts";
import type { Environment } from "../../contract/environment.ts";
import { createStack } from "../create-stack.ts";
import { parseEnvironment } from "../settings/settings.ts";

interface Container {
  readonly name: string;
  readonly upload?: readonly { readonly file: string; readonly content: string }[];
}

/** Terraform configuration of an environment, without findings. */
function terraformOf(settings: object) {
  const stack = createStack(
    Testing.app(),
    parseEnvironment("gpu", "gpu.yaml", JSON.stringify(settings)),
  );
  expect(findingsOf(stack)).toEqual([]);
  return stack.toTerraform() as {
    resource: { docker_container: Readonly<Record<string, Container>> };
    output: { environment: { value: Environment } };
  };
}

const outputOf = (settings: object) => terraformOf(settings).output.environment.value;

/** Containers of an environment by name. */
function containersOf(settings: object): ReadonlyMap<string, Container> {
  const { resource } = terraformOf(settings);
  return new Map(Object.values(resource.docker_container).map((each) => [each.name, each]));
}

/** Addresses that the Prometheus of an environment reads, by job, and its rules. */
function prometheusOf(settings: object) {
  const { upload = [] } = containersOf(settings).get("gpu-monitoring-prometheus") ?? {};
  const [config = "", rules = ""] = ["prometheus", "rules"].map(
    (name) => upload.find(({ file }) => file === `/etc/clipstack/${name}.yml`)?.content,
  );
  const jobs = JSON.parse(config).scrape_configs as readonly {
    readonly job_name: string;
    readonly static_configs: readonly { readonly targets: readonly string[] }[];
  }[];
  return {
    jobs: Object.fromEntries(
      jobs.map(({ job_name, static_configs }) => [job_name, static_configs[0]?.targets]),
    ),
    rules,
  };
}

const enabled = { monitoring: { enabled: true } };

test("no setting, no container", () => {
  const names = [...containersOf({ stack: "single-gpu" }).keys()];
  expect(names.filter((name) => name.includes("monitoring"))).toEqual([]);
});

test("the environment output has the addresses of the monitoring", () => {
  const monitoring = { enabled: true, ports: { grafana: 3001 } };
  expect(outputOf({ stack: "single-gpu" }).monitoring).toBeUndefined();
  expect(outputOf({ stack: "multi-gpu", monitoring }).monitoring).toEqual({
    prometheus: "http://127.0.0.1:9090",
    grafana: "http://127.0.0.1:3001",
  });
  const without = { enabled: true, grafana: false };
  expect(outputOf({ stack: "single-gpu", monitoring: without }).monitoring).toEqual({
    prometheus: "http://127.0.0.1:9090",
  });
});

test.each([
  ["alerts:9093", "a URL without a user, a password or a query"],
  ["http://alerts:99999", "a valid URL"],
])("rejects the Alertmanager %s", (url, rule) => {
  const monitoring = { enabled: true, alertmanagers: [url] };
  expect(() => outputOf({ stack: "single-gpu", monitoring })).toThrow(
    `monitoring.alertmanagers.0 must be ${rule}, got '${url}'`,
  );
});

describe("Prometheus", () => {
  test("reads the Triton server of every GPU", () => {
    const { jobs, rules } = prometheusOf({
      stack: "multi-gpu",
      topology: "per-gpu",
      host: { gpu: "l4", count: 2 },
      ...enabled,
    });
    expect(jobs).toEqual({
      embed: ["gpu-embed:8002"],
      triton: ["gpu-triton-0:8002", "gpu-triton-1:8002"],
      dcgm: ["gpu-monitoring-dcgm-exporter:9400"],
    });
    expect(rules).toContain("vector(1.61)");
  });

  test("reads Triton servers without an embed server", () => {
    const { jobs } = prometheusOf({
      stack: "single-gpu",
      accelerator: "cpu",
      embed: { enabled: false },
      tritonTrt: { enabled: false },
      ...enabled,
    });
    expect(jobs).toEqual({ triton: ["gpu-triton-onnx:8002"] });
  });

  test("evaluates the SLO of the review unless the monitoring has its own", () => {
    const review = { p99GoalMilliseconds: 400 };
    const settings = { stack: "single-gpu", review, ...enabled };
    expect(prometheusOf(settings).rules).toContain("longer than 0.5 s");
    const monitoring = { enabled: true, latencySloMilliseconds: 90 };
    expect(prometheusOf({ ...settings, monitoring }).rules).toContain("longer than 0.1 s");
  });
});
