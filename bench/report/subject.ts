import { commitText, type Fact, machineText, whenText } from "../../report/document/document.ts";
import { counted, formatBytes, listed } from "../../report/document/number-format.ts";
import type { EnvironmentSubject, ModelSubject, Software } from "../../target/subject/subject.ts";
import {
  artefactFacts,
  modelText,
  tritonLabel,
  tritonsText,
} from "../../target/subject/subject-text.ts";
import { type BenchRecord, benchRecordVersion } from "../record/bench-record.ts";
import { gpuStateText } from "./gpu-state.ts";

/** Facts shown below the headline. */
export function headFacts(record: BenchRecord): readonly Fact[] {
  const { subject } = record;
  return [
    ["Environment", environmentText(record)],
    ["Hardware", deviceText(record)],
    [tritonLabel(subject.target), tritonsText(subject.environments) || undefined],
    ["Model", modelText(subject.model)],
    ["Modality", modalityNames[subject.model.modality ?? "image"]],
    ["Price", priceText(record)],
    ["Commit", commitText(subject)],
    ["When", whenText(record)],
  ].filter((fact): fact is [string, string] => fact[1] !== undefined);
}

/** Facts of the last section: hardware, versions, hashes, settings. */
export function allFacts(record: BenchRecord): readonly Fact[] {
  const { subject, settings } = record;
  const { machine, model } = subject;
  return [
    ["Command", subject.commandLine === undefined ? "" : commandText(subject.commandLine)],
    ["Load generator", machineText(machine)],
    ["CPU frequency governor", machine.governor ?? ""],
    ["Limits of the load generator", limitsText(machine.limits)],
    ["Software", `${machine.os}, Node ${machine.node}`],
    [
      "Servers",
      subject.servers
        .map(({ service, name, version, software }) =>
          [`${service}: ${name} ${version}`, ...softwareTexts(software)].join(", "),
        )
        .join("; "),
    ],
    ["Limits of the services", serviceLimitsText(subject.environments)],
    [
      "GPU",
      subject.gpu === undefined
        ? ""
        : `${subject.gpu.count} × ${subject.gpu.name}${subject.gpu.vramMiB === undefined ? "" : `, ${(subject.gpu.vramMiB / 1_024).toFixed(1)} GiB`}`,
    ],
    ["NVIDIA driver", subject.driver ?? ""],
    ["GPU during the load points", gpuStateText(record.loadPoints)],
    ["Price", priceText(record) ?? ""],
    [
      "Model file",
      model.sha256 === undefined ? model.name : `${model.name}, sha256 ${model.sha256}`,
    ],
    ["Model manifest", manifestText(model)],
    [
      subject.model.modality === "text" ? "Texts" : "Images",
      `${settings.images.source}: ${settings.images.count}, mean ${formatBytes(settings.images.meanBytes)}`,
    ],
    ["Endpoints", settings.endpoints.join(", ")],
    ["Rounds", roundsText(settings)],
    ["Seed", String(settings.seed)],
    ...artefactFacts(subject.environments),
    ["Record", `schema ${benchRecordVersion}, ${record.kind}`],
  ].filter((fact): fact is [string, string] => fact[1] !== "");
}

/** `5 rounds of 4 windows of 0.5 s after 0.5 s of warm-up, at most 12 s per load point`. */
export function roundsText(settings: BenchRecord["settings"]): string {
  const { rounds, windows, windowSeconds, warmupSeconds, durationSeconds } = settings;
  return `${counted(rounds, "round")} of ${counted(windows, "window")} of ${windowSeconds} s after ${warmupSeconds} s of warm-up, at most ${durationSeconds} s per load point`;
}

/** Command with quotes where a shell needs them. */
function commandText(args: readonly string[]): string {
  const words = args.map((arg) =>
    /^[\w@%+=:,./*-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", "'\\''")}'`,
  );
  return ["clipstack", ...words].join(" ");
}

function limitsText(limits: BenchRecord["subject"]["machine"]["limits"]): string {
  const { cpus, memoryMiB } = limits ?? {};
  return [
    ...(cpus === undefined ? [] : [`${Number(cpus.toFixed(2))} cores`]),
    ...(memoryMiB === undefined ? [] : [`${(memoryMiB / 1_024).toFixed(1)} GiB of memory`]),
  ].join(", ");
}

function softwareTexts(software: Software | undefined): readonly string[] {
  const { tritonRelease, cuda, tensorrt, onnxRuntime } = software ?? {};
  return (
    [
      ["image release", tritonRelease],
      ["ONNX Runtime", onnxRuntime],
      ["TensorRT", tensorrt],
      ["CUDA", cuda],
    ] as const
  ).flatMap(([name, version]) => (version === undefined ? [] : [`${name} ${version}`]));
}

function serviceLimitsText(environments: readonly EnvironmentSubject[]): string {
  return environments
    .flatMap(({ name, services }) =>
      services.flatMap((service) => {
        const limits = Object.entries(service.limits ?? {});
        if (limits.length === 0) return [];
        const texts = limits.map(([resource, quantity]) => `${resource} ${quantity}`);
        return [`${service.name} of ${name}: ${texts.join(", ")}`];
      }),
    )
    .join("; ");
}

function manifestText({ precision, derivedFromSha256, toolVersions }: ModelSubject): string {
  return [
    ...(precision === undefined ? [] : [precision]),
    ...(derivedFromSha256 === undefined ? [] : [`derived from sha256 ${derivedFromSha256}`]),
    ...Object.entries(toolVersions ?? {}).map(([tool, version]) => `${tool} ${version}`),
  ].join(", ");
}

const modalityNames = { image: "images", text: "texts" } as const;

const targetNames = {
  simulation: "local simulation",
  deployed: "deployed",
  addresses: "addresses given by hand",
} as const;

/** Names of the environments and the kind of target. */
export function environmentText({ subject, loadPoints, tune }: BenchRecord): string {
  const names = tune ? [tune.environment] : subject.environments.map(({ name }) => name);
  const measured = [...new Set(loadPoints.map(({ environment }) => environment))];
  return `${listed(names.length > 0 ? names : measured) || "none"}, ${targetNames[subject.target]}`;
}

/** Hardware that executes the model; in a local simulation, this machine. */
function deviceText({ subject }: BenchRecord): string {
  const { gpu, target, machine } = subject;
  if (target === "simulation") return `this machine's ${machine.cores} CPU cores`;
  if (gpu !== undefined) return `${gpu.count} × ${gpu.name}`;
  return "unknown";
}

function priceText({ subject: { price } }: BenchRecord): string | undefined {
  return price === undefined
    ? undefined
    : `$${price.usdPerHour} per hour (${price.source}, ${price.date})`;
}
