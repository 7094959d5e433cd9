import {
  commitText,
  errorsText,
  type Field,
  longField,
  newSection,
  numberField,
  p99Field,
  type Report,
  type Section,
  tableOf,
  textField,
  whenText,
} from "../../report/document/document.ts";
import { counted, formatMs } from "../../report/document/number-format.ts";
import { canaryName, type DrillRecord, type PhaseLoad } from "./drill-record.ts";
import { questionOf } from "./registry.ts";

export function drillReport(record: DrillRecord): Report {
  const { subject, checks, drill } = record;
  const { facts, imageIds } = deploymentFacts(subject);
  const failed = checks.filter(({ passed }) => !passed);
  const total = counted(checks.length, "check");
  return {
    title: drill === canaryName ? "Canary" : `Drill ${drill}`,
    verdict: failed.length === 0 ? `${total} passed` : `${failed.length} of ${total} failed`,
    tone: failed.length === 0 ? "good" : "bad",
    facts: [...facts, ["When", whenText(record)]],
    failures: failed.map(({ claim, message }) => ({ title: claim, text: message })),
    caveats: [],
    summary: [checkSection(record), ...loadSections(record), ...replicaSections(record)],
    sections: [],
    subject: [
      ["Commit", commitText(subject)],
      ["Image id", imageIds.join(", ")],
      ["Record", `schema ${record.schema}, ${record.kind}`],
    ],
  };
}

function deploymentFacts(subject: DrillRecord["subject"]): {
  readonly facts: Report["facts"];
  readonly imageIds: readonly string[];
} {
  if ("host" in subject) {
    const { environment, service, host, engine, containers } = subject;
    const imageIds = [...new Set(containers.map(({ imageId }) => imageId))];
    return {
      imageIds,
      facts: [
        ["Environment", environment],
        ["Service", service],
        ["Host", `${host}, Docker ${engine}`],
      ],
    };
  }
  const { cluster, namespace, deployment, image, imageId } = subject;
  const nodes = cluster.nodes.map(({ name, cpu, memory }) => `${name} (${cpu} CPU, ${memory})`);
  return {
    imageIds: [imageId],
    facts: [
      ["Deployment", `${namespace}/${deployment}`],
      ["Cluster", `${cluster.context}, Kubernetes ${cluster.version}`],
      ...(nodes.length === 0 ? [] : [["Nodes", nodes.join(", ")] as const]),
      ["Image", image],
    ],
  };
}

function checkSection({ drill, checks }: DrillRecord): Section {
  const table = tableOf("Checks", checks, [
    textField("outcome", ({ passed }) => ({
      text: passed ? "✓ pass" : "✗ FAIL",
      tone: passed ? "good" : "bad",
    })),
    textField("check", ({ claim }) => claim),
    longField("finding", ({ message }) => message),
  ]);
  return newSection("checks", "Checks", { answer: [questionOf(drill)], tables: [table] });
}

function loadSections({ load }: DrillRecord): readonly Section[] {
  if (load === undefined) return [];
  const rate =
    load.kind === "fixed rate"
      ? `${load.ratePerSecond} requests per second`
      : `${load.concurrency} clients in a closed loop`;
  const table = tableOf("Requests in each phase", load.phases, [
    textField("phase", ({ phase }) => phase),
    numberField(
      "seconds",
      ({ seconds }) => seconds,
      (value) => value.toFixed(1),
    ),
    numberField("requests", ({ requests }) => requests, String),
    numberField(
      "failed",
      ({ failed }) => failed,
      String,
      undefined,
      ({ failed }) => (failed > 0 ? { tone: "bad" } : {}),
    ),
    textField("errors", ({ errors }) => errorsText(errors)),
    ...(load.phases.some(({ rejected }) => rejected !== undefined) ? hostFields : []),
    numberField("p50 ms", ({ latencyMs }) => latencyMs?.p50, formatMs),
    numberField("p95 ms", ({ latencyMs }) => latencyMs?.p95, formatMs),
    p99Field(({ latencyMs }) => latencyMs),
    numberField("max ms", ({ latencyMs }) => latencyMs?.max, formatMs),
    numberField("samples", ({ latencyMs }) => latencyMs?.samples, String),
  ]);
  const answer = `${rate}, a new connection for each request, to ${urlText(load.url)}`;
  return [newSection("load", "Load", { answer: [answer], tables: [table] })];
}

/** Columns of a drill on a Docker host. */
const hostFields: readonly Field<PhaseLoad>[] = [
  textField("rejected", ({ rejected = {} }) => errorsText(rejected)),
  numberField("longest gap ms", ({ longestGapMs }) => longestGapMs, formatMs),
  numberField("disturbed s", ({ disturbedSeconds }) => disturbedSeconds, String),
];

/** A Service without an external address is reached through the API server. */
function urlText(url: string): string {
  const [, service] = /\/services\/http:(.+)\/proxy$/.exec(url) ?? [];
  return service === undefined ? url : `Service ${service} through the API server`;
}

/** `2 → 3 (24 s) → 2 (31 s)`: changes in the number of ready pods. */
function replicaSections({ replicas }: DrillRecord): readonly Section[] {
  if (replicas.length < 2) return [];
  const changes = replicas.filter((point, i) => point.ready !== replicas[i - 1]?.ready);
  const answer = changes
    .map(({ ready, atSeconds }, i) =>
      i === 0 ? String(ready) : `${ready} (${atSeconds.toFixed(0)} s)`,
    )
    .join(" → ");
  return [newSection("replicas", "Ready pods", { answer: [answer] })];
}
