import { z } from "zod";
import { maxGpus } from "../../contract/gpus.ts";
import { graceSeconds, preStopSeconds } from "../../contract/pods.ts";
import { tritonStartSeconds } from "../models/triton-times.ts";
import {
  allowPlaintext,
  budget,
  image,
  imagePull,
  replicas,
  resources,
  scaling,
  scheduling,
  service,
  spareGpu,
} from "./chart-pod-values.ts";
import {
  choice,
  flag,
  integer,
  matching,
  quantity,
  reference,
  stringMap,
  text,
} from "./chart-value-fields.ts";

/** Maximum time of TensorRT to build the engine of one execution instance, in seconds. */
const buildSeconds = tritonStartSeconds(true, 1) - tritonStartSeconds(true, 0);

/** Five fields of cron. */
const cron = z.string().regex(/^[\d*/,-]+( [\dA-Za-z*/,-]+){4}$/);

export const triton = z
  .strictObject({
    enabled: flag(false, "Whether Triton is deployed."),
    server: choice(
      ["tritonserver", "emulator"],
      "tritonserver",
      "`tritonserver`: NVIDIA's server. `emulator`: Triton emulator in the embed image, on the CPU.",
    ),
    backend: choice(["onnxruntime", "tensorrt"], "onnxruntime", "Backend of the models."),
    modelKind: choice(
      ["fp32", "u8"],
      "fp32",
      "Kind of the image towers: `fp32` receives normalised images, `u8` 8-bit pixels and normalises them itself, from files of its own. `fp32` with `tensorrt`.",
    ),
    image: image(
      "nvcr.io/nvidia/tritonserver",
      "26.07-py3",
      "Triton image; ignored with the server `emulator`.",
    ),
    gpus: integer(0, maxGpus)
      .default(1)
      .describe(
        "Number of GPUs per pod, each with one execution instance of every model; 0 is the CPU.",
      ),
    spareGpu,
    modelConfig: z
      .strictObject({
        texts: stringMap(
          "Complete model configurations (`config.pbtxt`) by name in Triton, such as `openclip_vit_b32_trt`, in place of the chart's, which has those of the catalogue.",
        ),
      })
      .prefault({})
      .describe("Triton's model configurations. A change restarts the pods."),
    modelControl: choice(
      ["restricted", "open"],
      "restricted",
      "`restricted`: no client can use Triton's model control API. `open`: every client may load and unload models. The APIs of shared memory, traces and logging are always closed.",
    ),
    engineCache: z
      .strictObject({
        enabled: flag(false, "Whether TensorRT engines are cached on a volume."),
        existingClaim: reference("Existing PersistentVolumeClaim; empty creates one."),
        storageClass: reference("StorageClass of the claim; empty selects the cluster's default."),
        accessMode: choice(
          ["ReadWriteOnce", "ReadWriteMany"],
          "ReadWriteOnce",
          "`ReadWriteOnce`: all pods run on one node. `ReadWriteMany`: pods may run on several nodes.",
        ),
        size: quantity.default("2Gi").describe("Size of the claim."),
      })
      .prefault({})
      .describe("TensorRT engine cache: without it every pod builds engines for minutes."),
    extraArgs: z
      .array(z.string().regex(/^--[a-z][\w-]*(=.*)?$/))
      .default([])
      .describe(
        "Additional arguments of Triton, `--name=value`, such as `--log-verbose=1`. The chart's own cannot be replaced.",
      ),
    sharedMemory: quantity
      .default("1Gi")
      .describe("Size of `/dev/shm`, which counts towards the memory limit."),
    resources: resources({ cpu: "2", memory: "4Gi" }, { cpu: "4", memory: "8Gi" }),
    allowUnauthenticated: flag(
      false,
      "Whether Triton, which has no authentication, may be reachable from outside the cluster.",
    ),
    allowPlaintext: allowPlaintext(
      "Whether Triton, which has no TLS, may be reachable from outside the cluster.",
    ),
    service: service(undefined).describe(
      "Service of the Triton servers. A second, headless Service is for gRPC.",
    ),
    replicas: replicas(1),
    autoscaling: z
      .strictObject({
        ...scaling(false, 1, 4),
        metric: choice(
          ["queue-time", "cpu"],
          "queue-time",
          "`queue-time`: time of a request in Triton's queue. `cpu`: for Triton servers without a GPU.",
        ),
        source: choice(
          ["keda", "prometheus-adapter"],
          "keda",
          "Source of the queue time: KEDA, or the Prometheus adapter with the rule in the chart's README.",
        ),
        targetQueueMilliseconds: integer(1, 60_000)
          .default(50)
          .describe("Target average queue time of a request, in milliseconds."),
        targetGpuPercent: integer(1, 100)
          .optional()
          .describe(
            "With `keda`, as an additional metric: target use of the GPUs, from DCGM exporter with the labels `namespace` and `pod`.",
          ),
        scaleToZero: z
          .strictObject({
            enabled: flag(
              false,
              "Whether the pods are removed when the gateway has no requests. The first ones are then answered with 503 until a pod is ready.",
            ),
            afterSeconds: integer(60, 86_400)
              .default(900)
              .describe("Time without requests, in seconds."),
          })
          .prefault({})
          .describe("With `keda` and `embed.backend: triton`: no pods without requests."),
        schedules: z
          .array(
            z.strictObject({
              timezone: z.string().regex(/^[A-Za-z]+([/_+-][A-Za-z0-9_+-]+)*$/),
              start: cron,
              end: cron,
              replicas: integer(1, 1_000),
            }),
          )
          .default([])
          .describe(
            "With `keda`: minimum numbers of pods by time, such as `{ timezone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 18 * * 1-5, replicas: 3 }`.",
          ),
        fallbackReplicas: integer(0, 1_000)
          .optional()
          .describe(
            "Minimum number of pods once KEDA has failed to read the queue time for one minute; by default `minReplicas`. Additional pods are kept. 0 disables the fallback, which requires KEDA 2.18.",
          ),
        prometheus: z
          .strictObject({
            url: matching("https?://\\S+", "Address of Prometheus, with `keda`."),
            query: text(
              "",
              "PromQL query of the queue time in milliseconds, one value; empty selects the mean over the pods.",
            ),
          })
          .prefault({}),
      })
      .prefault({})
      .describe("Autoscaling on queue time or CPU."),
    budget,
    startSeconds: integer(10, 14_400)
      .optional()
      .describe(
        `Maximum time in seconds until a pod is ready: ${tritonStartSeconds(false, 1)}, or with TensorRT ${tritonStartSeconds(true, 0)} and ${buildSeconds} per GPU and tower to build an engine.`,
      ),
    imagePullSeconds: imagePull("triton"),
    graceSeconds: integer(1, 3_600)
      .default(graceSeconds)
      .describe("Maximum time to drain requests in flight, in seconds: `--exit-timeout-secs`."),
    preStopSeconds: integer(0, 600)
      .default(preStopSeconds)
      .describe("Time before a stop in which the endpoints are removed, in seconds."),
    ...scheduling,
  })
  .prefault({})
  .describe("Triton: the Open Inference Protocol over HTTP and gRPC.");
