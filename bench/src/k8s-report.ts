import {
  commitText,
  counted,
  formatMs,
  formatP99,
  longColumn,
  numberCell,
  numberColumn,
  type Report,
  type Section,
  tableSection,
  textCell,
  textColumn,
  whenText,
} from "../report/document.ts";
import { exerciseQuestions, type K8sRecord } from "./k8s-record.ts";

/** Report of a drill on a cluster. */
export function k8sReport(record: K8sRecord): Report {
  const { subject, checks, exercise } = record;
  const { cluster, namespace, deployment, image, imageId } = subject;
  const failed = checks.filter(({ passed }) => !passed);
  const nodes = cluster.nodes.map(({ name, cpu, memory }) => `${name} (${cpu} CPU, ${memory})`);
  const total = counted(checks.length, "check");
  return {
    title: `Drill ${exercise}`,
    verdict: failed.length === 0 ? `${total} passed` : `${failed.length} of ${total} failed`,
    tone: failed.length === 0 ? "good" : "bad",
    facts: [
      ["Deployment", `${namespace}/${deployment}`],
      ["Cluster", `${cluster.context}, Kubernetes ${cluster.version}`],
      ...(nodes.length === 0 ? [] : [["Nodes", nodes.join(", ")] as const]),
      ["Image", image],
      ["When", whenText(record)],
    ],
    failures: failed.map(({ claim, message }) => ({ title: claim, text: message })),
    caveats: [],
    summary: [checkSection(record), ...loadSections(record), ...replicaSections(record)],
    sections: [],
    subject: [
      ["Commit", commitText(subject)],
      ["Image id", imageId],
      ["Record", `schema ${record.schema}, ${record.kind}`],
    ],
  };
}

function checkSection({ exercise, checks }: K8sRecord): Section {
  const table = {
    caption: "Checks",
    columns: [textColumn("outcome"), textColumn("check"), longColumn("finding")],
    rows: checks.map(({ claim, passed, message }) => [
      textCell(passed ? "✓ pass" : "✗ FAIL", { tone: passed ? "good" : "bad" }),
      textCell(claim),
      textCell(message),
    ]),
  };
  return tableSection("checks", "Checks", table, { answer: [exerciseQuestions[exercise]] });
}

function loadSections({ load }: K8sRecord): readonly Section[] {
  if (load === undefined) return [];
  const rate =
    load.kind === "fixed rate"
      ? `${load.ratePerSecond} requests per second`
      : `${load.concurrency} clients in a closed loop`;
  const table = {
    caption: "Requests in each phase",
    columns: [
      textColumn("phase"),
      ...["seconds", "requests", "failed"].map((name) => numberColumn(name)),
      textColumn("errors"),
      ...["p50 ms", "p95 ms", "p99 ms", "max ms", "samples"].map((name) => numberColumn(name)),
    ],
    rows: load.phases.map(({ phase, seconds, requests, failed, errors, latencyMs }) => [
      textCell(phase),
      numberCell(seconds, (value) => value.toFixed(1)),
      numberCell(requests, String),
      numberCell(failed, String, failed > 0 ? { tone: "bad" } : {}),
      textCell(
        Object.entries(errors)
          .map(([code, count]) => `${count} × ${code}`)
          .join(", ") || "none",
      ),
      numberCell(latencyMs?.p50, formatMs),
      numberCell(latencyMs?.p95, formatMs),
      latencyMs === undefined ? numberCell(undefined, String) : textCell(formatP99(latencyMs)),
      numberCell(latencyMs?.max, formatMs),
      numberCell(latencyMs?.samples, String),
    ]),
  };
  const answer = `${rate}, a new connection for each request, to ${urlText(load.url)}`;
  return [tableSection("load", "Load", table, { answer: [answer] })];
}

/** A Service without an external address is reached through the API server. */
function urlText(url: string): string {
  const [, service] = /\/services\/http:(.+)\/proxy$/.exec(url) ?? [];
  return service === undefined ? url : `Service ${service} through the API server`;
}

/** `2 → 3 (24 s) → 2 (31 s)`: changes in the number of ready pods. */
function replicaSections({ replicas }: K8sRecord): readonly Section[] {
  if (replicas.length < 2) return [];
  const changes = replicas.filter((point, i) => point.ready !== replicas[i - 1]?.ready);
  const answer = changes
    .map(({ ready, atSeconds }, i) =>
      i === 0 ? String(ready) : `${ready} (${atSeconds.toFixed(0)} s)`,
    )
    .join(" → ");
  return [
    { id: "replicas", title: "Ready pods", answer: [answer], figures: [], tables: [], notes: [] },
  ];
}
