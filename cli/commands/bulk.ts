import { type Command, Option } from "commander";
import { readJob } from "../../bulk/job/job.ts";
import { planJob } from "../../bulk/job/plan.ts";
import { listSource } from "../../bulk/job/source.ts";
import { jobStatus } from "../../bulk/job/status.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import { type VectorType, vectorTypes } from "../../bulk/table/part.ts";
import { modelPrecisions } from "../../contract/server/server-env.ts";
import { namedModel } from "../model/named-model.ts";
import { absoluteLocation, locationRule, type RunArguments, runBulk } from "../prepare/bulk-run.ts";
import { planText, statusText } from "../prepare/bulk-text.ts";
import { numberFrom, numberUpTo, percentage, wholeNumber } from "../shared/option-values.ts";

/** Registers `clipstack bulk …`, which embeds millions of images into a table. */
export function registerBulk(program: Command): void {
  const bulk = program.command("bulk").addHelpText("after", help);
  registerPlan(bulk);
  registerRun(bulk);
  registerStatus(bulk);
}

const help = `
Examples:
  $ npx clipstack bulk plan photos --job photos-job
  $ npx clipstack bulk run photos-job --workers 2
  $ npx clipstack bulk plan s3://photos/2026 --job s3://vectors/2026 --price 0.35
  $ npx clipstack bulk status s3://vectors/2026

Buckets: AWS_ENDPOINT_URL_S3, AWS_REGION and the credentials of the environment, as for every AWS SDK.
Exit codes: 0 success, 1 failed or not done (run again to resume), 2 wrong usage or settings.`;

const jobArgument = `folder of the job: ${locationRule}`;

interface PlanArguments {
  readonly job: string;
  readonly model?: string;
  readonly vectors: VectorType;
  readonly shardImages: number;
  readonly shardMib: number;
  readonly price?: number;
  readonly json?: true;
}

function registerPlan(bulk: Command): void {
  bulk
    .command("plan")
    .description("list the images of a source and group them into shards; again: add what changed")
    .argument("<source>", `images (jpg, png, webp): ${locationRule}`)
    .requiredOption("--job <location>", `required: ${jobArgument}`)
    .option("--model <name>", "model of the catalogue or of environments/models")
    .addOption(
      new Option("--vectors <type>", "type of the values in the table")
        .choices(vectorTypes)
        .default("float32"),
    )
    .option("--shard-images <number>", "maximum images of a shard", wholeNumber(1, 1e6), 2_000)
    .option("--shard-mib <size>", "maximum size of a shard's images", wholeNumber(1, 1e6), 256)
    .option("--price <dollars>", "US dollars per hour of one worker", numberUpTo(1e6))
    .option("--json", "print the result as JSON")
    .action(async (source: string, args: PlanArguments) => {
      const from = absoluteLocation(source);
      const { job, ...counts } = await planJob({
        store: await openStore(args.job),
        source: from,
        entries: listSource(from),
        model: namedModel(args.model),
        vectors: args.vectors,
        shardImages: args.shardImages,
        shardBytes: args.shardMib * 1024 * 1024,
        usdPerWorkerHour: args.price,
      });
      const result = { shards: job.shards.length, ...counts };
      console.log(args.json ? JSON.stringify(result, null, 2) : planText(result, args.job));
    });
}

function registerRun(bulk: Command): void {
  bulk
    .command("run")
    .description("embed the shards that are not done, with workers on this machine")
    .argument("<job>", jobArgument)
    .option("--workers <number>", "processes that share the cores", wholeNumber(1, 256), 1)
    .option("--weights <file>", "tiny, generated, or an ONNX file (default: the model repository)")
    .addOption(
      new Option("--precision <name>", "file of the model")
        .choices(modelPrecisions)
        .default("fp32"),
    )
    .option("--triton <address>", "embed with this Triton server, host:port of gRPC")
    .option("--memory <mib>", "memory of a worker for images in MiB", wholeNumber(64, 1e6), 384)
    .option(
      "--max-errors <percent>",
      "share of the images of a worker that may fail; 10 always may",
      percentage(0, 100),
      0.05,
    )
    .option(
      "--patience <seconds>",
      "time for which an unavailable or throttling bucket or Triton server is retried",
      numberFrom(0, 86_400),
      600,
    )
    .action(async (location: string, args: RunArguments) => {
      process.exitCode = await runBulk(location, args);
    });
}

function registerStatus(bulk: Command): void {
  bulk
    .command("status")
    .description("progress, workers, errors and cost of a job, from its records")
    .argument("<job>", jobArgument)
    .option(
      "--stale-after <seconds>",
      "time without progress after which a worker counts as stuck",
      wholeNumber(10, 86_400),
      120,
    )
    .option("--json", "print the status as JSON")
    .action(async (location: string, args: { staleAfter: number; json?: true }) => {
      const store = await openStore(location);
      const status = await jobStatus(store, await readJob(store), args.staleAfter);
      console.log(args.json ? JSON.stringify(status, null, 2) : statusText(status));
    });
}
