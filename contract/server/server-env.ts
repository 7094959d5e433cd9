import { z } from "zod";
import { servedKinds } from "../environment.ts";
import { type Modality, type ModelSpec, modelSpec, withModalities } from "../model-spec.ts";
import { defaultModel, modelCatalogue } from "../models/index.ts";
import { embedPort } from "../ports.ts";
import { maxImagePixels } from "../preprocess-parameters.ts";
import { apiKey } from "./client-keys.ts";

/** Environment variables of the embed server, with their defaults. */

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

function parseJson(text: string, context: z.RefinementCtx): unknown {
  try {
    return JSON.parse(text);
  } catch {
    context.addIssue({ code: "custom", message: "must be a JSON array of model specs" });
    return z.NEVER;
  }
}

const modalities = ["image", "text"] as const satisfies readonly Modality[];

/** Name of the model in an entry of MODELS. */
function nameOf(entry: string): string {
  return entry.split(":", 1)[0] ?? "";
}

/** Modalities in an entry of MODELS. */
function modalitiesOf(entry: string, all: readonly Modality[]): readonly Modality[] {
  const [, modality] = entry.split(":", 2);
  return modality === undefined ? all : [modality as Modality];
}

/** Specs that a server can use by name: the catalogue and MODEL_SPECS. */
function availableSpecs(own: readonly ModelSpec[]): ReadonlyMap<string, ModelSpec> {
  return new Map([...modelCatalogue, ...own.map((spec) => [spec.name, spec] as const)]);
}

