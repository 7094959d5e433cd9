import type { BulkJob } from "../../bulk/job/job.ts";
import { type DoneShard, errorCount, imagesOf, type JobStatus } from "../../bulk/job/status.ts";
import {
  errorsText,
  newSection,
  numberField,
  type Report,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatDuration,
  formatRate,
  formatUsd,
} from "../../report/document/number-format.ts";
import { linePlot } from "../../report/plots/line-plot.ts";
import { indexedStyle } from "../../report/plots/plot-styles.ts";
import { recordText, reportName, saveReports } from "../../report/save-reports.ts";

/** Intervals of the plot of throughput over time. */
const intervals = 60;
const slowest = 10;

/** Writes the status and its report. */
export function saveBulkReport(folder: string, job: BulkJob, status: JobStatus): void {
  const name = reportName(job.plannedAt, "bulk");
  const { html } = saveReports(folder, name, recordText(status), bulkReport(job, status));
  console.error(`report: ${html}`);
}

/** Report of a job from its records: throughput over time, slowest shards, errors by kind. */
export function bulkReport(job: BulkJob, status: JobStatus): Report {
  const { shards, rows, errors, records, workers } = status;
  const isDone = shards.done === shards.total;
  const failed = errorCount(errors);
  const throughput = throughputOverTime(records);
  return {
    title: "Bulk job",
    verdict: `${counted(rows, "row")} of ${job.model.name} in ${formatCount(shards.done)} of ${counted(shards.total, "shard")}, ${counted(failed, "error")}`,
    tone: isDone ? "good" : "care",
    ...(!isDone && { warning: "The job is not done." }),
    facts: [
      ["source", job.source],
      ["reused rows", formatCount(status.reused)],
      ["errors", errorsText(errors)],
      ...(status.usd === undefined ? [] : [["cost", formatUsd(status.usd)] as const]),
    ],
    failures: [],
    caveats: [],
    summary: [],
    sections: [
      newSection("throughput", "Throughput over time", {
        answer: ["The images of a shard count evenly over the time from its claim to its record."],
        figures: [
          {
            title: "Images per second",
            legend: [],
            draw: (width) =>
              linePlot(
                {
                  description: "Images per second over the time of the job",
                  x: { label: "minutes", kind: "linear", format: (value) => value.toFixed(1) },
                  y: { label: "images/s", kind: "linear", format: formatRate },
                  lines: [{ name: "", style: indexedStyle(0), points: [], curve: throughput }],
                },
                width,
              ),
          },
        ],
      }),
      newSection("workers", "Workers", {
        tables: [
          tableOf("Workers", workers, [
            numberField("worker", ({ worker }) => worker, String),
            textField("host", ({ host }) => host),
            numberField("shards", (worker) => worker.shards, formatCount),
            numberField("images", ({ images }) => images, formatCount),
            numberField("images/s", ({ images, seconds }) => images / seconds, formatRate),
            numberField("peak MiB", ({ peakRssMiB }) => peakRssMiB, formatCount),
          ]),
        ],
      }),
      newSection("shards", "Slowest shards", {
        tables: [
          tableOf(
            "Shards with the longest time",
            [...records].sort((a, b) => secondsOf(b) - secondsOf(a)).slice(0, slowest),
            [
              numberField("shard", ({ shard }) => shard, String),
              numberField("worker", ({ worker }) => worker, String),
              numberField("time", secondsOf, formatDuration),
              numberField("images", imagesOf, formatCount),
              textField("errors", (record) => errorsText(record.errors)),
            ],
          ),
        ],
      }),
      newSection("errors", "Errors by kind", {
        tables: [
          tableOf("Images without a row", Object.entries(errors), [
            textField("code", ([code]) => code),
            numberField("images", ([, count]) => count, formatCount),
          ]),
        ],
      }),
    ],
    subject: [
      ["model", job.model.name],
      ["vectors", job.vectors],
      ["planned", job.plannedAt],
    ],
  };
}

function secondsOf({ startedAt, finishedAt }: DoneShard): number {
  return (Date.parse(finishedAt) - Date.parse(startedAt)) / 1000;
}

/** Points of minutes since the first claim and images per second. */
export function throughputOverTime(
  records: readonly DoneShard[],
): readonly (readonly [minutes: number, imagesPerSecond: number])[] {
  const spans = records.map((record) => ({
    from: Date.parse(record.startedAt),
    to: Date.parse(record.finishedAt),
    images: imagesOf(record),
  }));
  const start = Math.min(...spans.map(({ from }) => from));
  const stepMs = (Math.max(...spans.map(({ to }) => to)) - start) / intervals;
  if (!(stepMs > 0)) return [];
  return Array.from({ length: intervals }, (_, index) => {
    const begin = start + index * stepMs;
    const images = spans.reduce((sum, span) => {
      const overlap = Math.min(span.to, begin + stepMs) - Math.max(span.from, begin);
      return sum + (overlap > 0 ? (span.images * overlap) / (span.to - span.from) : 0);
    }, 0);
    return [((index + 0.5) * stepMs) / 60_000, (images * 1000) / stepMs] as const;
  });
}
