import type { ContainerUpload } from "#providers/docker/lib/container/index.js";
import { embedPaths } from "../../contract/embed-api.ts";
import { dcgmCounters } from "../../contract/metrics/dcgm-metrics.ts";
import { dcgmExporterPort, embedPort, tritonPorts } from "../../contract/ports.ts";
import { ruleGroups } from "../../monitoring/alerts.ts";
import { dashboards } from "../../monitoring/dashboards.ts";
import { latencyBound } from "../../monitoring/expressions.ts";
import { finding, findingIf } from "../checks/findings.ts";
import { imageFindings } from "../checks/images.ts";
import { gpusOf } from "../stack/environment-output.ts";
import { expression } from "../terraform/expression.ts";
import { hostFileMounts } from "./embed-access.ts";
import type { EmbedServer } from "./embed-server.ts";
import type { GpuHost } from "./gpu-host.ts";
import type { TritonServer } from "./triton-server.ts";

/** Props of the monitoring of a GPU host, and the files of its containers. */

export interface MonitoringProps {
  readonly host: GpuHost;
  /**
   * Embed server whose metrics are read.
   *
   * @default - none
   */
  readonly embed?: EmbedServer | undefined;
  /** Triton servers whose metrics are read. */
  readonly tritons: readonly TritonServer[];
  /** Names of the images; without `grafana`, there are no dashboards. */
  readonly images: {
    readonly prometheus: string;
    readonly grafana?: string | undefined;
    readonly dcgm: string;
  };
  /** Folder of the project with the dashboards, such as `helm/clipstack/dashboards`. */
  readonly dashboards: string;
  /** Host ports, on the loopback interface only. */
  readonly ports: { readonly prometheus: number; readonly grafana: number };
  /** Days for which Prometheus keeps the metrics. */
  readonly retentionDays: number;
  /**
   * File of the host with the key of Prometheus, and nothing else; required if the embed server has `keys`.
   *
   * @default - the embed server requires no key, or one in a Terraform variable
   */
  readonly keyFile?: string | undefined;
  /** URLs of Alertmanagers, as Prometheus' container reaches them. */
  readonly alertmanagers: readonly string[];
  /** SLO of the alerts: 99 % of the requests take at most this time. */
  readonly latencySloMilliseconds: number;
  /**
   * Images per second at saturation.
   *
   * @default - unknown: no alert compares the throughput with it
   */
  readonly predictedImagesPerSecond?: number | undefined;
  /**
   * Cost of 1,000 images in US dollars above which an alert fires.
   *
   * @default - no alert
   */
  readonly budgetUsdPer1000Images?: number | undefined;
}

/** Folder of the containers with the files of this plan. */
const folder = "/etc/clipstack";
const scrapeSeconds = 15;

export const prometheusConfig = `${folder}/prometheus.yml`;
export const dcgmCountersFile = `${folder}/dcgm-counters.csv`;

/** Upper bound of Prometheus' data per day in MiB: 5,000 series, a sample of 2 bytes each 15 s, and its log. */
const metricsMiBPerDay = 64;
export const metricsMiB = (retentionDays: number) => metricsMiBPerDay * retentionDays;

/** YAML file; JSON is YAML. */
function yamlFile(file: string, content: object): ContainerUpload {
  return { file, content: `${JSON.stringify(content, null, 1)}\n` };
}

/** Mount and path in the container of the file with the key of Prometheus. */
export function keyFileMounts(keyFile: string | undefined) {
  return hostFileMounts(keyFile === undefined ? [] : [{ prop: "keyFile", path: keyFile }]);
}

/** Configuration and rules of Prometheus. */
export function prometheusFiles(
  props: MonitoringProps,
  dcgmTarget: string | undefined,
): readonly ContainerUpload[] {
  const { embed } = props;
  const rules = `${folder}/rules.yml`;
  const embedKey = `${folder}/embed-key`;
  const job = (name: string, targets: readonly string[], more: object = {}) =>
    targets.length === 0
      ? []
      : [{ job_name: name, ...more, static_configs: [{ targets: [...targets] }] }];
  const keyPath = embed?.apiKey === undefined ? keyFileMounts(props.keyFile).paths[0] : embedKey;
  return [
    yamlFile(prometheusConfig, {
      global: { scrape_interval: `${scrapeSeconds}s`, evaluation_interval: `${scrapeSeconds}s` },
      rule_files: [rules],
      ...(props.alertmanagers.length > 0 && {
        alerting: { alertmanagers: props.alertmanagers.map(alertmanagerOf) },
      }),
      scrape_configs: [
        ...job(
          "embed",
          embed === undefined ? [] : [`${embed.container.nameInput}:${embedPort}`],
          embed && {
            metrics_path: embedPaths.metrics,
            scheme: embed.access.scheme,
            // the certificate has the name of the host and not of the container
            ...(embed.access.scheme === "https" && { tls_config: { insecure_skip_verify: true } }),
            ...(keyPath !== undefined && { authorization: { credentials_file: keyPath } }),
          },
        ),
        ...job(
          "triton",
          props.tritons.map(({ container }) => `${container.nameInput}:${tritonPorts.metrics}`),
        ),
        ...job("dcgm", dcgmTarget === undefined ? [] : [`${dcgmTarget}:${dcgmExporterPort}`]),
      ],
    }),
    yamlFile(rules, rulesOf(props)),
    ...(embed?.apiKey === undefined
      ? []
      : [{ file: embedKey, content: embed.apiKey.stringValue as string }]),
  ];
}

