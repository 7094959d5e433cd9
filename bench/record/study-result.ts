import { z } from "zod";

/** The studies of `clipstack sweep`. */
export const studyIds = [
  "cold-start",
  "batch",
  "concurrency",
  "queue-delay",
  "protocol",
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
  memory: "How much memory does each backend use?",
  scaling: "How does throughput scale from one GPU to N?",
  topology: "One Triton server across all GPUs, or one for each GPU?",
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
    study: z.literal("memory"),
    services: z.array(
      z.strictObject({
        service: z.string(),
        /** Resident memory of the processes of the service in MiB: when the service is ready, and the maximum under load. */
        residentMiB: z.number().optional(),
        residentUnderLoadMiB: z.number().optional(),
        gpuMemoryMiB: z.number().optional(),
        gpuMemoryUnderLoadMiB: z.number().optional(),
      }),
    ),
  }),
  ...(["batch", "concurrency", "queue-delay", "protocol", "scaling", "topology"] as const).map(
    (study) => z.strictObject({ ...studyHead, study: z.literal(study) }),
  ),
]);
export type StudyResult = z.infer<typeof studyResult>;
