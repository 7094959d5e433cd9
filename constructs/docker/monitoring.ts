import { Construct } from "constructs";
import type { Container } from "#providers/docker/lib/container/index.js";
import { Volume } from "#providers/docker/lib/volume/index.js";
import type { Environment } from "../../contract/environment.ts";
import { dcgmExporterPort, monitoringPorts } from "../../contract/ports.ts";
import { limitsOf } from "../checks/container-limits.ts";
import { check } from "../checks/findings.ts";
import { gpuMetricsLabel } from "../checks/gpus.ts";
import { TerraformStack } from "../terraform/cdktf.ts";
import { nameInStack, objectName } from "../terraform/names.ts";
import { environmentList, labels, wgetTest } from "./container-defaults.ts";
import type { GpuHost, ImageKind } from "./gpu-host.ts";
import { gpuRequest } from "./gpu-request.ts";
import { bindAddress } from "./host-plan.ts";
import {
  dcgmCountersFile,
  dcgmFiles,
  grafanaFiles,
  keyFileMounts,
  type MonitoringProps,
  metricsMiB,
  monitoringFindings,
  prometheusConfig,
  prometheusFiles,
} from "./monitoring-plan.ts";
import { type ServerContainerProps, serverContainer } from "./server-container.ts";

/** Users of the images, to whom their data folders belong. */
const users = { prometheus: "65534:65534", grafana: "472:0" } as const;
const memoryMiB = { prometheus: 1_024, grafana: 640, "dcgm-exporter": 640 } as const;
const graceSeconds = 30;

/** Health check that also fails, with the reason, if a file of the host cannot be read: Prometheus itself would start without its key. */
function readable([file]: readonly string[], test: readonly string[]): readonly string[] {
  if (file === undefined) return test;
  return ["CMD-SHELL", `cat ${file} > /dev/null && ${test.slice(1).join(" ")}`];
}

/** Prometheus first reads its log of the last hours. */
const startSeconds = 120;

/**
 * Prometheus, which reads the metrics of the services and evaluates the alerts, Grafana with the dashboards, and on GPUs DCGM exporter.
 * Their ports are on the loopback interface of the host, without authentication. Grafana has no users and keeps no data.
 */
export class Monitoring extends Construct {
  readonly prometheus: Container;
  /** Absent without an image. */
  readonly grafana?: Container;
  /** Absent if no service uses a GPU. */
  readonly dcgmExporter?: Container;
  /** Addresses for the environment output. */
  readonly urls: NonNullable<Environment["monitoring"]>;

  constructor(scope: Construct, id: string, props: MonitoringProps) {
    super(scope, id);

    const { host, images } = props;
    check(this, () => monitoringFindings(props));
    this.dcgmExporter = host.usedGpus.length === 0 ? undefined : this.#dcgmExporter(props);
    this.prometheus = this.#prometheus(props);
    const url = (port: number) => `http://${host.clientAddress("loopback")}:${port}`;
    this.urls = { prometheus: url(props.ports.prometheus) };
    if (images.grafana === undefined) return;
    this.grafana = this.#grafana(props, images.grafana);
    this.urls.grafana = url(props.ports.grafana);
  }

  #prometheus(props: MonitoringProps) {
    const { host, images, ports, retentionDays, keyFile } = props;
    const keys = keyFileMounts(keyFile);
    const megabytes = metricsMiB(retentionDays);
    const volume = new Volume(this, "metrics", {
      provider: host.provider,
      name: `${objectName(this)}-metrics`,
    });
    host.require({
      disk: [{ what: `metrics of ${retentionDays} days`, miB: megabytes }],
      files:
        keyFile === undefined ? [] : [{ path: keyFile, on: "host", what: "key of Prometheus" }],
    });
    return this.#container(host, "prometheus", images.prometheus, {
      user: users.prometheus,
      command: [
        `--config.file=${prometheusConfig}`,
        "--storage.tsdb.path=/prometheus",
        `--storage.tsdb.retention.time=${retentionDays}d`,
        `--storage.tsdb.retention.size=${megabytes}MB`,
      ],
      upload: [...prometheusFiles(props, this.dcgmExporter?.nameInput)],
      ports: [this.#publish(host, "prometheus", ports.prometheus)],
      volumes: [{ volumeName: volume.name, containerPath: "/prometheus" }, ...keys.mounts],
      test: readable(
        keys.paths,
        wgetTest(`http://127.0.0.1:${monitoringPorts.prometheus}/-/ready`),
      ),
    });
  }

  #grafana(props: MonitoringProps, image: string) {
    const { host, ports } = props;
    const url = `http://${this.prometheus.nameInput}:${monitoringPorts.prometheus}`;
    return this.#container(host, "grafana", image, {
      user: users.grafana,
      upload: [...grafanaFiles(props, url)],
      ports: [this.#publish(host, "grafana", ports.grafana)],
      test: wgetTest(`http://127.0.0.1:${monitoringPorts.grafana}/api/health`),
    });
  }

  #dcgmExporter({ host, images }: MonitoringProps) {
    const request = gpuRequest(host.usedGpus);
    return this.#container(host, "dcgm-exporter", images.dcgm, {
      // the label `Hostname` of the metrics, which otherwise changes with the container
      hostname: TerraformStack.of(this).node.id,
      command: ["--collectors", dcgmCountersFile],
      labels: labels(this, `${nameInStack(this)}-dcgm-exporter`, { [gpuMetricsLabel]: "true" }),
      gpus: request.gpus,
      runtime: request.runtime,
      env: environmentList(request.env),
      upload: [...dcgmFiles],
      // the image has a shell and no HTTP client
      test: ["CMD", "bash", "-c", `: < /dev/tcp/127.0.0.1/${dcgmExporterPort}`],
    });
  }

  #publish(host: GpuHost, name: keyof typeof monitoringPorts, port: number) {
    const service = `${nameInStack(this)}-${name}`;
    host.require({ ports: [{ service, prop: `ports.${name}`, port, expose: "loopback" }] }, this);
    return { internal: monitoringPorts[name], external: port, ip: bindAddress("loopback") };
  }

  #container(
    host: GpuHost,
    id: keyof typeof memoryMiB & ImageKind,
    image: string,
    config: Pick<ServerContainerProps, "test"> & Partial<ServerContainerProps>,
  ): Container {
    const scope = new Construct(this, id);
    const service = nameInStack(scope);
    const pulled = host.image(id, { source: "pull", name: image });
    host.require({ memory: { service, miB: memoryMiB[id] } });
    return serverContainer(scope, host, {
      ...limitsOf("monitoring", memoryMiB[id], host.cores),
      image: pulled.imageId,
      labels: labels(scope, service),
      // the provider uploads files to the root file system; a changed file replaces the container
      readOnly: false,
      startSeconds,
      graceSeconds,
      ...config,
    }).container;
  }
}
