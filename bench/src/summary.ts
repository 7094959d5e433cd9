import { tritonEngines } from "../../inference-image/src/contract/environment.ts";
import {
  type CheckId,
  type CheckResult,
  checkIds,
  type Measurement,
  type VerifyRecord,
} from "./record.ts";

/** What every report says of a record: computed once, shown as text, Markdown or HTML. */
export interface Summary {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** The families of checks that were asked: a local run has no containers to look at. */
  readonly asked: readonly CheckId[];
  /** One row for each environment, in the order of the run. */
  readonly matrix: readonly MatrixRow[];
  readonly failures: readonly CheckResult[];
  readonly paths: readonly PathRow[];
  /** What the numbers do not say, in whole sentences. */
  readonly caveats: readonly string[];
  readonly seconds: number;
}

export interface MatrixRow {
  readonly environment: string;
  readonly cells: Readonly<Record<CheckId, Cell>>;
}

export interface Cell {
  readonly outcome: CheckResult["outcome"];
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** One protocol path of one service: parity and load side by side. */
export interface PathRow {
  readonly environment: string;
  readonly service: string;
  readonly path: string;
  readonly measurement?: Measurement;
  readonly parity?: CheckResult;
}

export function summarize(record: VerifyRecord): Summary {
  const count = (outcome: CheckResult["outcome"]) =>
    record.checks.filter((check) => check.outcome === outcome).length;
  return {
    passed: count("pass"),
    failed: count("fail"),
    skipped: count("skip"),
    asked: checkIds.filter((id) => record.checks.some((check) => check.id === id)),
    matrix: record.environments.map(({ name }) => ({
      environment: name,
      cells: Object.fromEntries(
        checkIds.map((id) => [
          id,
          cellOf(record.checks.filter((check) => check.environment === name && check.id === id)),
        ]),
      ) as Record<CheckId, Cell>,
    })),
    failures: record.checks.filter((check) => check.outcome === "fail"),
    paths: pathRows(record),
    caveats: caveatsOf(record),
    seconds: (Date.parse(record.finishedAt) - Date.parse(record.startedAt)) / 1_000,
  };
}

/** The worst that happened; a check that only was skipped is not passed. */
function cellOf(checks: readonly CheckResult[]): Cell {
  const count = (outcome: CheckResult["outcome"]) =>
    checks.filter((check) => check.outcome === outcome).length;
  const [passed, failed, skipped] = [count("pass"), count("fail"), count("skip")];
  return { outcome: failed > 0 ? "fail" : passed > 0 ? "pass" : "skip", passed, failed, skipped };
}

function pathRows(record: VerifyRecord): readonly PathRow[] {
  const rows = new Map<string, PathRow>();
  const add = (row: PathRow): void => {
    const key = [row.environment, row.service, row.path].join("/");
    rows.set(key, { ...rows.get(key), ...row });
  };
  for (const check of record.checks) {
    if (check.path === undefined) continue;
    const { environment, service, path } = check;
    add({ environment, service, path, ...(check.id === "parity" ? { parity: check } : {}) });
  }
  for (const measurement of record.measurements) {
    const { environment, service, path } = measurement;
    add({ environment, service, path, measurement });
  }
  return [...rows.values()];
}

const engineWords = {
  tritonserver: "NVIDIA's tritonserver",
  bundled: "clipstack's bundled server, in place of NVIDIA's",
} as const;

/** What the Tritons of each environment are deployed with; nothing where no artefact says so. */
export function enginesText(environments: VerifyRecord["environments"]): string {
  const parts = environments.flatMap(({ name, services }) =>
    tritonEngines.flatMap((engine) => {
      const names = services.filter((service) => service.engine === engine).map((it) => it.name);
      return names.length === 0 ? [] : [`${names.join(", ")} of ${name}: ${engineWords[engine]}`];
    }),
  );
  return parts.length === 0 ? "" : `Engine of the Tritons as deployed: ${parts.join("; ")}.`;
}

function caveatsOf({ subject, environments, measurements }: VerifyRecord): readonly string[] {
  const caveats: string[] = [];
  if (subject.runtime === "embedded") {
    caveats.push(
      "Embedded runtime: local processes of clipstack's bundled server stood in for the containers. Ports, environment, commands and protocols are the synthesized ones; images, drivers, networks and limits were not tried.",
    );
  }
  if (subject.runtime === "deployed") {
    caveats.push(
      "Deployed runtime: requests came from the machine below, and latency has the way there in it. The environment went on serving others, and was not stopped.",
    );
  }
  const onGpu = environments.filter(({ accelerator }) => accelerator === "gpu");
  if (subject.runtime === "embedded" && onGpu.length > 0) {
    caveats.push(
      `CPU in place of a GPU: ${onGpu.map(({ name }) => name).join(" and ")} will run on GPUs, but here ${subject.machine.cores} CPU cores computed, and the bench shared them. Latency and throughput say nothing about a GPU, and nothing about one path against another on it.`,
    );
  }
  const engines = enginesText(environments);
  if (engines !== "") caveats.push(engines);
  if (subject.model.weights === "random") {
    caveats.push(
      "Random weights: the model has the real architecture and cost, but its embeddings mean nothing. What was checked is that every path computes the same ones.",
    );
  }
  if (subject.model.name === "tiny") {
    caveats.push(
      "Tiny model: a toy for tests; its latency and throughput are those of the servers around it.",
    );
  }
  if (measurements.some(({ latencyMs }) => latencyMs?.p99Reliable === false)) {
    caveats.push(
      `Short load: a p99 marked with * comes from fewer than ${subject.settings.p99MinimumSamples} requests, and is about the slowest of them.`,
    );
  }
  for (const { name, artefact } of environments) {
    if (artefact.editedByHand) {
      caveats.push(
        `${name}: ${artefact.file} was edited after it was synthesized, and was verified as it lies.`,
      );
    }
  }
  return caveats;
}

/** The commit, for people: short, and whether files differed from it. */
export function commitText({ subject }: VerifyRecord): string {
  if (subject.commit === undefined) return "no commit";
  return `${subject.commit.slice(0, 12)}${subject.dirty === true ? " with changes" : ""}`;
}

/** The model, for people. */
export function modelText({
  subject: { model },
}: {
  readonly subject: Pick<VerifyRecord["subject"], "model">;
}): string {
  const facts = [
    model.architecture,
    model.weights === undefined ? undefined : `${model.weights} weights`,
    model.seed === undefined ? undefined : `seed ${model.seed}`,
    model.sha256 === undefined ? undefined : `sha256 ${model.sha256.slice(0, 12)}`,
  ].filter((fact) => fact !== undefined);
  return facts.length === 0 ? model.name : `${model.name} (${facts.join(", ")})`;
}
