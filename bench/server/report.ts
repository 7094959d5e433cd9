import { compare, type Fact, type Figure, type Judged, type LoadRow } from "./compare.ts";
import { type SubjectName, subjectNames } from "./loads.ts";
import type { ServerRecord } from "./record.ts";

/** The record as Markdown: what is printed, and what is saved beside the record. */
export function serverReport(record: ServerRecord): string {
  const { rows, facts, misses } = compare(record);
  return `${[
    `# bench-server, ${record.startedAt.slice(0, 10)}`,
    subjectLines(record).join("\n"),
    "## Against the limit and the peer",
    table(
      ["load", "of the limit", "against the peer", "p95 against the peer"],
      rows.map((row) => [
        row.load.title,
        judgedCell(row.ofLimit),
        judgedCell(row.againstPeer),
        judgedCell(row.p95AgainstPeer),
      ]),
    ),
    `${countText(rows, facts)}: median of the rounds' ratios, each round's in parentheses, then what it must be.`,
    "## Images a second",
    ratesTable(rows, "imagesPerSecond"),
    "## Latency, p50 and p95 in ms",
    latencyTable(rows),
    "## Processor time an image, ms",
    ratesTable(rows, "cpuMsPerImage"),
    disturbances(rows),
    "## Beside the loads",
    table(
      ["", "median", "rounds", "must be"],
      facts.map((fact) => [fact.name, valueText(fact), roundsText(fact), targetText(fact)]),
    ),
    ...(misses.length === 0 ? [] : ["## Missed", misses.map((miss) => `- ${miss}`).join("\n")]),
  ].join("\n\n")}\n`;
}

function subjectLines({ subject }: ServerRecord): readonly string[] {
  const { machine, settings, peer, limit, versions, images, models } = subject;
  const { commit, dirty, forms } = subject;
  const peerLine = peer.measured
    ? `${peer.packages.join(", ")}; ${Object.entries(peer.settings)
        .map(([name, value]) => `${name}=${value}`)
        .join(" ")}`
    : `not measured: ${peer.reason}`;
  return [
    `- machine: ${machine.cpu}, ${machine.cores} cores, ${machine.memoryMiB} MiB, ${machine.os}, Node ${machine.node}`,
    `- server: ${commit === undefined ? "no commit" : commit.slice(0, 12)}${dirty ? " with changes" : ""}; ${Object.entries(
      versions,
    )
      .map(([name, version]) => `${name} ${version}`)
      .join(", ")}`,
    ...Object.entries(models).flatMap(([name, model]) =>
      model === undefined
        ? []
        : `- ${name} model: ${model.file}, ${(model.bytes / 1e6).toFixed(1)} MB, ${model.weights} weights`,
    ),
    `- limit: ONNX Runtime alone on ${limit.file} (${limit.form}), session options ${JSON.stringify(limit.sessionOptions)}; the best of the batch sizes up to the load's concurrency`,
    ...forms.map(
      ({ precision, parts, minCosine, images: count }) =>
        `- prepared file, ${precision}: ${parts.join(", ")}; lowest cosine to the standard file ${minCosine.toFixed(6)} on ${count} images`,
    ),
    `- peer: ${peerLine}`,
    `- load: ${settings.loadGenerator}, closed loop, base64 JPEG, ${settings.rounds} rounds of ${settings.seconds} s after ${settings.warmupSeconds} s`,
    ...images.map(
      ({ kind, width, height, bytes }) =>
        `- ${kind}: ${bytes.length} images of ${width} × ${height}, ${kilobytes(Math.min(...bytes))}-${kilobytes(Math.max(...bytes))} KB`,
    ),
  ];
}

const kilobytes = (bytes: number) => Math.round(bytes / 1_000);

function countText(rows: readonly LoadRow[], facts: readonly Fact[]): string {
  const judged = [
    ...rows.flatMap(({ ofLimit, againstPeer, p95AgainstPeer }) => [
      ofLimit,
      againstPeer,
      p95AgainstPeer,
    ]),
    ...facts,
  ].filter((value) => value?.passed !== undefined);
  const passed = judged.filter((value) => value?.passed).length;
  return `${passed} of ${judged.length} targets reached, those of the last table included`;
}

function ratesTable(rows: readonly LoadRow[], what: "imagesPerSecond" | "cpuMsPerImage"): string {
  const subjects = seen(rows, what);
  return table(
    ["load", ...subjects],
    rows.map((row) => [
      row.load.title,
      ...subjects.map((subject) => figureCell(row[what][subject])),
    ]),
  );
}

function latencyTable(rows: readonly LoadRow[]): string {
  const subjects = seen(rows, "p50Ms");
  return table(
    ["load", ...subjects],
    rows.map((row) => [
      row.load.title,
      ...subjects.map((subject) => {
        const [p50, p95] = [row.p50Ms[subject], row.p95Ms[subject]];
        return p50 === undefined || p95 === undefined
          ? ""
          : `${digits(p50.value)} / ${digits(p95.value)}`;
      }),
    ]),
  );
}

function seen(
  rows: readonly LoadRow[],
  what: "imagesPerSecond" | "cpuMsPerImage" | "p50Ms",
): readonly SubjectName[] {
  return subjectNames.filter((subject) => rows.some((row) => row[what][subject] !== undefined));
}

/** Above this, what others did on the machine is said. */
const quietShare = 0.05;

function disturbances(rows: readonly LoadRow[]): string {
  const loud = rows.filter(({ othersShare = 0 }) => othersShare > quietShare);
  if (loud.length === 0) return "Nothing else ran on the machine.";
  const list = loud.map(
    ({ load, othersShare = 0 }) => `${load.id} ${Math.round(100 * othersShare)} %`,
  );
  return `Others used the machine meanwhile, at most: ${list.join(", ")}. Such figures are rough.`;
}

function judgedCell(value: Judged | undefined): string {
  if (value === undefined) return "";
  const rounds = value.rounds.map((one) => one.toFixed(2)).join(", ");
  const { passed, target } = value;
  const verdict =
    target === undefined ? "" : ` ${passed ? "✓" : "✘"} ${target.bound} ${target.value}`;
  return `**${value.value.toFixed(2)}** (${rounds})${verdict}`;
}

function figureCell(value: Figure | undefined): string {
  return value === undefined
    ? ""
    : `${digits(value.value)} (${value.rounds.map(digits).join(", ")})`;
}

function valueText({ value, unit }: Fact): string {
  if (unit === "cosine") return value.toFixed(6);
  return unit === "ratio" ? value.toFixed(2) : `${digits(value)} ${unit}`;
}

function roundsText({ rounds, unit }: Fact): string {
  if (rounds.length < 2) return "";
  const shown = unit === "cosine" ? (one: number) => one.toFixed(6) : digits;
  const [low, high] = [Math.min(...rounds), Math.max(...rounds)];
  return rounds.length > 3
    ? `${shown(low)} to ${shown(high)} in ${rounds.length} runs`
    : rounds.map(shown).join(", ");
}

function targetText({ target, passed, unit }: Fact): string {
  if (target === undefined) return "";
  const shown = unit === "MB" || unit === "ms" ? ` ${unit}` : "";
  return `${passed ? "✓" : "✘"} ${target.bound} ${target.value}${shown}`;
}

/** Three digits that mean something. */
function digits(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
