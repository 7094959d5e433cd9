import { z } from "zod";
import { vectorTypes } from "../../contract/bulk.ts";
import { egressRule } from "./chart-network-values.ts";
import { scheduling } from "./chart-pod-values.ts";
import { choice, flag, integer, matching, reference } from "./chart-value-fields.ts";

// another container would keep the pods of a Job running
const { extraContainers: _containers, ...jobScheduling } = scheduling;

const location = (description: string) =>
  matching("(s3://[a-z0-9][a-z0-9.-]+[a-z0-9]|/)[^\\s]*", description);

export const bulk = z
  .strictObject({
    enabled: flag(
      false,
      "Whether a Job embeds images into a table (docs/guides/bulk.md), in pods of the embed image.",
    ),
    job: location("Location of the job: `s3://bucket/prefix`, or a folder of `extraVolumeMounts`."),
    source: location(
      "Images: `s3://bucket/prefix`, or a folder. The first worker lists them, before each run. Empty: `clipstack bulk plan` planned the job.",
    ),
    vectors: choice(vectorTypes, "float32", "Type of the values in the table."),
    accelerator: choice(
      ["cpu", "gpu"],
      "cpu",
      "`cpu`: ONNX Runtime in the worker. `gpu`: a Triton server as a sidecar container of each worker, with the values of `triton`.",
    ),
    workers: integer(1, 10_000).default(4).describe("Number of pods."),
    schedule: matching(
      "@(hourly|daily|weekly|monthly)|(\\S+ ){4}\\S+",
      "Cron expression, with which a CronJob starts a Job; a run that is not finished delays the next one. Empty: one Job.",
    ),
    timeZone: matching("[\\w+/-]+", "Time zone of `schedule`; empty is that of the controller."),
    suspend: flag(false, "Whether no pods are started until the Job or CronJob is resumed."),
    maxHours: integer(1, 720)
      .default(24)
      .describe("Maximum duration of a run, which bounds its cost. The next run resumes."),
    retries: integer(0, 1_000)
      .default(5)
      .describe("Failures of each worker until it is given up; a preempted pod is no failure."),
    keepSeconds: integer(0, 2_592_000)
      .default(86_400)
      .describe("Time after which a finished Job is removed with its logs, in seconds."),
    cores: integer(1, 256)
      .default(1)
      .describe("Cores of a worker, a whole number: requests and limits."),
    memoryMiB: integer(64, 1_048_576)
      .default(384)
      .describe("Memory of a worker for images, `BULK_MEMORY_MIB`."),
    processMemoryMiB: integer(128, 1_048_576)
      .default(1_152)
      .describe("Memory of a worker for the process and, on the CPU, the model."),
    usdPerWorkerHour: z
      .number()
      .min(0)
      .default(0)
      .describe("Price of one pod in US dollars per hour, for the cost so far; 0 if not known."),
    credentialsSecret: reference(
      "Secret with variables such as `AWS_ACCESS_KEY_ID`; empty: the role of the service account (`serviceAccount.annotations`).",
    ),
    egress: z
      .array(egressRule)
      .default([{ ports: [{ protocol: "TCP", port: 443 }] }])
      .describe(
        "Connections that the pods may open besides DNS: addresses and ports of the bucket. A NetworkPolicy cannot contain host names; the default allows HTTPS to any address.",
      ),
    ...jobScheduling,
  })
  .prefault({})
  .describe("Bulk embedding: millions of images into a table, as an Indexed Job or CronJob.");
