import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { dashboards } from "../../monitoring/dashboards.ts";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { dependenciesIn, findings, hostIn, synth } from "../test-synth.ts";
import type { EmbedAccessProps } from "./embed-access.ts";
import { EmbedServer } from "./embed-server.ts";
import type { GpuHostProps } from "./host-plan.ts";
import { Monitoring } from "./monitoring.ts";
import type { MonitoringProps } from "./monitoring-plan.ts";
import { TritonServer } from "./triton-server.ts";

interface Options {
  readonly host?: Partial<GpuHostProps>;
  readonly embed?: EmbedAccessProps;
  readonly props?: Partial<MonitoringProps>;
}

const tls = { certificate: "/etc/clipstack/tls.crt", key: "/etc/clipstack/tls.key" };
const keys = "/etc/clipstack/keys.json";

/** Gateway with one Triton server on the GPUs 1 and 2, monitored. */
const monitored =
  ({ host: hostProps, embed: access, props }: Options = {}) =>
  (stack: TerraformStack) => {
    const host = hostIn(stack, hostProps);
    const { tools, weights } = dependenciesIn(stack, host);
    const triton = new TritonServer(stack, "triton", {
      host,
      tools,
      weights,
      server: {
        kind: "tritonserver",
        image: { source: "pull", name: "nvcr.io/nvidia/tritonserver:26.05-py3" },
      },
      backend: "onnxruntime",
      gpus: [1, 2],
      ports: { http: 8010, grpc: 8011, metrics: 8012 },
    });
    const backend = { kind: "triton", upstreams: [triton] } as const;
    const embed = new EmbedServer(stack, "embed", { host, image: tools, backend, ...access });
    new Monitoring(stack, "monitoring", {
      host,
      embed,
      tritons: [triton],
      images: { prometheus: "prometheus:1", grafana: "grafana:1", dcgm: "dcgm:1" },
      dashboards: "helm/clipstack/dashboards",
      ports: { prometheus: 9090, grafana: 3000 },
      retentionDays: 15,
      alertmanagers: [],
      latencySloMilliseconds: 200,
      ...props,
    });
  };

interface Upload {
  readonly file: string;
  readonly content: string;
}

function synthesized(options?: Options) {
  const { at, json, all } = synth(monitored(options));
  const container = (name: string) => at(`test/monitoring/${name}/container`);
  const uploads = (name: string) =>
    new Map((container(name).upload as Upload[]).map(({ file, content }) => [file, content]));
  const yaml = (name: string, file: string) => JSON.parse(uploads(name).get(file) ?? "");
  return {
    container,
    uploads,
    yaml,
    json,
    names: all("docker_container").map(({ name }) => name as string),
    config: yaml("prometheus", "/etc/clipstack/prometheus.yml"),
    rules: yaml("prometheus", "/etc/clipstack/rules.yml"),
    requirements: at("test/host/check/doctor").triggers_replace,
  };
}

describe("Prometheus", () => {
  test("reads every service by the name of its container", () => {
    expect(synthesized().config.scrape_configs).toEqual([
      {
        job_name: "embed",
        metrics_path: "/metrics",
        scheme: "http",
        static_configs: [{ targets: ["test-embed:8002"] }],
      },
      { job_name: "triton", static_configs: [{ targets: ["test-triton:8002"] }] },
      { job_name: "dcgm", static_configs: [{ targets: ["test-monitoring-dcgm-exporter:9400"] }] },
    ]);
  });

  test("reads an embed server with TLS and a key in a variable, whose value is in no other argument", () => {
    const { config, container, uploads } = synthesized({
      embed: { expose: "all-interfaces", tls },
    });
    expect(config.scrape_configs[0]).toMatchObject({
      scheme: "https",
      tls_config: { insecure_skip_verify: true },
      authorization: { credentials_file: "/etc/clipstack/embed-key" },
    });
    // biome-ignore lint/suspicious/noTemplateCurlyInString: expression of Terraform
    expect(uploads("prometheus").get("/etc/clipstack/embed-key")).toBe("${var.embed_api_key}");
    const { upload, ...others } = container("prometheus");
    expect(JSON.stringify(others)).not.toContain("embed_api_key");
  });

  test("reads an embed server with keys in a file with the key in its own file", () => {
    const keyFile = "/etc/prometheus-key/key";
    const { config, container, requirements } = synthesized({
      embed: { keys },
      props: { keyFile },
    });
    const { authorization } = config.scrape_configs[0];
    expect(authorization).toEqual({ credentials_file: `/host${keyFile}` });
    expect(container("prometheus").volumes[1]).toEqual({
      host_path: "/etc/prometheus-key",
      container_path: "/host/etc/prometheus-key",
      read_only: true,
    });
    expect(container("prometheus").healthcheck.test[1]).toMatch(
      /^cat \/host\/etc\/prometheus-key\/key /,
    );
    expect(requirements.files).toContainEqual({
      path: keyFile,
      on: "host",
      what: "key of Prometheus",
    });
  });

  test("sends alerts to Alertmanagers, also at the default port and below a path", () => {
    const alertmanagers = ["http://alerts.internal:9093", "https://alerts.example/team"];
    expect(synthesized({ props: { alertmanagers } }).config.alerting.alertmanagers).toEqual([
      {
        scheme: "http",
        path_prefix: "/",
        static_configs: [{ targets: ["alerts.internal:9093"] }],
      },
      {
        scheme: "https",
        path_prefix: "/team",
        static_configs: [{ targets: ["alerts.example"] }],
      },
    ]);
    expect(synthesized().config).not.toHaveProperty("alerting");
  });

  test("evaluates the alerts with the SLO and the price of the host", () => {
    const text = JSON.stringify(synthesized({ host: { gpu: "l4" } }).rules);
    expect(text).toContain("vector(3.22)");
    expect(text).toContain("Requests take longer than 0.25 s");
    expect(JSON.stringify(synthesized({ host: { accelerator: "cpu" } }).rules)).toContain(
      '"clipstack:usd_per_hour","expr":"vector(0)"',
    );
  });
});

