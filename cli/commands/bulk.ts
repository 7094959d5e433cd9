import { type Command, Option } from "commander";
import { consolidate, type TableFormat, tableFormats } from "../../bulk/consolidate.ts";
import { readJob } from "../../bulk/job/job.ts";
import { jobStatus } from "../../bulk/job/status.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import { verifyJob } from "../../bulk/verify.ts";
import { plannedShards } from "../../bulk/work/plan-run.ts";
import { defaultStaleSeconds } from "../../bulk/work/settings.ts";
import { vectorTypes } from "../../contract/bulk.ts";
import { gpuNames } from "../../contract/gpus.ts";
import { modelPrecisions } from "../../contract/server/server-env.ts";
import { counted } from "../../report/document/number-format.ts";
import { type PlanArguments, planBulk } from "../prepare/bulk-plan.ts";
import { saveBulkReport } from "../prepare/bulk-report.ts";
import {
  locationRule,
  type ModelArguments,
  type RunArguments,
  runBulk,
  workerEnv,
} from "../prepare/bulk-run.ts";
import { statusText, verificationText } from "../prepare/bulk-text.ts";
import { bandwidth, hours } from "../prepare/capacity-options.ts";
import { numberFrom, numberUpTo, percentage, wholeNumber } from "../shared/option-values.ts";

/** Registers `clipstack bulk …`, which embeds millions of images into a table. */
export function registerBulk(program: Command): void {
  const bulk = program.command("bulk").addHelpText("after", help);
  registerPlan(bulk);
  registerRun(bulk);
  registerStatus(bulk);
  registerVerify(bulk);
  registerConsolidate(bulk);
}

const help = `
Examples:
  $ npx clipstack bulk plan photos --job photos-job
  $ npx clipstack bulk run photos-job --workers 2
  $ npx clipstack bulk plan s3://photos/2026 --job s3://vectors/2026 --price 0.35
  $ npx clipstack bulk plan --from photos-job --job dino-job --model dinov2-small
  $ npx clipstack bulk status s3://vectors/2026
  $ npx clipstack bulk verify s3://vectors/2026 --sample 200
  $ npx clipstack bulk consolidate s3://vectors/2026 table --format npy

Buckets: AWS_ENDPOINT_URL_S3, AWS_REGION and the credentials of the environment, as for every AWS SDK.
Exit codes: 0 success, 1 failed or not done (run again to resume), 2 wrong usage or settings.`;

const jobArgument = `folder of the job: ${locationRule}`;

function registerPlan(bulk: Command): void {
  const command = bulk
    .command("plan")
    .description("list the images of a source and group them into shards; again: add what changed")
    .argument(
      "[source]",
      `images (jpg, png, webp) and tar files of images: ${locationRule}; or a .csv or .parquet file with a column uri`,
    )
    .option("--from <job>", "images of another job's table instead of a source, for another model")
    .requiredOption("--job <location>", `required: ${jobArgument}`)
    .option("--model <name>", "model of the catalogue or of environments/models")
    .addOption(
      new Option("--vectors <type>", "type of the values in the table")
        .choices(vectorTypes)
        .default("float32"),
    )
    .option(
      "--shard-images <number>",
      "maximum images of a shard",
      wholeNumber(1, 1e6),
      plannedShards.shardImages,
    )
    .option(
      "--shard-mib <size>",
      "maximum size of a shard's images",
      wholeNumber(1, 1e6),
      plannedShards.shardBytes / 2 ** 20,
    )
    .option("--price <dollars>", "US dollars per hour of one worker", numberUpTo(1e6))
    .option(
      "--measure <seconds>",
      "embed random images for this time, to predict the time of a worker on this machine",
      numberFrom(1, 3_600),
    )
    .option("--within <time>", "deadline, to predict GPUs, time and cost: 6h", hours)
    .addOption(new Option("--gpu <name>", "GPU of the prediction").choices(gpuNames))
    .option("--gpus <number>", "number of GPUs of the prediction", wholeNumber(1, 64))
    .addOption(
      new Option("--bandwidth <rate>", "bandwidth between the images and the GPUs: 10Gbps")
        .argParser(bandwidth)
        .default(10_000, "10Gbps"),
    )
    .option(
      "--egress-price <dollars>",
      "US dollars per GB that leaves the object storage; 0: beside the GPUs",
      numberFrom(0, 1e6),
    )
    .option("--json", "print the result as JSON");
  addModelOptions(command).action(async (source: string | undefined, args: PlanArguments) => {
    console.log(await planBulk(source, args));
  });
}

