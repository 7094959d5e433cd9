import { z } from "zod";
import { monitoringPorts } from "../../contract/ports.ts";
import { downloadUrl, hostFile, image, integer, port } from "./setting-types.ts";

const amount = z.number().positive("must be more than 0").optional();

/** Monitoring of the services of a GPU host. */
export const monitoring = z
  .strictObject({
    enabled: z
      .boolean()
      .default(false)
      .describe("Deploys Prometheus, Grafana and, with `accelerator: gpu`, DCGM exporter."),
    grafana: z
      .boolean()
      .default(true)
      .describe("`false` omits Grafana, for example where another Grafana has the dashboards."),
    retentionDays: integer(1, 3_650)
      .default(15)
      .describe("Days for which Prometheus keeps the metrics, about 64 MiB of disk space each."),
    ports: z
      .strictObject({
        prometheus: port.default(monitoringPorts.prometheus).describe("Prometheus."),
        grafana: port.default(monitoringPorts.grafana).describe("Grafana."),
      })
      .prefault({})
      .describe("Ports of the host, on the loopback interface only."),
    keyFile: hostFile
      .optional()
      .describe(
        "With `embed.keys`: file of the host with only the key of Prometheus, readable for user 65534; its folder is mounted.",
      ),
    alertmanagers: z
      .array(downloadUrl.refine((url) => URL.canParse(url), "must be a valid URL"))
      .default([])
      .describe(
        "URLs of Alertmanagers that receive the firing alerts, as the container of Prometheus reaches them: `http://alerts.internal:9093`.",
      ),
    latencySloMilliseconds: integer(1, 600_000)
      .optional()
      .describe(
        "SLO of the alerts: 99 % of the requests take at most this time, rounded up to a bucket of the metrics. Default: `review.p99GoalMilliseconds`, or 250.",
      ),
    predictedImagesPerSecond: amount.describe(
      "Images per second at saturation, from `clipstack capacity`. Default: no alert compares the throughput with it.",
    ),
    budgetUsdPer1000Images: amount.describe(
      "Cost of 1,000 images in US dollars above which an alert fires. Default: no alert.",
    ),
    images: z
      .strictObject({
        prometheus: image.default("prom/prometheus:v3.13.3").describe("Image of Prometheus."),
        grafana: image.default("grafana/grafana:12.4.5").describe("Image of Grafana."),
        dcgm: image
          // newer releases rename the label `Hostname`
          .default("nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless")
          .describe("Image of DCGM exporter."),
      })
      .prefault({})
      .describe("Images, pulled by the host: `name:1.2` or `name@sha256:…`."),
  })
  .prefault({})
  .describe("Prometheus, Grafana and DCGM exporter beside the services (docs/monitoring.md).");