describe("Grafana", () => {
  test("has the dashboards, and Prometheus as data source", () => {
    const { uploads, yaml, container } = synthesized();
    const { ports, name } = container("prometheus");
    const provisioning = "/etc/grafana/provisioning";
    const { datasources } = yaml("grafana", `${provisioning}/datasources/prometheus.yml`);
    expect(datasources).toMatchObject([
      { type: "prometheus", url: `http://${name}:${ports[0].internal}`, isDefault: true },
    ]);
    const { providers } = yaml("grafana", `${provisioning}/dashboards/clipstack.yml`);
    const { path } = providers[0].options;
    const root = fileURLToPath(new URL("../../", import.meta.url));
    for (const dashboard of dashboards) {
      const content = uploads("grafana").get(`${path}/${dashboard.name}.json`) ?? "";
      const [, source] =
        /^\$\{file\("\$\{path\.root\}\/\.\.\/\.\.\/\.\.\/(.+)"\)\}$/.exec(content) ?? [];
      expect(existsSync(`${root}${source}`), content).toBe(true);
    }
    expect(uploads("grafana").size).toBe(dashboards.length + 3);
    const ini = uploads("grafana").get("/etc/grafana/grafana.ini") ?? "";
    const [, home = ""] = /^default_home_dashboard_path = (.+)$/m.exec(ini) ?? [];
    expect(uploads("grafana").has(home)).toBe(true);
    expect(ini).toMatch(/\[auth\.anonymous\]\nenabled = true\norg_role = Viewer/);
    expect(ini).toContain("[security]\ndisable_initial_admin_creation = true");
  });

  test("is optional", () => {
    const images = { prometheus: "prometheus:1", dcgm: "dcgm:1" };
    expect(synthesized().names).toContain("test-monitoring-grafana");
    expect(synthesized({ props: { images } }).names).not.toContain("test-monitoring-grafana");
  });
});

describe("DCGM exporter", () => {
  test("has the GPUs of the services and a stable host name, and publishes no port", () => {
    const exporter = synthesized().container("dcgm-exporter");
    expect(exporter).toMatchObject({ hostname: "test", runtime: "nvidia" });
    expect(exporter.env).toContain("NVIDIA_VISIBLE_DEVICES=1,2");
    expect(exporter.ports).toBeUndefined();
  });

  test("is absent without GPUs", () => {
    const { names, config } = synthesized({ host: { accelerator: "cpu" } });
    expect(names).not.toContain("test-monitoring-dcgm-exporter");
    expect(JSON.stringify(config)).not.toContain("9400");
  });
});

test("publishes ports on the loopback interface only, and requires them, memory and disk space of the host", () => {
  const { container, requirements } = synthesized();
  for (const name of ["prometheus", "grafana"])
    expect(container(name).ports.map(({ ip }: { ip: string }) => ip)).toEqual(["127.0.0.1"]);
  expect(requirements.ports).toContainEqual({
    service: "monitoring-grafana",
    setting: "ports.grafana",
    port: 3000,
    address: "127.0.0.1",
  });
  expect(requirements.memory).toContainEqual({ service: "monitoring-prometheus", miB: 1_024 });
  expect(requirements.disk).toContainEqual({ what: "metrics of 15 days", miB: 960 });
});

test.each<[string, Options, readonly string[]]>([
  [
    "keys without a file for Prometheus",
    { embed: { keys } },
    [
      "keyFile must be set: a file of the host with only the key of Prometheus, because embed.keys has those of all clients",
    ],
  ],
  [
    "a file without keys",
    { props: { keyFile: "/etc/clipstack/key" } },
    ["keyFile must be absent unless embed.keys is set, got '/etc/clipstack/key'"],
  ],
  [
    "a port of a service",
    { props: { ports: { prometheus: 8010, grafana: 3000 } } },
    ["ports.prometheus must be free on the host, got 8010, which triton (ports.http) uses"],
  ],
  [
    "an image without a version",
    { props: { images: { prometheus: "prom/prometheus", dcgm: "dcgm:1" } } },
    [
      "images.prometheus must name a version, like 'name:1.2' or better 'name@sha256:…', got 'prom/prometheus'",
    ],
  ],
])("rejects %s", (_, options, expected) => {
  expect(findings(monitored(options))).toEqual(expected.map((line) => `test/monitoring: ${line}`));
});
