import { z } from "zod";
import { gpuResource } from "../../contract/gpus.ts";
import { secondsBuckets } from "../../contract/metrics/embed-metrics.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { modelEntry, modelList } from "../../contract/server/model-list.ts";
import { otlpEndpoint } from "../../contract/server/server-env.ts";
import { tracing } from "../../contract/server/tracing.ts";
import { bulk } from "./chart-bulk-values.ts";
import { embed } from "./chart-embed-values.ts";
import { grpcRoute, httpRoute, ingress, networkPolicy } from "./chart-network-values.ts";
import { triton } from "./chart-triton-values.ts";
import {
  annotations,
  choice,
  flag,
  integer,
  kubernetesObject,
  labels,
  labelValue,
  matching,
  objectName,
  quantities,
  quantity,
  reference,
  secretKey,
  text,
} from "./chart-value-fields.ts";

/** Spec of a model outside the catalogue: only the fields that templates read, because the server validates all of them at start. */
const ownModel = z.looseObject({
  // part of the names of containers, which have at most 63 characters
  name: z
    .string()
    .max(40)
    .regex(/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/),
  towers: z.looseObject({
    image: kubernetesObject.optional(),
    text: kubernetesObject.optional(),
  }),
  embedding: z.looseObject({ width: integer(1, 65_536) }),
});

const models = z
  .array(z.union([modelEntry, ownModel]))
  .min(1)
  .default([...modelList(defaultModels)])
  .describe(
    "Served models; the first is the default of requests. A name of the catalogue (docs/models.md) serves all towers of the model, `{ name, modalities }` some of them. A model outside the catalogue is its spec, with the fields of `environments/models/<name>.yaml` and `name`; with Triton, each of its towers requires `triton.modelConfig.texts`.",
  );

/** Folder on a volume: relative, without the parts `.` and `..`. */
const subPath = z
  .string()
  .regex(/^((([^/.]|\.[^/.]|\.\.[^/])[^/]*\/)*([^/.]|\.[^/.]|\.\.[^/])[^/]*\/?)?$/);

const sha256 = z.string().regex(/^([0-9a-f]{64})?$/);

// URLs are validated in a template, like `init.url`
const towerFiles = z.strictObject({
  url: z.string().optional(),
  sha256: sha256.optional(),
  subPath: subPath.optional(),
  tokenizer: z.strictObject({ url: z.string().optional(), sha256: sha256.optional() }).optional(),
});

const model = z
  .strictObject({
    weights: choice(
      ["image", "pvc", "init"],
      "image",
      "Source of the weights. `image`: in the images. `pvc`: on a volume. `init`: downloaded when a pod starts.",
    ),
    sha256: matching(
      "[0-9a-f]{64}",
      "SHA-256 of `model.onnx`: required with `init`, verified if set with `pvc`, and with `image` by the Triton pods (of `model.trt-fp16.onnx` for Triton servers with TensorRT 11). For a single tower.",
    ),
    pvc: z
      .strictObject({
        claimName: reference("PersistentVolumeClaim with the weights of all towers."),
        subPath: subPath
          .default("")
          .describe("Folder of `model.onnx` on the volume. For a single tower."),
      })
      .prefault({}),
    init: z
      .strictObject({
        // validated in a template, because Helm prints values that the schema rejects, including secrets in a URL
        url: text(
          "",
          "URL of `model.onnx`, or of `model.trt-fp16.onnx` for Triton servers with TensorRT 11: `http://…` or `https://…`, without user, password or query. For a single tower.",
        ),
        existingSecret: reference(
          "Secret with a signed URL, instead of `url`, or with one per tower under the keys of `towers`. A port other than 443 requires `networkPolicy.egress`.",
        ),
        existingSecretKey: secretKey
          .default("url")
          .describe("Key of the URL in the Secret. For a single tower."),
        sizeLimit: quantity
          .default("1Gi")
          .describe(
            "Disk space on the node for the download of a tower and the optimised model. A larger file is rejected.",
          ),
        timeoutSeconds: integer(1, 14_400)
          .default(900)
          .describe("Maximum download time in seconds, after which the download is retried."),
      })
      .prefault({}),
    towers: z
      .record(z.string().regex(/^[a-z][a-z0-9_]*$/), towerFiles)
      .default({})
      .describe(
        "Files of each tower, if there are several, by its folder in a model repository, such as `openclip_vit_b32_text`: `url` and `sha256` of `model.onnx`; its folder `subPath` on the volume, by default `<tower>/1`; `tokenizer.url` and `tokenizer.sha256` of a tokenizer file, with `init`.",
      ),
  })
  .prefault({})
  .describe("Weights of the models.");

/** Number that is 0 by default. */
const amount = (description: string) => z.number().min(0).default(0).describe(description);

/**
 * Values of the Helm chart `helm/clipstack`. The stacks validate their values with this schema; `npm run render` renders the
 * chart's `values.yaml` and `values.schema.json` and the table of its README from it.
 */