export const serverEnv = z
  .object({
    /** Address to listen on. A container listens on all addresses; the host decides which ports are published. */
    HOST: z.string().min(1).default("0.0.0.0"),
    PORT: integer(1, 65_535).default(embedPort),
    /**
     * Served models, separated by commas; the first is the default. `<name>` serves all towers of a model, `<name>:image` or
     * `<name>:text` one of them.
     */
    MODELS: list
      .pipe(
        z
          .array(z.string())
          .min(1, "must name at least one model")
          .refine(
            (entries) => new Set(entries.map(nameOf)).size === entries.length,
            "must not repeat a model",
          ),
      )
      .default([`${defaultModel.name}:image`]),
    /** Specs of models that are not in the catalogue, as a JSON array. */
    MODEL_SPECS: z.string().transform(parseJson).pipe(z.array(modelSpec)).default([]),
    /** Folder with the model files of the backend `onnxruntime`: `<model>/1/model.onnx`, `-` in the model's name replaced by `_`. */
    MODEL_REPOSITORY: z.string().min(1).default(modelRepositoryMount),
    LOG_LEVEL: z.enum(logLevels).default("info"),
    /** `onnxruntime`: ONNX Runtime in this process. `triton`: gateway to Triton over gRPC. */
    BACKEND: z.enum(["onnxruntime", "triton"]).default("onnxruntime"),
    /**
     * Precision of the loaded files. `fp32` loads `model.onnx`, any other the file of this precision in the same folder, such as
     * `model.int8.onnx`; the start fails if it is missing or derived from another model.
     */
    MODEL_PRECISION: z.enum(modelPrecisions).default("fp32"),
    /**
     * Resize of images. `exact`: the same pixels as Pillow gives OpenCLIP. `fast`: large JPEG files are decoded at reduced size first;
     * the cosine to `exact` is at least 0.9996.
     */
    PREPROCESSING: z.enum(["exact", "fast"]).default("exact"),
    /** Threads that decode images; 0 is one per core. */
    PREPROCESS_THREADS: integer(0, 1_024).default(0),
    /**
     * Maximum time to decode one image, excluding time in queues; after it the response is 422. The decoding thread is terminated
     * and replaced.
     */
    DECODE_TIMEOUT_MS: integer(100, 600_000).default(30_000),
    /** Triton servers of the backend `triton`: `host:port[,host:port…]`, gRPC; an IPv6 address in brackets. */
    TRITON_GRPC_URLS: list
      .pipe(z.array(z.string().regex(grpcTarget, "must be host:port[,host:port…]")))
      .default([]),
    /**
     * Model kind of the models requested from Triton by the backend `triton`: normalised FP32 images, the same with TensorRT, uint8
     * pixels, or the image files themselves; `dali` and `dali-trt` forward JPEG files to DALI, and others as normalised images.
     */
    TRITON_MODEL_KIND: z.enum(servedKinds).default("fp32"),
    /**
     * Maximum time of one inference request in ms, including the gateway's queue and retries on other
     * Triton servers.
     */
    TRITON_TIMEOUT_MS: integer(1, 600_000).default(30_000),
    /**
     * PEM file with the certificate authorities that sign the upstreams' certificates. Enables TLS for
     * gRPC.
     */
    TRITON_TLS_CA_FILE: z.string().min(1).optional(),
    /** PEM files with the gateway's certificate chain and private key. Both or neither. */
    TRITON_TLS_CERT_FILE: z.string().min(1).optional(),
    TRITON_TLS_KEY_FILE: z.string().min(1).optional(),
    /** Required name in the Triton servers' certificates, instead of the host in TRITON_GRPC_URLS. */
    TRITON_TLS_SERVER_NAME: z
      .string()
      .regex(/^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/, "must be a host name")
      .optional(),
    /** File with gRPC metadata of every call, one `name: value` per line, such as `authorization: Bearer …`. */
    TRITON_METADATA_FILE: z.string().min(1).optional(),
    /**
     * Execution provider of the backend `onnxruntime`. With `cuda` the start fails if the runtime has no CUDA provider, because a
     * server with a GPU must not silently run on the CPU.
     */
    EXECUTION_PROVIDER: z.enum(["cpu", "cuda"]).default("cpu"),
    /** Threads of ONNX Runtime, shared by all instances; 0 is one per core. */
    INTRA_OP_THREADS: integer(0, 1_024).default(0),
    /**
     * Sessions of the backend `onnxruntime` that run batches concurrently, each with its share of the threads and its own copy of
     * the weights.
     */
    MODEL_INSTANCES: integer(1, 64).default(1),
    /** Maximum batch size of all models, in addition to `batching.maximum` of each model's spec. */
    MAX_BATCH_SIZE: integer(1, 4_096).optional(),
    /**
     * Maximum delay of a decoded image to share a batch with images that are still being decoded. It is limited to half of the
     * expected run time of its batch.
     */
    MAX_QUEUE_DELAY_MICROSECONDS: integer(0, 10_000_000).default(100_000),
    /** Maximum queued images; further requests are rejected with 429. */
    MAX_QUEUE_SIZE: integer(1, 1_000_000).default(512),
    /**
     * Maximum bytes of queued request bodies and unread responses; further requests are rejected with 429. One client address may have
     * three quarters of them.
     */
    MAX_QUEUE_BYTES: integer(1_024, 1_099_511_627_776).default(256 * 1024 * 1024),
    /** Maximum open connections; a further one replaces the longest idle one, or is closed immediately if all have a request. */
    MAX_CONNECTIONS: integer(1, 1_000_000).default(4_096),
    /** Maximum size of a request body. */
    MAX_BODY_BYTES: integer(1_024, 2_147_483_647).default(64 * 1024 * 1024),
    /** Maximum size of a decoded image in pixels, because a small file can decode to a very large image. */
    MAX_IMAGE_PIXELS: integer(1, 1_000_000_000).default(maxImagePixels),
    /**
     * Maximum decoded pixels in memory over all images, at least MAX_IMAGE_PIXELS; further images are queued. 0 is MAX_IMAGE_PIXELS
     * per decoding thread. A baseline JPEG counts 0 because it is decoded row by row.
     */
    MAX_PIXELS_IN_FLIGHT: integer(0, 1_000_000_000_000).default(0),
    /**
     * Hosts from which `POST /v1/embeddings` downloads images that a request names by URL: `host[:port]` for https, or an address
     * such as `http://10.0.0.7:9000`. A host name must resolve to public addresses only.
     */
    IMAGE_URL_HOSTS: list.pipe(z.array(webOrigin)).default([]),
    /** Maximum size of a downloaded image. */
    IMAGE_URL_MAX_BYTES: integer(1_024, 1_073_741_824).default(16 * 1024 * 1024),
    /** Maximum time to download an image, with all redirects. */
    IMAGE_URL_TIMEOUT_MS: integer(1, 600_000).default(5_000),
    /** Maximum redirects of a download, each to a host of IMAGE_URL_HOSTS. */
    IMAGE_URL_MAX_REDIRECTS: integer(0, 20).default(3),
    /**
     * Bearer token required from clients, except for health checks. Without it and API_KEYS_FILE the server listens only on the
     * loopback interface, unless ALLOW_ANONYMOUS is set.
     */
    API_KEY: apiKey.optional(),
    /**
     * JSON file with the keys of several clients, instead of API_KEY: `[{ "name": "team-a", "key": "…", "requestsPerSecond": 50 }]`.
     * A changed file is read within seconds.
     */
    API_KEYS_FILE: z.string().min(1).optional(),
    /** `true`: no authentication. For a container whose port is published only on the host's loopback interface. */
    ALLOW_ANONYMOUS: z.enum(["true", "false"]).default("false"),
    /**
     * PEM files with certificate chain and private key. The server then serves only HTTPS. Both or neither. Changed files are read
     * within seconds.
     */
    TLS_CERT_FILE: z.string().min(1).optional(),
    TLS_KEY_FILE: z.string().min(1).optional(),
    /**
     * Address of an OpenTelemetry collector, `http://host:port` or `https://host:port`. Enables tracing. The exporter reads the other
     * variables of OpenTelemetry's OTLP exporters itself, such as OTEL_EXPORTER_OTLP_HEADERS.
     */
    OTEL_EXPORTER_OTLP_ENDPOINT: z.string().regex(otlpEndpoint, otlpEndpointRule).optional(),
    /** Protocol of the collector's port: usually 4318 for `http/protobuf`, 4317 for `grpc`. */
    OTEL_EXPORTER_OTLP_PROTOCOL: z.enum(["http/protobuf", "grpc"]).default("http/protobuf"),
    /** Name of this service in traces. */
    OTEL_SERVICE_NAME: z.string().min(1).default("clipstack-embed"),
    /** Attributes of this service in traces, `name=value[,name=value…]`. */
    OTEL_RESOURCE_ATTRIBUTES: z
      .string()
      .regex(/^[^=,]+=[^=,]*(,[^=,]+=[^=,]*)*$/, "must be name=value[,name=value…]")
      .optional(),
    /** Selects the traces that are exported, besides those of requests with a status of 500 or above. */
    OTEL_TRACES_SAMPLER: z.enum(traceSamplers).default("parentbased_always_on"),
    /** Share of the traces that the samplers with a ratio select. */
    OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).default(1),
    /** Time in which accepted requests complete after a stop signal. */
    SHUTDOWN_GRACE_SECONDS: integer(1, 3_600).default(30),
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
  })
  .superRefine(({ MODELS: entries, MODEL_SPECS: own }, context) => {
    const invalid = (path: (string | number)[], message: string) =>
      context.addIssue({ code: "custom", path, message });
    for (const [index, { name }] of own.entries()) {
      if (modelCatalogue.has(name)) {
        invalid(["MODEL_SPECS", index, "name"], "must not be the name of a model in the catalogue");
      }
    }
    const available = availableSpecs(own);
    if (!entries.every((entry) => available.has(nameOf(entry)))) {
      invalid(["MODELS"], `must be names of ${[...available.keys()].join(", ")}`);
      return;
    }
    for (const entry of entries) {
      const { towers } = available.get(nameOf(entry))!;
      const has = modalities.filter((modality) => towers[modality] !== undefined);
      if (modalitiesOf(entry, has).every((modality) => has.includes(modality))) continue;
      invalid(["MODELS"], `must name modalities that ${nameOf(entry)} has: ${has.join(", ")}`);
    }
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

/** Specs of the models that a server serves, the default model first, with the served towers. */
export function servedSpecs({
  MODELS: entries,
  MODEL_SPECS: own,
}: Pick<ServerEnv, "MODELS" | "MODEL_SPECS">): readonly ModelSpec[] {
  const available = availableSpecs(own);
  return entries.map((entry) => {
    const spec = available.get(nameOf(entry))!;
    return entry.includes(":") ? withModalities(spec, modalitiesOf(entry, [])) : spec;
  });
}

/** Settings that make a server serve the towers of `specs`. Specs outside the catalogue are passed as JSON. */
export function modelSettings(
  specs: readonly ModelSpec[],
): Partial<Record<"MODELS" | "MODEL_SPECS", string>> {
  const own = specs.filter(({ name }) => !modelCatalogue.has(name));
  return {
    MODELS: specs.map(entryOf).join(","),
    ...(own.length > 0 && {
      MODEL_SPECS: JSON.stringify(own.map(({ sources: _sources, ...spec }) => spec)),
    }),
  };
}

/** Entry of MODELS for the towers of a spec: without a modality if the catalogue's or the own spec has no other towers. */
function entryOf({ name, towers }: ModelSpec): string {
  const known = modelCatalogue.get(name)?.towers ?? towers;
  const [served, ...others] = modalities.filter((modality) => towers[modality] !== undefined);
  const isComplete = modalities.every((it) => known[it] === undefined || towers[it] !== undefined);
  return isComplete || others.length > 0 ? name : `${name}:${served}`;
}

/** Name of an environment variable of the embed server. */
export type ServerEnvName = keyof z.input<typeof serverEnv>;
