import { z } from "zod";
import { openclipVitB32 } from "./model-signature.ts";
import { embedPort } from "./ports.ts";

/** Environment variables of the embed server, with their defaults. */

const integer = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

export const logLevels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** Mount path of the model repository in containers. */
export const modelRepositoryMount = "/models";

/** Precisions of a model file. All but `fp32` are files prepared offline from it: `clipstack model optimise | convert`. */
export const modelPrecisions = ["fp32", "fp32-optimised", "fp16", "int8"] as const;
export type ModelPrecision = (typeof modelPrecisions)[number];

/** Minimum length of an API key. */
export const minKeyLength = 16;

export const serverEnv = z
  .object({
    /** Address to listen on. A container listens on all addresses; the host decides which ports are published. */
    HOST: z.string().min(1).default("0.0.0.0"),
    PORT: integer(1, 65_535).default(embedPort),
    /** Architecture in open_clip's naming, included in every response. The server supports no other. */
    MODEL_NAME: z.enum(["ViT-B-32"]).default("ViT-B-32"),
    /** Name of the weights in responses, if the model file has no manifest. */
    MODEL_PRETRAINED: z.string().min(1).default("laion2b_s34b_b79k"),
    LOG_LEVEL: z.enum(logLevels).default("info"),
    /** `onnxruntime`: ONNX Runtime in this process. `triton`: gateway to Triton over gRPC. */
    BACKEND: z.enum(["onnxruntime", "triton"]).default("onnxruntime"),
    /** ONNX file of the backend `onnxruntime`. */
    MODEL_PATH: z
      .string()
      .min(1)
      .default(`${modelRepositoryMount}/${openclipVitB32.name}/1/model.onnx`),
    /**
     * Precision of the loaded file. `fp32` loads MODEL_PATH itself, any other the file of this precision in the same folder, such as
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
    /** Tritons of the backend `triton`: `host:port[,host:port…]`, gRPC. */
    TRITON_GRPC_URLS: z
      .string()
      .transform((value) =>
        value
          .split(",")
          .map((url) => url.trim())
          .filter((url) => url !== ""),
      )
      .pipe(z.array(z.string().regex(/^[^\s:/]+:\d{1,5}$/, "must be host:port[,host:port…]")))
      .default([]),
    /** Model requested from Triton by the backend `triton`. */
    TRITON_MODEL: z.string().min(1).default(openclipVitB32.name),
    /** Deadline of one inference on a Triton. */
    TRITON_TIMEOUT_MS: integer(1, 600_000).default(30_000),
    /** PEM file with the certificate authorities of the Tritons. Enables TLS for gRPC. */
    TRITON_TLS_CA_FILE: z.string().min(1).optional(),
    /** PEM files with the gateway's certificate chain and private key. Both or neither. */
    TRITON_TLS_CERT_FILE: z.string().min(1).optional(),
    TRITON_TLS_KEY_FILE: z.string().min(1).optional(),
    /** Required name in the Tritons' certificates, instead of the host in TRITON_GRPC_URLS. */
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
    MAX_BATCH_SIZE: integer(1, 1_024).default(openclipVitB32.maxBatchSize),
    /**
     * Maximum delay of a decoded image to share a batch with images that are still being decoded. It is limited to half of the
     * expected run time of its batch.
     */
    MAX_QUEUE_DELAY_MICROSECONDS: integer(0, 10_000_000).default(100_000),
    /** Maximum queued images; further requests are rejected with 429. */
    MAX_QUEUE_SIZE: integer(1, 1_000_000).default(512),
    /** Maximum bytes of queued request bodies; further requests are rejected with 429. */
    MAX_QUEUE_BYTES: integer(1_024, 1_099_511_627_776).default(256 * 1024 * 1024),
    /** Maximum open connections; further ones are closed immediately. */
    MAX_CONNECTIONS: integer(1, 1_000_000).default(4_096),
    /** Maximum size of a request body. */
    MAX_BODY_BYTES: integer(1_024, 2_147_483_647).default(64 * 1024 * 1024),
    /** Maximum size of a decoded image in pixels, because a small file can decode to a very large image. */
    MAX_IMAGE_PIXELS: integer(1, 1_000_000_000).default(40_000_000),
    /**
     * Maximum decoded pixels in memory over all images, at least MAX_IMAGE_PIXELS; further images are queued. 0 is MAX_IMAGE_PIXELS
     * per decoding thread. A baseline JPEG counts 0 because it is decoded row by row.
     */
    MAX_PIXELS_IN_FLIGHT: integer(0, 1_000_000_000_000).default(0),
    /**
     * Bearer token required from clients, except for health checks. Without it the server listens only on the loopback interface,
     * unless ALLOW_ANONYMOUS is set.
     */
    API_KEY: z
      .string()
      .regex(
        new RegExp(`^[\\x21-\\x7e]{${minKeyLength},}$`),
        `must be at least ${minKeyLength} printable ASCII characters without spaces`,
      )
      .optional(),
    /** `true`: no authentication. For a container whose port is published only on the host's loopback interface. */
    ALLOW_ANONYMOUS: z.enum(["true", "false"]).default("false"),
    /** PEM files with certificate chain and private key. The server then serves only HTTPS. Both or neither. */
    TLS_CERT_FILE: z.string().min(1).optional(),
    TLS_KEY_FILE: z.string().min(1).optional(),
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
  });
export type ServerEnv = z.infer<typeof serverEnv>;

/** Name of an environment variable of the embed server. */
export type ServerEnvName = keyof z.input<typeof serverEnv>;
