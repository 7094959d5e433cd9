import type { BenchRecord } from "../src/bench-record.ts";
import { caveatsOf } from "./caveats.ts";
import { counted, formatRate } from "./document.ts";
import { sectionsOf } from "./sections.ts";
import { aligned, textTable } from "./text-table.ts";
import { verdictOf } from "./verdict.ts";

/** The end of a run, for a terminal: every load, what to choose and why, what limits it, and what failed. */
export function benchReportText(record: BenchRecord): string {
  const { headline, choices, limits } = verdictOf(record);
  const chosen = choices.flatMap((choice) =>
    choice.winner === undefined
      ? []
      : [[choice.title, choice.winner.name, `${choice.value} ${choice.unit}`, choice.setting]],
  );
  const why = choices.flatMap(({ title, why: reasons, doubts, winner }) =>
    winner === undefined
      ? [`${title}: ${reasons.join(" ")}`]
      : [`${title}: ${[...reasons.slice(0, 2), ...doubts].join(" ")}`],
  );
  const caveats = caveatsOf(record)
    .filter(({ kind }) => kind !== "know")
    .map(({ title, text }) => `! ${title}: ${text}`);
  const loads = sectionsOf(record).find(({ id }) => id === "loads")?.tables[0];
  const within = limits.map(
    ({ limitMs, name, cell }) =>
      `  p95 within ${limitMs} ms: ${name}, ${counted(cell.imagesPerRequest, "image")} a request, ${formatRate(cell.imagesPerSecond)} images/s`,
  );
  return [
    loads === undefined ? "" : textTable(loads),
    `${bare(headline)}.`,
    aligned(chosen, () => "left"),
    why.map(bare).join("\n"),
    within.length === 0 ? "" : `The most within a limit of latency:\n${within.join("\n")}`,
    caveats.map(bare).join("\n"),
    record.failures.map((line) => `✗ ${line}`).join("\n"),
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

const bare = (text: string) => text.replaceAll("`", "");
