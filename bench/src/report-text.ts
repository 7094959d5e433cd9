import { formatFraction, formatMs, formatP99, formatRate } from "../report/document.ts";
import type { CheckResult, VerifyRecord } from "./record.ts";
import { enginesText, summarize } from "./summary.ts";

const marks: Readonly<Record<CheckResult["outcome"], string>> = { pass: "✔", fail: "✘", skip: "–" };

/** The end of a run, for a terminal: environment × check, then each protocol path. */
export function reportText(record: VerifyRecord): string {
  const summary = summarize(record);
  const matrix = table(
    ["", ...summary.asked],
    summary.matrix.map(({ environment, cells }) => [
      environment,
      ...summary.asked.map((id) => marks[cells[id].outcome]),
    ]),
    () => "center",
  );
  const paths = table(
    ["", "path", "p50 ms", "p95 ms", "p99 ms", "images/s", "cosine", "difference"],
    summary.paths.map(({ environment, path, measurement, parity }) => {
      const latency = measurement?.latencyMs;
      return [
        environment,
        path,
        latency === undefined ? "–" : formatMs(latency.p50),
        latency === undefined ? "–" : formatMs(latency.p95),
        latency === undefined ? "–" : formatP99(latency),
        measurement === undefined ? "–" : formatRate(measurement.imagesPerSecond),
        parity?.measured.cosine?.toFixed(6) ?? "–",
        parity?.measured.relativeDifference === undefined
          ? "–"
          : formatFraction(parity.measured.relativeDifference),
      ];
    }),
    (column) => (column === 1 ? "left" : "right"),
  );
  const few = summary.paths.some(
    ({ measurement }) => measurement?.latencyMs?.p99Reliable === false,
  );
  const legend = few ? "* from too few requests: about the slowest of them" : "";
  return [matrix, paths, legend, enginesText(record.environments)]
    .filter((part) => part !== "")
    .join("\n\n");
}

type Align = "left" | "right" | "center";

/** Columns two spaces apart; the first is left-aligned, the others as `align` says. */
function table(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  align: (column: number) => Align,
): string {
  if (rows.length === 0) return "";
  const all = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all
    .map((row) =>
      row
        .map((cell, column) =>
          pad(cell, widths[column] ?? 0, column === 0 ? "left" : align(column)),
        )
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

function pad(text: string, width: number, align: Align): string {
  if (align === "left") return text.padEnd(width);
  if (align === "right") return text.padStart(width);
  const left = Math.floor((width - text.length) / 2);
  return " ".repeat(left) + text.padEnd(width - left);
}
