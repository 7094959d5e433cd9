import { z } from "zod";
import { servedKinds } from "../environment.ts";
import { defaultModels } from "../models/index.ts";
import { embedPort } from "../ports.ts";
import { maxImagePixels } from "../preprocess-parameters.ts";
import { apiKey } from "./client-keys.ts";
import { servedModels } from "./model-list.ts";

/**
 * Environment variables of the embed server. Its documentation, the settings `embed.server` of environments and the chart value
 * `embed.server` are derived from them (`server-settings.ts`).
 */

const integer = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

/** Values separated by commas. */
const list = z.string().transform((value) =>
  value
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== ""),
);

const webOriginRule = "must be host[:port], https://host[:port] or http://host[:port]";

/** Origin of a URL, `https://host[:port]`; https if the value has no scheme. */
const webOrigin = z
  .string()
  .regex(/^(https?:\/\/)?([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?$/i, webOriginRule)
  .transform((value, context) => {
    const url = value.includes("://") ? value : `https://${value}`;
    if (URL.canParse(url)) return new URL(url).origin;
    context.addIssue({ code: "custom", message: webOriginRule });
    return z.NEVER;
  });

/** `host:port`, with an IPv6 address in brackets. */
export const grpcTarget = /^([^\s:/[\]]+|\[[0-9a-f:.]+\]):\d{1,5}$/i;

/** Host, without brackets, and port of a {@link grpcTarget}. */
export function splitTarget(target: string): { readonly host: string; readonly port: number } {
  const colon = target.lastIndexOf(":");
  const host = target.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  return { host, port: Number(target.slice(colon + 1)) };
}

/** Address of an OpenTelemetry collector. */
export const otlpEndpoint = /^https?:\/\/([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?(\/[^\s?#]*)?$/i;
export const otlpEndpointRule = "must be http://host:port or https://host:port";

export const logLevels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** Samplers of OpenTelemetry, as values of OTEL_TRACES_SAMPLER. */
export const traceSamplers = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio",
] as const;
export type TraceSampler = (typeof traceSamplers)[number];

/** Mount path of the model repository in containers. */
export const modelRepositoryMount = "/models";

/** Precisions of a model file. All but `fp32` are files prepared offline from it: `clipstack model optimise | convert`. */
export const modelPrecisions = ["fp32", "fp32-optimised", "fp16", "int8"] as const;
export type ModelPrecision = (typeof modelPrecisions)[number];

export const serverEnv = z
  .object({
    HOST: z
      .string()
      .min(1)
      .default("0.0.0.0")
      .describe(
        "Address to listen on. A container listens on all addresses; the host decides which ports are published.",
      ),
    PORT: integer(1, 65_535).default(embedPort).describe("Port to listen on."),
    MODELS: servedModels
      .default(defaultModels)
      .describe(
        "Served models, the first is the default: a list as JSON, as `models` of an environment; a model outside the catalogue is its whole spec. Or the name of one model. Without MODELS and MODELS_FILE, `models.json` in MODEL_REPOSITORY, if there is one.",
      ),
    MODELS_FILE: z
      .string()
      .min(1)
      .optional()
      .describe("File with the list of MODELS, instead of that variable."),
    MODEL_REPOSITORY: z
      .string()
      .min(1)
      .default(modelRepositoryMount)
      .describe(
        "Folder with the model files of the backend `onnxruntime`: `<model>/1/model.onnx`, `-` in the model's name replaced by `_`.",
      ),
    LOG_LEVEL: z
      .enum(logLevels)
      .default("info")
      .describe("Least severe level of the log lines that are written."),
    BACKEND: z
      .enum(["onnxruntime", "triton"])
      .default("onnxruntime")
      .describe(
        "`onnxruntime`: ONNX Runtime in this process. `triton`: gateway to Triton over gRPC.",
      ),
    MODEL_PRECISION: z
      .enum(modelPrecisions)
      .default("fp32")
      .describe(
        "Precision of the loaded files. `fp32` loads `model.onnx`, any other the file of this precision in the same folder, such as `model.int8.onnx`; the start fails if it is missing or derived from another model.",
      ),
    PREPROCESSING: z
      .enum(["exact", "fast"])
      .default("exact")
      .describe(
        "Resize of images. `exact`: the same pixels as Pillow gives OpenCLIP. `fast`: large JPEG files are decoded at reduced size first; the cosine to `exact` is at least 0.9996.",
      ),
    PREPROCESS_THREADS: integer(0, 1_024)
      .default(0)
      .describe("Threads that decode images; 0 is one per core."),
    DECODE_TIMEOUT_MS: integer(100, 600_000)
      .default(30_000)
      .describe(
        "Maximum time to decode one image, excluding time in queues, in ms; after it the response is 422. The decoding thread is terminated and replaced.",
      ),
    TRITON_GRPC_URLS: list
      .pipe(z.array(z.string().regex(grpcTarget, "must be host:port[,host:port…]")))
      .default([])
      .describe(
        "Triton servers of the backend `triton`: `host:port[,host:port…]`, gRPC; an IPv6 address in brackets.",
      ),
    TRITON_MODEL_KIND: z
      .enum(servedKinds)
      .default("fp32")
      .describe(
        "Model kind of the models requested from Triton by the backend `triton`: normalised FP32 images, the same with TensorRT, uint8 pixels, or the image files themselves; `dali` and `dali-trt` forward JPEG files to DALI, and others as normalised images.",
      ),
    TRITON_TIMEOUT_MS: integer(1, 600_000)
      .default(30_000)
      .describe(
        "Maximum time of one inference request in ms, including the gateway's queue and retries on other Triton servers.",
      ),
    TRITON_TLS_CA_FILE: z
      .string()
      .min(1)
      .optional()
      .describe(
        "PEM file with the certificate authorities that sign the upstreams' certificates. Enables TLS for gRPC.",
      ),
    TRITON_TLS_CERT_FILE: z
      .string()
      .min(1)
      .optional()
      .describe(
        "PEM file with the gateway's certificate chain, for Triton servers that verify their clients; requires TRITON_TLS_KEY_FILE.",
      ),
    TRITON_TLS_KEY_FILE: z
      .string()
      .min(1)
      .optional()
      .describe("PEM file with the private key of TRITON_TLS_CERT_FILE."),
    TRITON_TLS_SERVER_NAME: z
      .string()
      .regex(/^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/, "must be a host name")
      .optional()
      .describe(
        "Required name in the Triton servers' certificates, instead of the host in TRITON_GRPC_URLS.",
      ),
    TRITON_METADATA_FILE: z
      .string()
      .min(1)
      .optional()
      .describe(
        "File with gRPC metadata of every call, one `name: value` per line, such as `authorization: Bearer …`.",
      ),
    EXECUTION_PROVIDER: z
      .enum(["cpu", "cuda"])
      .default("cpu")
      .describe(
        "Execution provider of the backend `onnxruntime`. With `cuda` the start fails if the runtime has no CUDA provider, because a server with a GPU must not silently run on the CPU.",
      ),
    INTRA_OP_THREADS: integer(0, 1_024)
      .default(0)
      .describe("Threads of ONNX Runtime, shared by all instances; 0 is one per core."),
    MODEL_INSTANCES: integer(1, 64)
      .default(1)
      .describe(
        "Sessions of the backend `onnxruntime` that run batches concurrently, each with its share of the threads and its own copy of the weights.",
      ),
    MAX_BATCH_SIZE: integer(1, 4_096)
      .optional()
      .describe(
        "Maximum batch size of all models, in addition to `batching.maximum` of each model's spec.",
      ),
    MAX_QUEUE_DELAY_MICROSECONDS: integer(0, 10_000_000)
      .default(100_000)
      .describe(
        "Maximum delay of a decoded image to share a batch with images that are still being decoded. It is limited to half of the expected run time of its batch.",
      ),
    MAX_QUEUE_SIZE: integer(1, 1_000_000)
      .default(512)
      .describe("Maximum queued images; further requests are rejected with 429."),
    MAX_QUEUE_BYTES: integer(1_024, 1_099_511_627_776)
      .default(256 * 1024 * 1024)
      .describe(
        "Maximum bytes of queued request bodies and unread responses; further requests are rejected with 429. One client address may have three quarters of them.",
      ),
    MAX_CONNECTIONS: integer(1, 1_000_000)
      .default(4_096)
      .describe(
        "Maximum open connections; a further one replaces the longest idle one, or is closed immediately if all have a request.",
      ),
    KEEP_ALIVE_TIMEOUT_MS: integer(1_000, 3_600_000)
      .default(75_000)
      .describe(
        "Time after which the server closes an idle connection, in ms. It must exceed the idle time-out of a load balancer in front of it, 60 s by default on AWS and in nginx, because a request on a connection that closes fails with 502.",
      ),
    MAX_BODY_BYTES: integer(1_024, 2_147_483_647)
      .default(64 * 1024 * 1024)
      .describe("Maximum size of a request body, in bytes."),
    MAX_IMAGE_PIXELS: integer(1, 1_000_000_000)
      .default(maxImagePixels)
      .describe(
        "Maximum size of a decoded image in pixels, because a small file can decode to a very large image.",
      ),
    MAX_PIXELS_IN_FLIGHT: integer(0, 1_000_000_000_000)
      .default(0)
      .describe(
        "Maximum decoded pixels in memory over all images, at least MAX_IMAGE_PIXELS; further images are queued. 0 is MAX_IMAGE_PIXELS per decoding thread. A baseline JPEG counts 0 because it is decoded row by row.",
      ),
    IMAGE_URL_HOSTS: list
      .pipe(z.array(webOrigin))
      .default([])
      .describe(
        "Hosts from which `POST /v1/embeddings` downloads images that a request names by URL: `host[:port]` for https, or an address such as `http://10.0.0.7:9000`. A host name must resolve to public addresses only.",
      ),
    IMAGE_URL_MAX_BYTES: integer(1_024, 1_073_741_824)
      .default(16 * 1024 * 1024)
      .describe("Maximum size of a downloaded image, in bytes."),
    IMAGE_URL_TIMEOUT_MS: integer(1, 600_000)
      .default(5_000)
      .describe("Maximum time to download an image, with all redirects, in ms."),
    IMAGE_URL_MAX_REDIRECTS: integer(0, 20)
      .default(3)
      .describe("Maximum redirects of a download, each to a host of IMAGE_URL_HOSTS."),
    API_KEY: apiKey
      .optional()
      .describe(
        "Bearer token required from clients, except for health checks. Without it and API_KEYS_FILE the server listens only on the loopback interface, unless ALLOW_ANONYMOUS is set.",
      ),
    API_KEYS_FILE: z
      .string()
      .min(1)
      .optional()
      .describe(
        'JSON file with the keys of several clients, instead of API_KEY: `[{ "name": "team-a", "key": "…", "requestsPerSecond": 50 }]`. A changed file is read within seconds.',
      ),
    ALLOW_ANONYMOUS: z
      .enum(["true", "false"])
      .default("false")
      .describe(
        "`true`: no authentication. For a container whose port is published only on the host's loopback interface.",
      ),
    TLS_CERT_FILE: z
      .string()
      .min(1)
      .optional()
      .describe(
        "PEM file with the certificate chain; requires TLS_KEY_FILE. The server then serves only HTTPS. Changed files are read within seconds.",
      ),
    TLS_KEY_FILE: z
      .string()
      .min(1)
      .optional()
      .describe("PEM file with the private key of TLS_CERT_FILE."),
    OTEL_EXPORTER_OTLP_ENDPOINT: z
      .string()
      .regex(otlpEndpoint, otlpEndpointRule)
      .optional()
      .describe(
        "Address of an OpenTelemetry collector, `http://host:port` or `https://host:port`. Enables tracing. The exporter reads the other variables of OpenTelemetry's OTLP exporters itself, such as OTEL_EXPORTER_OTLP_HEADERS.",
      ),
    OTEL_EXPORTER_OTLP_PROTOCOL: z
      .enum(["http/protobuf", "grpc"])
      .default("http/protobuf")
      .describe(
        "Protocol of the collector's port: usually 4318 for `http/protobuf`, 4317 for `grpc`.",
      ),
    OTEL_SERVICE_NAME: z
      .string()
      .min(1)
      .default("clipstack-embed")
      .describe("Name of this service in traces."),
    OTEL_RESOURCE_ATTRIBUTES: z
      .string()
      .regex(/^[^=,]+=[^=,]*(,[^=,]+=[^=,]*)*$/, "must be name=value[,name=value…]")
      .optional()
      .describe("Attributes of this service in traces, `name=value[,name=value…]`."),
    OTEL_TRACES_SAMPLER: z
      .enum(traceSamplers)
      .default("parentbased_always_on")
      .describe(
        "Selects the traces that are exported, besides those of requests with a status of 500 or above.",
      ),
    OTEL_TRACES_SAMPLER_ARG: z.coerce
      .number()
      .min(0)
      .max(1)
      .default(1)
      .describe("Share of the traces that the samplers with a ratio select."),
    SHUTDOWN_GRACE_SECONDS: integer(1, 3_600)
      .default(30)
      .describe("Time in which accepted requests complete after a stop signal, in seconds."),
  })
  .refine((env) => env.BACKEND !== "triton" || env.TRITON_GRPC_URLS.length > 0, {
    path: ["TRITON_GRPC_URLS"],
    message: "is required when BACKEND is triton",
    // evaluated even if another setting is invalid, so that all errors are reported
    when: ({ issues }) =>
      issues.every(({ path }) => path?.[0] !== undefined && path[0] !== "TRITON_GRPC_URLS"),
  })
  .refine(({ MAX_PIXELS_IN_FLIGHT: all, MAX_IMAGE_PIXELS: one }) => all === 0 || all >= one, {
    path: ["MAX_PIXELS_IN_FLIGHT"],
    message: "must be 0 or at least MAX_IMAGE_PIXELS",
  });
export type ServerEnv = z.infer<typeof serverEnv>;

/** Environment variables of the PyTorch baseline, `bench/baselines/pytorch/`. */
export const baselineEnv = z.object({
  PORT: integer(1, 65_535),
  /** Device that computes the model. */
  DEVICE: z.enum(["cpu", "cuda"]),
  /** Name of the model in requests and responses. */
  MODEL_NAME: z.string().min(1),
  /** ONNX file with the weights. */
  MODEL_PATH: z.string().min(1),
});

/** Name of an environment variable of the embed server. */
export type ServerEnvName = keyof z.input<typeof serverEnv>;
