import { formatDuration, formatFraction, formatMs, formatRate } from "../report/document.ts";
import type { CheckResult, VerifyRecord } from "./record.ts";
import { commitText, modelText, summarize } from "./summary.ts";

const words: Readonly<Record<CheckResult["outcome"], string>> = {
  pass: "pass",
  fail: "**FAIL**",
  skip: "skipped",
};

/** A record as Markdown, for a pull request. */
export function reportMarkdown(record: VerifyRecord): string {
  const summary = summarize(record);
  const { subject } = record;
  const total = summary.passed + summary.failed;
  const verdict =
    summary.failed === 0
      ? `${summary.passed} checks passed`
      : `${summary.failed} of ${total} checks failed`;
  const blocks = [
    `## Verification: ${verdict}`,
    `${record.environments.map(({ name }) => `\`${name}\``).join(", ")}, ${subject.runtime} runtime, ${formatDuration(summary.seconds)}, ${record.startedAt.replace("T", " ").slice(0, 16)} UTC, ${commitText(record)}`,
  ];
  if (summary.failures.length > 0) {
    blocks.push("### What failed", summary.failures.map(failureLine).join("\n"));
  }
  blocks.push(
    "### Checks",
    table(
      ["environment", ...summary.asked],
      summary.matrix.map(({ environment, cells }) => [
        environment,
        ...summary.asked.map((id) => words[cells[id].outcome]),
      ]),
    ),
  );
  if (summary.paths.length > 0) {
    blocks.push(
      "### Protocol paths",
      table(
        [
          "environment",
          "path",
          "p50",
          "p95",
          "p99",
          "images/s",
          "requests",
          "cosine",
          "difference",
        ],
        summary.paths.map(({ environment, path, measurement, parity }) => {
          const latency = measurement?.latencyMs;
          return [
            environment,
            path,
            latency === undefined ? "–" : `${formatMs(latency.p50)} ms`,
            latency === undefined ? "–" : `${formatMs(latency.p95)} ms`,
            latency === undefined
              ? "–"
              : plain(`${formatMs(latency.p99)} ms${latency.p99Reliable ? "" : " *"}`),
            measurement === undefined ? "–" : formatRate(measurement.imagesPerSecond),
            measurement === undefined ? "–" : String(measurement.samples),
            parity?.measured.cosine?.toFixed(6) ?? "–",
            parity?.measured.relativeDifference === undefined
              ? "–"
              : formatFraction(parity.measured.relativeDifference),
          ];
        }),
      ),
      `Closed loop, ${subject.settings.concurrency} clients, one image a request; cosine and difference are the worst of ${subject.settings.sampleImages.length} images against the local reference.`,
    );
  }
  blocks.push("### How to read this", summary.caveats.map((it) => `- ${plain(it)}`).join("\n"));
  blocks.push(
    [
      `- model: ${plain(modelText(record))}`,
      `- machine: ${plain(subject.machine.cpu)}, ${subject.machine.cores} cores, ${Math.round(subject.machine.memoryMiB / 1024)} GiB, Node ${subject.machine.node}`,
      ...record.environments.map(
        ({ name, artefact }) =>
          `- ${name}: \`${artefact.file}\`, sha256 ${artefact.sha256.slice(0, 12)}`,
      ),
    ].join("\n"),
  );
  return `${blocks.filter((block) => block !== "").join("\n\n")}\n`;
}

function failureLine({ id, environment, service, path, resource, message }: CheckResult): string {
  const [first = "", ...rest] = message.split("\n");
  const where = [environment, service, path].filter((part) => part !== undefined).join(" / ");
  const log =
    rest.length === 0
      ? ""
      : `\n\n  \`\`\`text\n${rest.map((line) => `  ${line.trim()}`).join("\n")}\n  \`\`\``;
  return `- **${id}** ${where}: ${plain(first)} (\`${resource}\`)${log}`;
}

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Text that Markdown must not read as markup. */
function plain(text: string): string {
  return text.replace(/[\\`*_[\]<>|]/g, "\\$&");
}
