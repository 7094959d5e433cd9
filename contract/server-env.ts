import { z } from "zod";
import { openclipVitB32 } from "./model-signature.ts";
import { embedPort } from "./ports.ts";

/** Settings of the embed server, by environment variable. Names and defaults have their one home here. */

const integer = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

export const logLevels = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** Folder that a container mounts the model repository at. */
export const modelRepositoryMount = "/models";

/** Precisions of a model file. All but `fp32` are files prepared offline from it: `clipstack model optimise | convert`. */
export const modelPrecisions = ["fp32", "fp32-optimised", "fp16", "int8"] as const;
export type ModelPrecision = (typeof modelPrecisions)[number];

/** Shorter keys are refused. */
export const minKeyLength = 16;

export const serverEnv = z
  .object({
    /** Address to listen on. A container listens on all; what is published is the host's decision. */
    HOST: z.string().min(1).default("0.0.0.0"),
    PORT: integer(1, 65_535).default(embedPort),
    /** Architecture, as open_clip names it: part of every response. The only one that the server supports. */
    MODEL_NAME: z.enum(["ViT-B-32"]).default("ViT-B-32"),
    /** Name of the weights in responses, if the model file has no manifest. */
    MODEL_PRETRAINED: z.string().min(1).default("laion2b_s34b_b79k"),
    LOG_LEVEL: z.enum(logLevels).default("info"),
    /** `onnx`: ONNX Runtime in this process. `triton`: gateway that infers over gRPC. */
    BACKEND: z.enum(["onnxruntime", "triton"]).default("onnxruntime"),
    /** ONNX file of the backend `onnxruntime`. */
    MODEL_PATH: z
      .string()
      .min(1)
      .default(`${modelRepositoryMount}/${openclipVitB32.name}/1/model.onnx`),
    /**
     * File that the backend `onnxruntime` loads. `fp32`: MODEL_PATH itself. Any other: the file of this precision beside it, such as
     * `model.int8.onnx` beside `model.onnx`; the start fails if it is missing or was made from another model.
     */
    MODEL_PRECISION: z.enum(modelPrecisions).default("fp32"),
    /**
     * How images are resized. `exact`: as Pillow does it for OpenCLIP, bit for bit. `fast`: a large JPEG is decoded at a part
     * of its size first, at a cosine of at least 0.9996 to it.
     */
    PREPROCESSING: z.enum(["exact", "fast"]).default("exact"),
    /** Threads that decode images; 0 is one per core. */
    PREPROCESS_THREADS: integer(0, 1_024).default(0),
    /**
     * Longest time that decoding one image may take, without its time in queues; beyond it 422. The thread that decodes it is
     * ended and replaced.
     */
    DECODE_TIMEOUT_MS: integer(100, 600_000).default(30_000),
    /** Tritons of the engine `triton`: `host:port[,host:port…]`, gRPC. */
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
    /** Model that the engine `triton` asks for. */
    TRITON_MODEL: z.string().min(1).default(openclipVitB32.name),
    /** Deadline of one inference on a Triton. */
    TRITON_TIMEOUT_MS: integer(1, 600_000).default(30_000),
    /** Certificates of the authorities that sign the Tritons' certificates, a PEM file: gRPC then uses TLS. */
    TRITON_TLS_CA_FILE: z.string().min(1).optional(),
    /** Certificate chain and private key of the gateway, PEM files. Both or neither. */
    TRITON_TLS_CERT_FILE: z.string().min(1).optional(),
    TRITON_TLS_KEY_FILE: z.string().min(1).optional(),
    /** Name that the Tritons' certificates must have instead of the host in TRITON_GRPC_URLS. */
    TRITON_TLS_SERVER_NAME: z
      .string()
      .regex(/^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$/, "must be a host name")
      .optional(),
    /** File of gRPC metadata that is sent with every call, one `name: value` per line, such as `authorization: Bearer …`. */
    TRITON_METADATA_FILE: z.string().min(1).optional(),
    /**
     * What ONNX Runtime computes on, with the backend `onnxruntime`. `cuda` is refused at start where the runtime has no CUDA
     * provider: a server that was given a GPU must not run on the CPU in silence.
     */
    EXECUTION_PROVIDER: z.enum(["cpu", "cuda"]).default("cpu"),
    /** Threads of ONNX Runtime, of all instances together; 0 is one a core. */
    INTRA_OP_THREADS: integer(0, 1_024).default(0),
    /**
     * Sessions of the model that compute batches side by side with the backend `onnxruntime`, each with its share of the threads and
     * weights of its own.
     */
    MODEL_INSTANCES: integer(1, 64).default(1),
    MAX_BATCH_SIZE: integer(1, 1_024).default(openclipVitB32.maxBatchSize),
    /**
     * How long an image that is ready may wait for others that are being decoded, to share their batch; never longer than
     * half the time that its own batch will take.
     */
    MAX_QUEUE_DELAY_MICROSECONDS: integer(0, 10_000_000).default(100_000),
    /** Images that may wait; beyond it 429. */
    MAX_QUEUE_SIZE: integer(1, 1_000_000).default(512),
    /** Bytes of the request bodies that may wait; beyond it 429. */
    MAX_QUEUE_BYTES: integer(1_024, 1_099_511_627_776).default(256 * 1024 * 1024),
    /** Open connections; what comes beyond is closed at once. */
    MAX_CONNECTIONS: integer(1, 1_000_000).default(4_096),
    /** Largest request body. */
    MAX_BODY_BYTES: integer(1_024, 2_147_483_647).default(64 * 1024 * 1024),
    /** Largest decoded image, in pixels: a small file can decode to a very large one. */
    MAX_IMAGE_PIXELS: integer(1, 1_000_000_000).default(40_000_000),
    /**
     * Decoded pixels that all images together hold in memory, at least MAX_IMAGE_PIXELS; an image beyond it waits. 0 is
     * MAX_IMAGE_PIXELS per decoding thread. A baseline JPEG holds none: it is decoded row by row.
     */
    MAX_PIXELS_IN_FLIGHT: integer(0, 1_000_000_000_000).default(0),
    /**
     * What a client must send as `Authorization: Bearer …`. Health checks need none. Without it the server listens on the
     * loopback interface only, unless ALLOW_ANONYMOUS says that something else keeps strangers out.
     */
    API_KEY: z
      .string()
      .regex(
        new RegExp(`^[\\x21-\\x7e]{${minKeyLength},}$`),
        `must be at least ${minKeyLength} printable ASCII characters without spaces`,
      )
      .optional(),
    /** `true`: anybody who reaches the port may ask. For a container whose port is published on the host's loopback. */
    ALLOW_ANONYMOUS: z.enum(["true", "false"]).default("false"),
    /** Certificate chain and private key, PEM files: the server then speaks HTTPS only. Both or neither. */
    TLS_CERT_FILE: z.string().min(1).optional(),
    TLS_KEY_FILE: z.string().min(1).optional(),
    /** How long a stop waits for accepted requests. */
    SHUTDOWN_GRACE_SECONDS: integer(1, 3_600).default(30),
  })
  .refine((env) => env.BACKEND !== "triton" || env.TRITON_GRPC_URLS.length > 0, {
    path: ["TRITON_GRPC_URLS"],
    message: "is required when BACKEND is triton",
    // also when another setting is wrong: all mistakes are reported at once
    when: ({ issues }) =>
      issues.every(({ path }) => path?.[0] !== undefined && path[0] !== "TRITON_GRPC_URLS"),
  })
  .refine(({ MAX_PIXELS_IN_FLIGHT: all, MAX_IMAGE_PIXELS: one }) => all === 0 || all >= one, {
    path: ["MAX_PIXELS_IN_FLIGHT"],
    message: "must be 0 or at least MAX_IMAGE_PIXELS",
  });
export type ServerEnv = z.infer<typeof serverEnv>;

/** Name of a setting of the embed server. */
export type ServerEnvName = keyof z.input<typeof serverEnv>;
