import { planJob } from "../../bulk/job/plan.ts";
import { listSource, tableSource } from "../../bulk/job/source.ts";
import { measureRate } from "../../bulk/measure.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import type { VectorType } from "../../contract/bulk.ts";
import { UserError } from "../../contract/user-error.ts";
import { namedModel } from "../model/named-model.ts";
import {
  type EstimateArguments,
  estimateText,
  predictionOf,
  predictionText,
} from "./bulk-estimate.ts";
import { absoluteLocation, type ModelArguments, workerEnv } from "./bulk-run.ts";
import { planText } from "./bulk-text.ts";

export interface PlanArguments extends EstimateArguments, ModelArguments {
  readonly measure?: number;
  readonly job: string;
  readonly from?: string;
  readonly vectors: VectorType;
  readonly shardImages: number;
  readonly shardMib: number;
  readonly price?: number;
  readonly json?: true;
}

/** Plans a job, and returns what `clipstack bulk plan` prints. */
export async function planBulk(source: string | undefined, args: PlanArguments): Promise<string> {
  const from = sourceOf(source, args.from);
  const { job, ...counts } = await planJob({
    store: await openStore(args.job, args.patience),
    source: from,
    entries: listSource(from, args.patience),
    model: namedModel(args.model),
    vectors: args.vectors,
    shardImages: args.shardImages,
    shardBytes: args.shardMib * 2 ** 20,
    usdPerWorkerHour: args.price,
  });
  const rate = args.measure && (await measureRate(await workerEnv(args.job, args), args.measure));
  const prediction = rate ? predictionOf(rate, args.price) : undefined;
  const result = { shards: job.shards.length, ...counts, prediction };
  if (args.json) return JSON.stringify(result, null, 2);
  const { entries: images, bytes } = counts;
  const estimate = estimateText({ images, bytes }, args);
  return [
    planText(result, args.job),
    ...(prediction === undefined ? [] : [predictionText(prediction)]),
    ...(estimate === undefined ? [] : [`\n${estimate}`]),
  ].join("\n");
}

function sourceOf(source: string | undefined, table: string | undefined): string {
  if (source !== undefined && table === undefined) return absoluteLocation(source);
  if (table !== undefined && source === undefined) return tableSource(absoluteLocation(table));
  throw new UserError(
    `source or --from must be given, got ${table === undefined ? "none" : "both"}`,
  );
}