function registerRun(bulk: Command): void {
  const command = bulk
    .command("run")
    .description("embed the shards that are not done, with workers on this machine")
    .argument("<job>", jobArgument)
    .option("--workers <number>", "processes that share the cores", wholeNumber(1, 256), 1)
    .option(
      "--max-errors <percent>",
      "share of the images of a worker that may fail; 10 always may",
      percentage(0, 100),
      0.05,
    )
    .option("--report <folder>", "also write a report");
  addModelOptions(command).action(async (location: string, args: RunArguments) => {
    process.exitCode = await runBulk(location, args);
  });
}

/** Adds the options of {@link ModelArguments}. */
function addModelOptions(command: Command): Command {
  return command
    .option("--weights <file>", "tiny, generated, or an ONNX file (default: the model repository)")
    .addOption(
      new Option("--precision <name>", "file of the model")
        .choices(modelPrecisions)
        .default("fp32"),
    )
    .option("--triton <address>", "embed with this Triton server, host:port of gRPC")
    .option("--memory <mib>", "memory of a worker for images in MiB", wholeNumber(64, 1e6), 384)
    .option(
      "--patience <seconds>",
      "time for which an unavailable or throttling bucket or Triton server is retried",
      numberFrom(0, 86_400),
      600,
    );
}

function registerVerify(bulk: Command): void {
  const command = bulk
    .command("verify")
    .description(
      "check that each image is in the table or the errors once, and embed a sample again",
    )
    .argument("<job>", jobArgument)
    .option("--sample <number>", "rows to embed again", wholeNumber(0, 1e6), 100)
    .option("--json", "print the result as JSON");
  addModelOptions(command).action(
    async (location: string, args: ModelArguments & { sample: number; json?: true }) => {
      const result = await verifyJob(await workerEnv(location, args), args.sample);
      console.log(args.json ? JSON.stringify(result, null, 2) : verificationText(result));
      process.exitCode = result.findings.length === 0 ? 0 : 1;
    },
  );
}

function registerConsolidate(bulk: Command): void {
  bulk
    .command("consolidate")
    .description("write the table as few large files")
    .argument("<job>", jobArgument)
    .argument("<output>", locationRule)
    .addOption(
      new Option("--format <name>", "parquet, or npy with metadata, which autofaiss reads")
        .choices(tableFormats)
        .default("parquet"),
    )
    .option("--rows <number>", "rows of a file", wholeNumber(1, 1e7), 100_000)
    .action(async (job: string, output: string, args: { format: TableFormat; rows: number }) => {
      const [store, target] = await Promise.all([openStore(job), openStore(output)]);
      const { format, rows: rowsPerFile } = args;
      const { rows, files } = await consolidate({ store, target, format, rowsPerFile });
      console.log(`${counted(rows, "row")} in ${counted(files, "file")}: ${output}`);
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
      defaultStaleSeconds,
    )
    .option("--report <folder>", "also write a report")
    .option("--json", "print the status as JSON")
    .action(async (location: string, args: StatusArguments) => {
      const store = await openStore(location);
      const job = await readJob(store);
      const status = await jobStatus(store, job, args.staleAfter);
      if (args.report !== undefined) saveBulkReport(args.report, job, status);
      console.log(args.json ? JSON.stringify(status, null, 2) : statusText(status));
    });
}

interface StatusArguments {
  readonly staleAfter: number;
  readonly report?: string;
  readonly json?: true;
}
