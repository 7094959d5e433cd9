import { singleLine } from "../../bulk/job/job.ts";
import type { PlanResult } from "../../bulk/job/plan.ts";
import { errorCount, type JobStatus } from "../../bulk/job/status.ts";
import type { Verification } from "../../bulk/verify.ts";
import type { WorkerProgress } from "../../bulk/work/worker.ts";
import { errorsText } from "../../report/document/document.ts";
import {
  counted,
  formatBytes,
  formatCount,
  formatDuration,
  formatRate,
  formatUsd,
} from "../../report/document/number-format.ts";
import { aligned } from "../../report/render/text-table.ts";

export function planText(
  plan: Omit<PlanResult, "job"> & { readonly shards: number },
  job: string,
): string {
  const { entries, bytes, shards, added, changed, removed } = plan;
  const changes = [
    `${formatCount(added)} new`,
    `${formatCount(changed)} changed`,
    `${formatCount(removed)} removed`,
  ];
  // lists of URIs state no sizes
  const size = bytes === 0 ? "" : `, ${formatBytes(bytes)}`;
  return [
    `${counted(entries, "file")}${size}, in ${counted(shards, "shard")}: ${changes.join(", ")}`,
    `run: npx clipstack bulk run ${job}`,
  ].join("\n");
}

export interface ProgressFacts {
  /** Since the start of the command. */
  readonly seconds: number;
  /** Images without a result at the start. */
  readonly remaining: number;
  readonly usd?: number | undefined;
}

/** `1 200 of 5 000 images, 45.2 images/s, 1 min 24 s left, $0.01` */
export function progressText(
  { images }: WorkerProgress,
  { seconds, remaining, usd }: ProgressFacts,
): string {
  const rate = images / seconds;
  return [
    // a tar file is planned as one
    images > remaining
      ? `${formatCount(images)} images`
      : `${formatCount(images)} of ${formatCount(remaining)} images`,
    `${formatRate(rate)} images/s`,
    ...(images > 0 && images <= remaining
      ? [`${formatDuration((remaining - images) / rate)} left`]
      : []),
    ...(usd === undefined ? [] : [formatUsd(usd)]),
  ].join(", ");
}

export function statusText(status: JobStatus): string {
  const { shards, rows, reused, errors, workers, imagesPerSecond, secondsLeft, usd } = status;
  const failed = errorCount(errors);
  const states = [
    `${formatCount(shards.done)} of ${counted(shards.total, "shard")} done`,
    ...(shards.running > 0 ? [`${formatCount(shards.running)} in progress`] : []),
    ...(shards.stale > 0 ? [`${formatCount(shards.stale)} without progress`] : []),
  ];
  const rate = [
    `${formatRate(imagesPerSecond)} images/s`,
    ...(secondsLeft === undefined ? [] : [`${formatDuration(secondsLeft)} left`]),
  ];
  const cells = [
    ["worker", "state", "shards", "images", "images/s", "peak MiB", "latest progress", "host"],
    ...workers.map((worker) => [
      String(worker.worker),
      worker.state,
      formatCount(worker.shards),
      formatCount(worker.images),
      worker.seconds > 0 ? formatRate(worker.images / worker.seconds) : "–",
      worker.peakRssMiB > 0 ? formatCount(worker.peakRssMiB) : "–",
      worker.lastProgressAt,
      worker.host,
    ]),
  ];
  const table = aligned(cells, (column) => (column >= 2 && column <= 5 ? "right" : "left"));
  return [
    states.join(", "),
    `${counted(rows, "row")}, ${formatCount(reused)} of them reused; ${failed === 0 ? "no errors" : `errors: ${errorsText(errors)}`}`,
    ...(imagesPerSecond > 0 ? [rate.join(", ")] : []),
    ...(usd === undefined ? [] : [`${formatUsd(usd)} so far`]),
    ...(workers.length > 0 ? [table] : []),
  ].join("\n");
}

export function verificationText({
  shards,
  rows,
  failures,
  sampled,
  lowestCosine,
  findings,
}: Verification): string {
  const cosine = lowestCosine === undefined ? "" : `, lowest cosine ${lowestCosine.toFixed(6)}`;
  return [
    ...findings.map(singleLine),
    `${counted(shards, "shard")}: ${counted(rows, "row")}, ${counted(failures, "error")}; ${formatCount(sampled)} embedded again${cosine}`,
    findings.length === 0 ? "the table is complete" : counted(findings.length, "finding"),
  ].join("\n");
}
