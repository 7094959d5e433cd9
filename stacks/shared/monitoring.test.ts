import { describe, expect, test } from "vitest";
import { findingsOf } from "../../constructs/checks/findings.ts";
import { Testing } from "../../constructs/terraform/cdktf.ts";
import { createStack } from "../create-stack.ts";
import { parseEnvironment } from "../settings/settings.ts";

interface Container {
  readonly name: string;
  readonly upload?: readonly { readonly file: string; readonly content: string }[];
}

/** Containers of an environment by name, without findings. */
function containersOf(settings: object): ReadonlyMap<string, Container> {
  const stack = createStack(
    Testing.app(),
    parseEnvironment("gpu", "gpu.yaml", JSON.stringify(settings)),
  );
  expect(findingsOf(stack)).toEqual([]);
  const { resource } = stack.toTerraform() as {
    resource: { docker_container: Readonly<Record<string, Container>> };
  };
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
