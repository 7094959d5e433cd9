import type { CheckResult, Measurement, VerifyRecord } from "../bench/record/record.ts";
import {
  commitText,
  errorsText,
  type Fact,
  type Failure,
  longField,
  machineText,
  newSection,
  numberField,
  p99Field,
  type Report,
  type Section,
  type TableCell,
  tableOf,
  textField,
  whenText,
} from "../report/document/document.ts";
import {
  counted,
  formatDuration,
  formatFraction,
  formatMs,
  formatRate,
} from "../report/document/number-format.ts";
import { modelsOf } from "../target/subject/subject.ts";
import { warningText } from "../target/subject/subject-caveats.ts";
import {
  artefactFacts,
  modelText,
  tritonLabel,
  tritonsText,
} from "../target/subject/subject-text.ts";
import { locationOf } from "./checks/check-result.ts";
import { checks as registry } from "./checks/registry.ts";
import { caveatsOf } from "./verify-caveats.ts";

/** Report of a verification: checks by environment, then endpoints and every check. */
export function verifyReport(record: VerifyRecord): Report {
  const { environments, checks, subject } = record;
  const failed = checks.filter(({ outcome }) => outcome === "fail");
  const total = checks.filter(({ outcome }) => outcome !== "skip").length;
  const skipped = checks.length - total;
  const verdict =
    failed.length === 0
      ? `${counted(total, "check")} passed`
      : `${failed.length} of ${counted(total, "check")} failed`;
  const tritons = tritonsText(environments);
  const caveats = caveatsOf(record);
  const warning = warningText(caveats);
  return {
    title: "Verification",
    verdict: `${verdict}${skipped === 0 ? "" : `, ${skipped} skipped`}`,
    tone: failed.length > 0 ? "bad" : warning === "" ? "good" : "care",
    ...(warning === "" ? {} : { warning }),
    facts: [
      [
        subject.target === "addresses" ? "Servers" : "Environments",
        subjectsOf(record)
          .map(({ name }) => name)
          .join(", "),
      ],
      ["Target", subject.target],
      modelFact(record),
      ...(tritons === "" ? [] : [[tritonLabel(subject.target), tritons] as const]),
      ["Commit", commitText(subject)],
      ["When", whenText(record)],
      ["Machine", machineText(subject.machine)],
    ],
    failures: failed.map(failureOf),
    caveats,
    summary: [matrixSection(record), ...endpointSections(record)],
    sections: detailSections(record),
    subject: subjectFacts(record),
  };
}

/** Every model that an environment was compared with, by tower. */
function modelFact({ subject, environments }: VerifyRecord): Fact {
  const models = modelsOf(subject.model, environments);
  if (models.length === 1) return ["Model", modelText(subject.model)];
  const texts = models.map(({ spec, modality, ...model }) =>
    modelText({ ...model, spec: modality === "text" ? `${spec} text` : spec }),
  );
  return ["Models", texts.join("; ")];
}

/** The first line of a message is the finding; further lines are a log. */
function failureOf(result: CheckResult): Failure {
  const [text = "", ...log] = result.message.split("\n");
  return {
    title: `${result.id} ${locationOf(result)}`,
    text,
    resource: result.resource,
    ...(log.length === 0 ? {} : { log: log.map((line) => line.replace(/^ {4}/, "")) }),
  };
}

const outcomes = {
  pass: { text: "✓ pass", tone: "good" },
  fail: { text: "✗ FAIL", tone: "bad" },
  skip: { text: "– skipped", tone: "quiet" },
} as const satisfies Readonly<Record<CheckResult["outcome"], TableCell>>;

/** Table cell with the worst outcome of the checks; "skip" only if all were skipped. */
function outcomeCell(checks: readonly CheckResult[]): TableCell {
  const count = (outcome: CheckResult["outcome"]) =>
    checks.filter((check) => check.outcome === outcome).length;
  const [passed, failed, skipped] = [count("pass"), count("fail"), count("skip")];
  const worst = failed > 0 ? "fail" : passed > 0 ? "pass" : "skip";
  return { ...outcomes[worst], title: `${failed} failed, ${passed} passed, ${skipped} skipped` };
}

/** Environments of a record, or its servers. */
function subjectsOf({
  environments,
  checks,
  subject,
}: VerifyRecord): readonly { readonly name: string; readonly seconds?: number }[] {
  if (subject.target !== "addresses") return environments;
  const names = new Set(checks.map(({ environment }) => environment));
  return [...names].map((name) => ({ name }));
}

function matrixSection(record: VerifyRecord): Section {
  const { checks } = record;
  const names = [
    ...new Set([...registry, ...checks.map(({ id }) => ({ name: id }))].map(({ name }) => name)),
  ];
  const columns = names.filter((id) => checks.some((check) => check.id === id));
  const table = tableOf(
    `Checks by ${record.subject.target === "addresses" ? "server" : "environment"}`,
    subjectsOf(record),
    [
      textField("environment", ({ name }) => name),
      ...columns.map((id) =>
        textField<{ readonly name: string }>(
          id,
          ({ name }) =>
            outcomeCell(checks.filter((check) => check.environment === name && check.id === id)),
          registry.find(({ name }) => name === id)?.question,
        ),
      ),
    ],
  );
  return newSection("checks", "Checks", { tables: [table] });
}