function alertmanagerOf(address: string) {
  const { protocol, host, pathname } = new URL(address);
  return {
    scheme: protocol.slice(0, -1),
    path_prefix: pathname,
    static_configs: [{ targets: [host] }],
  };
}

function rulesOf(props: MonitoringProps) {
  const { host, latencySloMilliseconds } = props;
  return ruleGroups({
    selectors: { embed: 'job="embed"', triton: 'job="triton"', gpu: 'job="dcgm"' },
    latencySeconds: latencyBound(latencySloMilliseconds),
    usdPerHour: host.accelerator === "gpu" ? (gpusOf(host.gpu, host.count)?.usdPerHour ?? 0) : 0,
    predictedImagesPerSecond: props.predictedImagesPerSecond ?? 0,
    budgetUsdPer1000Images: props.budgetUsdPer1000Images ?? 0,
  });
}

/** Folder in which the image of Grafana reads its files. */
const grafanaFolder = "/etc/grafana";
const grafanaDashboards = `${folder}/dashboards`;

/** Grafana has no users: whoever reaches its port reaches that of Prometheus too, so a password would protect nothing. */
const grafanaIni = `[analytics]
reporting_enabled = false
check_for_updates = false
check_for_plugin_updates = false
[auth]
disable_login_form = true
[auth.anonymous]
enabled = true
org_role = Viewer
[auth.basic]
enabled = false
[dashboards]
default_home_dashboard_path = ${grafanaDashboards}/${dashboards[0]?.name}.json
[plugins]
preinstall_disabled = true
[security]
disable_initial_admin_creation = true
`;

/** Configuration, data source and dashboards of Grafana. */
export function grafanaFiles(
  { host, dashboards: source }: MonitoringProps,
  prometheusUrl: string,
): readonly ContainerUpload[] {
  return [
    { file: `${grafanaFolder}/grafana.ini`, content: grafanaIni },
    yamlFile(`${grafanaFolder}/provisioning/datasources/prometheus.yml`, {
      apiVersion: 1,
      datasources: [
        {
          name: "Prometheus",
          uid: "prometheus",
          type: "prometheus",
          access: "proxy",
          url: prometheusUrl,
          isDefault: true,
          editable: false,
          // Grafana derives $__rate_interval from it
          jsonData: { timeInterval: `${scrapeSeconds}s` },
        },
      ],
    }),
    yamlFile(`${grafanaFolder}/provisioning/dashboards/clipstack.yml`, {
      apiVersion: 1,
      providers: [
        {
          name: "clipstack",
          type: "file",
          disableDeletion: true,
          options: { path: grafanaDashboards },
        },
      ],
    }),
    ...dashboards.map(({ name }) => ({
      file: `${grafanaDashboards}/${name}.json`,
      content: expression(`file("${host.sourcePath(`${source}/${name}.json`)}")`),
    })),
  ];
}

export const dcgmFiles: readonly ContainerUpload[] = [
  { file: dcgmCountersFile, content: dcgmCounters },
];

export function monitoringFindings(props: MonitoringProps): readonly string[] {
  const { embed, keyFile, images } = props;
  const hasKeys = embed?.access.requiresKey === true && embed.apiKey === undefined;
  return [
    ...(hasKeys && keyFile === undefined
      ? [
          finding(
            "keyFile",
            "be set: a file of the host with only the key of Prometheus, because embed.keys has those of all clients",
          ),
        ]
      : []),
    ...findingIf(
      keyFile !== undefined && !hasKeys,
      "keyFile",
      "be absent unless embed.keys is set",
      `'${keyFile}'`,
    ),
    ...keyFileMounts(keyFile).findings,
    ...Object.entries(images).flatMap(([name, image]) =>
      image === undefined ? [] : imageFindings(image, `images.${name}`),
    ),
  ];
}