export const chartValues = z.strictObject({
  nameOverride: labelValue
    .default("")
    .describe("Value of `app.kubernetes.io/name`, instead of `clipstack`."),
  fullnameOverride: text("", "Prefix of the object names, instead of the release name."),
  commonLabels: labels("Labels of every object."),
  imagePullSecrets: z
    .array(z.strictObject({ name: objectName }))
    .default([])
    .describe("Image pull secrets."),
  serviceAccount: z
    .strictObject({
      create: flag(
        true,
        "Whether the chart creates a service account per component, without a token.",
      ),
      name: reference("Existing service account for all components."),
      annotations: annotations("Annotations of the created service accounts."),
    })
    .prefault({}),
  fixedUser: flag(
    true,
    "Whether pods run as the user and group 1000 of the images. `false`, for OpenShift, leaves `runAsUser`, `runAsGroup` and `fsGroup` to its security context constraints.",
  ),
  models,
  model,
  embed,
  triton,
  bulk,
  gpuResourceName: z
    .string()
    .regex(/^nvidia\.com\/[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/)
    .default(gpuResource)
    .describe(
      "Resource that pods with a GPU request: `nvidia.com/gpu`, a MIG device such as `nvidia.com/mig-1g.10gb`, or time-sliced GPUs, `nvidia.com/gpu.shared`.",
    ),
  quota: z
    .strictObject({
      enabled: flag(false, "Whether the chart creates a ResourceQuota."),
      hard: quantities
        .default({})
        .describe("Limit per resource, such as `pods` or `requests.nvidia.com/gpu`."),
    })
    .prefault({})
    .describe("ResourceQuota of the namespace."),
  limitRange: z
    .strictObject({
      enabled: flag(false, "Whether the chart creates a LimitRange."),
      defaultRequest: quantities
        .default({ cpu: "100m", memory: "128Mi" })
        .describe("Default requests of a container."),
      default: quantities
        .default({ cpu: "500m", memory: "512Mi" })
        .describe("Default limits of a container."),
      max: quantities.default({}).describe("Maximum limits of a container."),
    })
    .prefault({})
    .describe("LimitRange of the namespace: defaults and maximum of a container."),
  ingress,
  httpRoute,
  grpcRoute,
  networkPolicy,
  serviceMonitor: z
    .strictObject({
      enabled: flag(
        false,
        "Whether the chart creates a ServiceMonitor, which requires the Prometheus operator.",
      ),
      interval: z
        .string()
        .regex(/^\d+(ms|s|m)$/)
        .default("15s")
        .describe(
          "Scrape interval, also without a ServiceMonitor: the queue time is averaged over four intervals, at least one minute.",
        ),
      labels: labels("Labels by which Prometheus selects the object."),
    })
    .prefault({}),
  tracing: z
    .strictObject({
      endpoint: matching(
        otlpEndpoint.source.slice(1, -1),
        "OpenTelemetry collector to which the embed server and Triton export traces, OTLP over HTTP: `http://collector.monitoring:4318`. Empty: no traces.",
      ),
      ratio: tracing.shape.ratio,
    })
    .prefault({}),
  prometheusRule: z
    .strictObject({
      enabled: flag(
        false,
        "Whether the chart creates a PrometheusRule with alerts, which also records Triton's queue time; requires the Prometheus operator.",
      ),
      labels: labels("Labels by which Prometheus selects the object."),
      latencySloSeconds: z
        .union(secondsBuckets.map((bound) => z.literal(bound)))
        .default(0.25)
        .describe("SLO of the alerts: 99 % of the requests take at most this time in seconds."),
      gpuSelector: z
        .string()
        .regex(/^\w+(=|!=|=~|!~)"[\w.*+?|()[\]^$/-]*"(,\w+(=|!=|=~|!~)"[\w.*+?|()[\]^$/-]*")*$/)
        .default('gpu!=""')
        .describe(
          "Label matchers of DCGM exporter's series of the GPUs; by default every GPU of the cluster.",
        ),
      usdPerHour: amount("Price of the release in US dollars per hour; 0 if not known."),
      predictedImagesPerSecond: amount(
        "Images per second at saturation, from `clipstack capacity`; 0 if not known.",
      ),
      budgetUsdPer1000Images: amount(
        "Cost of 1,000 images in US dollars above which an alert fires; 0: no alert.",
      ),
    })
    .prefault({}),
  monitoring: z
    .strictObject({
      dashboards: z
        .strictObject({
          enabled: flag(false, "Whether the chart creates a ConfigMap with each dashboard."),
          labels: z
            .record(z.string(), z.string())
            .default({ grafana_dashboard: "1" })
            .describe("Labels by which Grafana's sidecar selects the dashboards."),
        })
        .prefault({}),
    })
    .prefault({})
    .describe("Dashboards for Grafana."),
  global: kubernetesObject.optional().describe("Set by Helm for subcharts; no template reads it."),
});

/** Values before defaults are applied. */
export type ChartValues = z.input<typeof chartValues>;
