import { z } from "zod";
import { serializations } from "../../contract/bench-endpoint.ts";

/** The studies of `clipstack sweep`. */
export const studyIds = [
  "cold-start",
  "batch",
  "concurrency",
  "queue-delay",
  "protocol",
  "serialization",
  "link",
  "operators",
  "memory",
  "scaling",
  "topology",
] as const;
export type StudyId = (typeof studyIds)[number];

/** Question that each study answers, for the report. */
export const studyQuestions: Readonly<Record<StudyId, string>> = {
  "cold-start": "How long does a start take until the first embedding?",
  batch: "What does a larger batch cost in latency and gain in throughput?",
  concurrency: "How does throughput grow with concurrency, and where does it saturate?",
  "queue-delay":
    "What does the batcher's queue delay cost a single client, and what do many clients gain?",
  protocol: "Is gRPC faster than HTTP, and at which batch sizes?",
  serialization: "What does JSON cost compared with binary tensors?",
  link: "Which payload format suits a remote client, by bandwidth and round trip?",
  operators: "Which operators take most of the compute time, and do any fall back to the CPU?",
  memory: "How much memory does each backend use?",
  scaling: "How does throughput scale from one GPU to N?",
  topology: "One Triton across all GPUs, or one Triton per GPU?",
};

const studyHead = { environment: z.string(), notes: z.array(z.string()) };

/** Result of a study other than load points; most studies have only notes. */
export const studyResult = z.discriminatedUnion("study", [
  z.strictObject({
    ...studyHead,
    study: z.literal("cold-start"),
    starts: z.array(
      z.strictObject({
        service: z.string(),
        round: z.int(),
        /** Milliseconds since the process started or the deployed container was restarted. */
        liveMs: z.number().optional(),
        readyMs: z.number(),
        /** Duration of the first request after readiness, and of one request when warm. */
        firstRequestMs: z.number(),
        warmRequestMs: z.number(),
      }),
    ),
  }),
  z.strictObject({
    ...studyHead,
    study: z.literal("operators"),
    service: z.string(),
    model: z.string(),
    batch: z.int(),
    runs: z.int(),
    nodes: z.int(),
    /** Nodes that ran on the CPU although another execution provider was configured. */
    cpuFallbacks: z.int(),
    operators: z.array(
      z.strictObject({
        operator: z.string(),
        provider: z.string(),
        nodes: z.int(),
        msPerRun: z.number(),
        share: z.number(),
      }),
    ),
  }),
  z.strictObject({
    ...studyHead,
    study: z.literal("memory"),
    services: z.array(
      z.strictObject({
        service: z.string(),
        /** Resident memory of its processes in MiB: when ready, and the maximum under load. */
        residentMiB: z.number().optional(),
        residentUnderLoadMiB: z.number().optional(),
        gpuMemoryMiB: z.number().optional(),
        gpuMemoryUnderLoadMiB: z.number().optional(),
      }),
    ),
  }),
  z.strictObject({
    ...studyHead,
    study: z.literal("serialization"),
    /** Median time in the client to encode and decode the tensors of one request. */
    client: z.array(
      z.strictObject({
        serialization: z.enum(serializations),
        batch: z.int(),
        encodeMs: z.number(),
        decodeMs: z.number(),
        bytes: z.int(),
      }),
    ),
  }),
  ...(
    ["batch", "concurrency", "queue-delay", "protocol", "link", "scaling", "topology"] as const
  ).map((study) => z.strictObject({ ...studyHead, study: z.literal(study) })),
]);
export type StudyResult = z.infer<typeof studyResult>;