interface EndpointRow {
  /** Environment, with the service and the model if it has several with this endpoint. */
  readonly name: string;
  readonly endpoint: string;
  readonly measurement?: Measurement;
  readonly parity?: CheckResult;
}

function endpointRows({ checks, measurements }: VerifyRecord): readonly EndpointRow[] {
  interface Row extends Omit<EndpointRow, "name"> {
    readonly environment: string;
    readonly service: string;
    readonly model?: string;
  }
  const rows = new Map<string, Row>();
  const add = (row: Row): void => {
    const key = [row.environment, row.service, row.endpoint, row.model].join("/");
    rows.set(key, { ...rows.get(key), ...row });
  };
  for (const check of checks) {
    const { environment, service, endpoint, model } = check;
    const parity = check.id === "parity" ? { parity: check } : {};
    if (endpoint !== undefined) add({ environment, service, endpoint, model, ...parity });
  }
  for (const measurement of measurements) {
    const { environment, service, endpoint, model } = measurement;
    add({ environment, service, endpoint, model, measurement });
  }
  const all = [...rows.values()];
  const sameEndpoint = (row: Row) =>
    all.filter((other) => other.environment === row.environment && other.endpoint === row.endpoint);
  return all.flatMap((row) => {
    const same = sameEndpoint(row);
    // checks of all models together have no row of their own
    const byModel = same.some(({ service, model }) => service === row.service && model);
    if (byModel && row.model === undefined) return [];
    const { environment, service, model, ...rest } = row;
    const services = new Set(same.map((other) => other.service));
    const where = services.size > 1 ? `${environment}/${service}` : environment;
    return [{ ...rest, name: model === undefined ? where : `${where}, ${model}` }];
  });
}

function endpointSections(record: VerifyRecord): readonly Section[] {
  const rows = endpointRows(record);
  const { settings } = record.subject;
  if (rows.length === 0) return [];
  const table = tableOf("Latency, throughput and agreement of each endpoint", rows, [
    textField("environment", ({ name }) => name),
    textField("endpoint", ({ endpoint }) => endpoint),
    numberField("p50 ms", ({ measurement }) => measurement?.latencyMs?.p50, formatMs),
    numberField("p95 ms", ({ measurement }) => measurement?.latencyMs?.p95, formatMs),
    p99Field(({ measurement }) => measurement?.latencyMs),
    numberField("images/s", ({ measurement }) => measurement?.imagesPerSecond, formatRate),
    numberField("requests", ({ measurement }) => measurement?.samples, String),
    textField("errors", ({ measurement }) => errorsText(measurement?.errors)),
    numberField(
      "cosine",
      ({ parity }) => parity?.measured.cosine,
      (value) => value.toFixed(6),
    ),
    numberField("difference", (row) => row.parity?.measured.relativeDifference, formatFraction),
  ]);
  const note = `Closed loop: ${settings.concurrency} clients, one image per request, ${settings.secondsPerEndpoint} s per endpoint; this measures capacity, not latency at a fixed rate. Cosine and difference are the worst of ${counted(settings.sampleImages.length, "image")} against the local reference.`;
  const notes = record.measurements.length > 0 ? [note] : [];
  return [newSection("endpoints", "Endpoints", { tables: [table], notes })];
}

/** Checks whose measured times are not in their messages. */
const timedChecks: ReadonlySet<string> = new Set(["batches"]);

function detailSections(record: VerifyRecord): readonly Section[] {
  const { environments, checks } = record;
  const tables = subjectsOf(record).map(({ name, seconds }) =>
    tableOf(
      `${name}: every check${seconds === undefined ? "" : `, ${formatDuration(seconds)}`}`,
      checks.filter((check) => check.environment === name),
      [
        textField("check", ({ id }) => id),
        textField("service", ({ service }) => service),
        textField("endpoint", ({ endpoint }) => endpoint ?? ""),
        textField("outcome", ({ outcome }) => outcomes[outcome]),
        longField("finding", (check) => [check.message, ...timesOf(check)].join("\n")),
      ],
    ),
  );
  const services = tableOf(
    "Services",
    environments.flatMap(({ name, services: list }) =>
      list.map((service) => ({ environment: name, ...service })),
    ),
    [
      textField("environment", ({ environment }) => environment),
      textField("service", ({ name }) => name),
      textField("resource", ({ resource }) => resource),
      textField("Triton", ({ server }) => server ?? ""),
      numberField("processes", ({ processes }) => processes, String),
    ],
  );
  return [
    newSection("details", "Every check", {
      tables: [...tables, services].map((table) => ({ ...table, isReference: true })),
    }),
  ];
}

function timesOf({ id, measured }: CheckResult): readonly string[] {
  const times = Object.entries(measured).map(
    ([name, value]) => `${name.replace(/Ms$/, "")} ${formatMs(value)} ms`,
  );
  return timedChecks.has(id) && times.length > 0 ? [times.join(" · ")] : [];
}

function subjectFacts({ subject, environments, schema, kind }: VerifyRecord): Report["subject"] {
  const { machine, settings, server, model } = subject;
  return [
    ["System", `${machine.os}, Node ${machine.node}`],
    ["Server", server],
    ["Model file", model.sha256 === undefined ? model.name : `sha256 ${model.sha256}`],
    ["Port offset", String(settings.portOffset)],
    ["Sample images", settings.sampleImages.join(", ")],
    ...artefactFacts(environments),
    ["Record", `schema ${schema}, ${kind}`],
  ];
}
