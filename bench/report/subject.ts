import { type BenchRecord, benchRecordVersion } from "../src/bench-record.ts";
import { modelText as verifyModelText } from "../src/summary.ts";
import { formatBytes, formatDuration, listed } from "./document.ts";

/** What was measured, and on what: the facts that every report names. */

export type Fact = readonly [name: string, value: string];

/** The few that belong to the headline. */
export function headFacts(record: BenchRecord): readonly Fact[] {
  const { subject } = record;
  return [
    ["Environment", placeText(record)],
    ["Computed on", deviceText(record)],
    ["Model", modelText(record)],
    ["Price", priceText(record)],
    ["Commit", commitText(record)],
    ["When", `${dateText(record.startedAt)} UTC, ${formatDuration(secondsOf(record))}`],
  ].filter((fact): fact is [string, string] => fact[1] !== undefined && subject !== undefined);
}

/** Everything else that belongs to a result. */
export function allFacts(record: BenchRecord): readonly Fact[] {
  const { subject, settings } = record;
  const { machine, model } = subject;
  return [
    [
      "Load generator",
      `${machine.cpu}, ${machine.cores} cores, ${Math.round(machine.memoryMiB / 1_024)} GiB`,
    ],
    ["System", `${machine.os}, Node ${machine.node}`],
    [
      "Servers",
      subject.servers
        .map(({ service, name, version }) => `${service}: ${name} ${version}`)
        .join("; "),
    ],
    [
      "GPU",
      subject.gpu === undefined
        ? ""
        : `${subject.gpu.count} × ${subject.gpu.name}${subject.gpu.vramMiB === undefined ? "" : `, ${(subject.gpu.vramMiB / 1_024).toFixed(1)} GiB`}`,
    ],
    ["Price", priceText(record) ?? ""],
    [
      "Model file",
      model.sha256 === undefined ? model.name : `${model.name}, sha256 ${model.sha256}`,
    ],
    [
      "Images",
      `${settings.images.source}: ${settings.images.count}, ${formatBytes(settings.images.meanBytes)} in the mean`,
    ],
    ["Paths", settings.paths.join(", ")],
    [
      "Windows",
      settings.iterations === undefined
        ? `${settings.windowSeconds} s, ${settings.stableWindows} of them within ${Math.round(settings.tolerance * 100)} %, at most ${settings.maxWindows}; ${settings.durationSeconds} s a load at most`
        : `${settings.iterations} requests a load; ${settings.durationSeconds} s at most`,
    ],
    ["Seed", String(settings.seed)],
    ...subject.environments.map(
      ({ name, artefact, where }): Fact => [
        name,
        `${artefact.file}, sha256 ${artefact.sha256.slice(0, 16)}, at ${where}`,
      ],
    ),
    ["Record", `schema ${benchRecordVersion}, ${record.kind}`],
  ].filter((fact): fact is [string, string] => fact[1] !== "");
}

export function placeText({ subject, cells }: BenchRecord): string {
  const names = subject.environments.map(({ name }) => name);
  const measured = [...new Set(cells.map(({ environment }) => environment))];
  return `${listed(names.length > 0 ? names : measured) || "none"}, ${subject.runtime === "endpoints" ? "addresses given by hand" : `${subject.runtime} runtime`}`;
}

/** What computed: with local processes it is this machine, whatever the environment has. */
export function deviceText({ subject }: BenchRecord): string {
  const { gpu, runtime, machine } = subject;
  if (runtime === "embedded") return `this machine's ${machine.cores} CPU cores`;
  if (gpu !== undefined) return `${gpu.count} × ${gpu.name}`;
  return "unknown";
}

export function modelText({ subject: { model } }: BenchRecord): string {
  return verifyModelText({ subject: { model } });
}

export function priceText({ subject: { price } }: BenchRecord): string | undefined {
  return price === undefined
    ? undefined
    : `$${price.usdPerHour} an hour (${price.source}, seen ${price.date})`;
}

export function commitText({ subject }: BenchRecord): string {
  if (subject.commit === undefined) return "no commit";
  return `${subject.commit.slice(0, 12)}${subject.dirty === true ? " with changes" : ""}`;
}

export function dateText(iso: string): string {
  return iso.replace("T", " ").slice(0, 16);
}

export function secondsOf({ startedAt, finishedAt }: BenchRecord): number {
  return (Date.parse(finishedAt) - Date.parse(startedAt)) / 1_000;
}
