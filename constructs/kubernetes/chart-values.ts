import { z } from "zod";
import { shippedModels } from "../../contract/deployed-model-config.ts";
import { embed } from "./chart-embed-values.ts";
import { networkPolicy } from "./chart-network-values.ts";
import { triton } from "./chart-triton-values.ts";
import {
  choice,
  flag,
  integer,
  kubernetesObject,
  matching,
  quantities,
  quantity,
  stringMap,
  text,
} from "./chart-value-fields.ts";

const model = z
  .strictObject({
    name: matching(
      "[\\w][\\w.-]*",
      `Folder of the model in the repository, and its name in requests; empty selects \`${shippedModels.onnxruntime}\`, or \`${shippedModels.tensorrt}\` for Triton with TensorRT.`,
    ),
    weights: choice(
      ["image", "pvc", "init"],
      "image",
      "Source of the weights. `image`: in the images. `pvc`: on a volume. `init`: downloaded when a pod starts.",
    ),
    sha256: matching(
      "[0-9a-f]{64}",
      "SHA-256 of `model.onnx`: required with `init`, verified with `pvc` if set.",
    ),
    pvc: z
      .strictObject({
        claimName: text("", "PersistentVolumeClaim with `model.onnx`."),
        subPath: text("", "Folder of `model.onnx` on the volume."),
      })
      .prefault({}),
    init: z
      .strictObject({
        // validated in a template, because Helm prints values that the schema rejects, including secrets in a URL
        url: text(
          "",
          "URL of `model.onnx`: `http://…` or `https://…`, without user, password or query.",
        ),
        existingSecret: text(
          "",
          "Secret with a signed URL, instead of `url`. A port other than 443 requires `networkPolicy.egress`.",
        ),
        existingSecretKey: z
          .string()
          .min(1)
          .default("url")
          .describe("Key of the URL in the Secret."),
        sizeLimit: quantity
          .default("1Gi")
          .describe(
            "Disk space on the node for the download and the optimised model. A larger file is rejected.",
          ),
        timeoutSeconds: integer(1, 14_400)
          .default(900)
          .describe("Maximum download time in seconds, after which the download is retried."),
      })
      .prefault({}),
  })
  .prefault({})
  .describe("Model and its weights.");

/**
 * Values of the Helm chart `helm/clipstack`. The stacks validate their values with this schema; `npm run render` renders the
 * chart's `values.yaml` and `values.schema.json` and the table of its README from it.
 */
export const chartValues = z.strictObject({
  nameOverride: text("", "Value of `app.kubernetes.io/name`, instead of `clipstack`."),
  fullnameOverride: text("", "Prefix of the object names, instead of the release name."),
  commonLabels: stringMap("Labels of every object."),
  imagePullSecrets: z
    .array(z.strictObject({ name: z.string().min(1) }))
    .default([])
    .describe("Image pull secrets."),
  serviceAccount: z
    .strictObject({
      create: flag(
        true,
        "Whether the chart creates a service account per component, without a token.",
      ),
      name: text("", "Existing service account for all components."),
      annotations: stringMap("Annotations of the created service accounts."),
    })
    .prefault({}),
  model,
  embed,
  triton,
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
      labels: stringMap("Labels by which Prometheus selects the object."),
    })
    .prefault({}),
  prometheusRule: z
    .strictObject({
      enabled: flag(
        false,
        "Whether the chart creates a PrometheusRule that records Triton's queue time; requires the Prometheus operator.",
      ),
      labels: stringMap("Labels by which Prometheus selects the object."),
    })
    .prefault({}),
  global: kubernetesObject.optional().describe("Set by Helm for subcharts; no template reads it."),
});

/** Values before defaults are applied. */
export type ChartValues = z.input<typeof chartValues>;
