import { formatMs, formatP99 } from "../report/document.ts";
import { type ExerciseLoad, exerciseQuestions, type K8sRecord } from "./k8s-record.ts";

/** What an exercise showed, for a terminal. A pure function of the record. */
export function k8sReport(record: K8sRecord): string {
  const { subject, checks, exercise } = record;
  const { cluster, namespace, deployment, image } = subject;
  const nodes = cluster.nodes.map(({ name, cpu, memory }) => `${name} (${cpu} CPU, ${memory})`);
  const failed = checks.filter(({ passed }) => !passed).length;
  return [
    `${exercise}: ${exerciseQuestions[exercise]}`,
    `Deployment ${namespace}/${deployment} on ${cluster.context}, Kubernetes ${cluster.version}${nodes.length === 0 ? "" : `, ${nodes.join(", ")}`}`,
    `image ${image}`,
    "",
    ...checks.map(({ claim, passed, message }) => `${passed ? "✔" : "✘"} ${claim}: ${message}`),
    ...loadLines(record),
    ...(record.replicas.length > 1 ? ["", `pods ready: ${replicasText(record)}`] : []),
    "",
    failed === 0 ? `${checks.length} checks passed` : `${failed} of ${checks.length} checks failed`,
  ].join("\n");
}

function loadLines({ load }: K8sRecord): readonly string[] {
  if (load === undefined) return [];
  const width = Math.max(...load.phases.map(({ phase }) => phase.length));
  return [
    "",
    `load: ${load.kind === "fixed rate" ? `${load.ratePerSecond} requests a second` : `${load.concurrency} clients in a closed loop`}, a connection for each, ${urlText(load.url)}`,
    ...load.phases.map((phase) => `  ${phase.phase.padEnd(width)}  ${phaseText(phase)}`),
  ];
}

/** A Service that only its cluster reaches is asked through the API server. */
function urlText(url: string): string {
  const [, service] = /\/services\/http:(.+)\/proxy$/.exec(url) ?? [];
  return service === undefined ? url : `Service ${service} through the API server`;
}

function phaseText({ seconds, requests, failed, errors, latencyMs }: ExerciseLoad): string {
  const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  const failures = failed === 0 ? "0 failed" : `${failed} failed (${codes.join(", ")})`;
  const times =
    latencyMs === undefined
      ? ""
      : `, ms: p50 ${formatMs(latencyMs.p50)}, p95 ${formatMs(latencyMs.p95)}, p99 ${formatP99(latencyMs)}, max ${formatMs(latencyMs.max)} of ${latencyMs.samples}`;
  return `${seconds.toFixed(1)} s, ${requests} requests, ${failures}${times}`;
}

/** `2 → 3 (24 s) → 2 (31 s)`: when the number of ready pods changed. */
function replicasText({ replicas }: K8sRecord): string {
  const changes = replicas.filter((point, i) => point.ready !== replicas[i - 1]?.ready);
  return changes
    .map(({ ready, atSeconds }, i) =>
      i === 0 ? String(ready) : `${ready} (${atSeconds.toFixed(0)} s)`,
    )
    .join(" → ");
}
