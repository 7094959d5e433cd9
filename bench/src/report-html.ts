import {
  escapeHtml,
  formatDuration,
  formatFraction,
  formatMs,
  formatP99,
  formatRate,
} from "../report/document.ts";
import { type CheckId, type CheckResult, checkQuestions, type VerifyRecord } from "./record.ts";
import { commitText, modelText, type Summary, summarize } from "./summary.ts";
import { latencyPlot, parityPlot, throughputPlot } from "./svg-plots.ts";

/** A record as one HTML file: opens from disk, asks the network for nothing, prints, and follows a dark theme. */
export function reportHtml(record: VerifyRecord): string {
  const summary = summarize(record);
  const names = record.environments.map(({ name }) => name).join(", ");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>clipstack verify: ${escapeHtml(names)}</title>
<style>${style}</style>
</head>
<body>
<main>
${[
  header(record, summary),
  failures(summary),
  matrix(summary),
  caveats(summary),
  performance(record, summary),
  parity(record, summary),
  details(record),
  subject(record),
]
  .filter((section) => section !== "")
  .join("\n")}
</main>
</body>
</html>
`;
}

const marks: Readonly<Record<CheckResult["outcome"], string>> = { pass: "✓", fail: "✗", skip: "–" };
const words: Readonly<Record<CheckResult["outcome"], string>> = {
  pass: "pass",
  fail: "fail",
  skip: "skipped",
};

function header(record: VerifyRecord, summary: Summary): string {
  const total = summary.passed + summary.failed;
  const verdict =
    summary.failed === 0
      ? `All ${total} checks passed`
      : `${summary.failed} of ${total} checks failed`;
  const skipped = summary.skipped === 0 ? "" : `, ${summary.skipped} skipped`;
  const facts: readonly (readonly [string, string])[] = [
    ["Environments", record.environments.map(({ name }) => name).join(", ")],
    ["Runtime", record.subject.runtime],
    ["Model", modelText(record)],
    ["Commit", commitText(record)],
    [
      "When",
      `${record.startedAt.replace("T", " ").slice(0, 16)} UTC, ${formatDuration(summary.seconds)}`,
    ],
    ["Machine", `${record.subject.machine.cpu}, ${record.subject.machine.cores} cores`],
  ];
  return `<header class="${summary.failed === 0 ? "good" : "bad"}">
<p class="kicker">clipstack verify</p>
<h1><span class="seal" aria-hidden="true">${summary.failed === 0 ? "✓" : "✗"}</span>${verdict}<small>${skipped}</small></h1>
<dl class="facts">
${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${escapeHtml(value)}</dd></div>`).join("\n")}
</dl>
</header>`;
}

function failures(summary: Summary): string {
  if (summary.failures.length === 0) return "";
  const items = summary.failures.map(
    (check) => `<li>
<p class="where"><span class="badge fail">${check.id}</span> ${escapeHtml(placeOf(check))}</p>
${messageHtml(check.message)}
<p class="resource">${escapeHtml(check.resource)}</p>
</li>`,
  );
  return section("failed", "What failed", `<ul class="failures">${items.join("\n")}</ul>`);
}

function placeOf({ environment, service, path }: CheckResult): string {
  return [environment, service, path].filter((part) => part !== undefined).join(" / ");
}

/** A message, and below it the log that it may carry. */
function messageHtml(message: string): string {
  const [first = "", ...rest] = message.split("\n");
  const log =
    rest.length === 0
      ? ""
      : `<pre>${escapeHtml(rest.map((line) => line.replace(/^ {4}/, "")).join("\n"))}</pre>`;
  return `<p class="message">${escapeHtml(first)}</p>${log}`;
}

function matrix(summary: Summary): string {
  const head = summary.asked.map(
    (id) => `<th scope="col" title="${escapeHtml(checkQuestions[id])}">${id}</th>`,
  );
  const rows = summary.matrix.map(({ environment, cells }) => {
    const row = summary.asked.map((id) => {
      const { outcome, passed, failed, skipped } = cells[id];
      const counts = [
        failed > 0 ? `${failed} failed` : "",
        passed > 0 ? `${passed} passed` : "",
        skipped > 0 ? `${skipped} skipped` : "",
      ].filter((part) => part !== "");
      return `<td class="cell ${outcome}" title="${counts.join(", ") || "nothing to check"}"><span aria-hidden="true">${marks[outcome]}</span><span class="reader">${words[outcome]}</span></td>`;
    });
    return `<tr><th scope="row">${escapeHtml(environment)}</th>${row.join("")}</tr>`;
  });
  const questions = summary.asked.map(
    (id) => `<div><dt>${id}</dt><dd>${escapeHtml(checkQuestions[id])}</dd></div>`,
  );
  return section(
    "checks",
    "Checks",
    `<div class="scroll"><table class="matrix"><thead><tr><td></td>${head.join("")}</tr></thead><tbody>${rows.join("\n")}</tbody></table></div>
<details class="quiet"><summary>What each check asks</summary><dl class="questions">${questions.join("\n")}</dl></details>`,
  );
}

function caveats(summary: Summary): string {
  if (summary.caveats.length === 0) return "";
  const items = summary.caveats.map((caveat) => {
    const colon = caveat.indexOf(":");
    return `<li><strong>${escapeHtml(caveat.slice(0, colon + 1))}</strong>${escapeHtml(caveat.slice(colon + 1))}</li>`;
  });
  return section("reading", "How to read this", `<ul class="caveats">${items.join("\n")}</ul>`);
}

function performance(record: VerifyRecord, summary: Summary): string {
  const measured = summary.paths.filter((row) => row.measurement?.latencyMs !== undefined);
  if (measured.length === 0) return "";
  const { settings } = record.subject;
  const rows = summary.paths.flatMap(({ environment, path, measurement }) => {
    if (measurement === undefined) return [];
    const { latencyMs: latency, errors } = measurement;
    const failed = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
    const numbers =
      latency === undefined
        ? ["–", "–", "–", "–"]
        : [formatMs(latency.p50), formatMs(latency.p95), formatP99(latency), formatMs(latency.max)];
    const cells = [
      ...numbers,
      formatRate(measurement.imagesPerSecond),
      String(measurement.samples),
      failed.join(", ") || "none",
    ];
    return [
      `<tr><th scope="row">${escapeHtml(environment)}</th><td>${path}</td>${cells.map((cell) => `<td class="number">${escapeHtml(cell)}</td>`).join("")}</tr>`,
    ];
  });
  const legend = `<p class="legend"><span><svg width="14" height="14" aria-hidden="true"><circle class="p50" cx="7" cy="7" r="6"/></svg> p50</span><span><svg width="8" height="14" aria-hidden="true"><line class="p95" x1="4" x2="4" y1="0" y2="14"/></svg> p95</span><span><svg width="12" height="14" aria-hidden="true"><circle class="p99" cx="6" cy="7" r="4.5"/></svg> p99</span><span><svg width="12" height="14" aria-hidden="true"><circle class="p99 weak" cx="6" cy="7" r="4.5"/></svg> p99 from fewer than ${settings.p99MinimumSamples} requests</span></p>`;
  return section(
    "load",
    "Latency and throughput",
    `<p>Closed loop: ${settings.concurrency} clients, each with one image a request, ${settings.secondsPerPath} s a path. It shows how much a path can do, not how it behaves at a given rate.</p>
<figure><figcaption>Latency, ms</figcaption>${legend}${latencyPlot(measured)}</figure>
<figure><figcaption>Throughput, images/s</figcaption>${throughputPlot(measured)}</figure>
<div class="scroll"><table><thead><tr><th scope="col">environment</th><th scope="col">path</th>${["p50 ms", "p95 ms", "p99 ms", "max ms", "images/s", "requests", "errors"].map((name) => `<th scope="col" class="number">${name}</th>`).join("")}</tr></thead><tbody>${rows.join("\n")}</tbody></table></div>`,
  );
}

function parity(record: VerifyRecord, summary: Summary): string {
  const compared = summary.paths.filter((row) => (row.parity?.images?.length ?? 0) > 0);
  if (compared.length === 0) return "";
  const { cosineAtLeast, relativeDifferenceAtMost, sampleImages } = record.subject.settings;
  const rows = compared.map(({ environment, path, parity: check }) => {
    const { cosine = Number.NaN, relativeDifference = Number.NaN } = check?.measured ?? {};
    const outcome = check?.outcome ?? "skip";
    return `<tr><th scope="row">${escapeHtml(environment)}</th><td>${path}</td><td class="number">${cosine.toFixed(7)}</td><td class="number">${formatFraction(relativeDifference)}</td><td class="outcome ${outcome}">${marks[outcome]} ${words[outcome]}</td></tr>`;
  });
  return section(
    "parity",
    "Parity",
    `<p>The same image must give the same embedding on every path. Each dot is one answer for one of ${sampleImages.length} sample images: how far it is from the embedding that the model in the bench's own process gives, ‖a − b‖ / ‖b‖. It must be at most ${formatFraction(relativeDifferenceAtMost)}, with a cosine of at least ${cosineAtLeast}.</p>
<figure><figcaption>Relative difference, logarithmic</figcaption>${parityPlot(compared, relativeDifferenceAtMost)}</figure>
<div class="scroll"><table><thead><tr><th scope="col">environment</th><th scope="col">path</th><th scope="col" class="number">worst cosine</th><th scope="col" class="number">worst difference</th><th scope="col" class="outcome">outcome</th></tr></thead><tbody>${rows.join("\n")}</tbody></table></div>`,
  );
}

function details(record: VerifyRecord): string {
  const environments = record.environments.map(
    ({ name, services, artefact, where, notes, seconds }) => {
      const rows = record.checks
        .filter((check) => check.environment === name)
        .map(
          (check) =>
            `<tr><td>${check.id}</td><td>${escapeHtml(check.service)}</td><td>${check.path ?? ""}</td><td class="outcome ${check.outcome}">${marks[check.outcome]}<span class="reader">${words[check.outcome]}</span></td><td>${messageHtml(check.message)}${measuredHtml(check)}</td></tr>`,
        );
      const list = services.map(
        (service) =>
          `<li><strong>${escapeHtml(service.name)}</strong>: ${escapeHtml(service.resource)}, ${service.engine === undefined ? "" : `engine ${service.engine}, `}${service.processes} ${service.processes === 1 ? "process" : "processes"}</li>`,
      );
      const noted = notes.map((note) => `<li>${escapeHtml(note)}</li>`);
      return `<details${record.passed ? "" : " open"}><summary>${escapeHtml(name)} <small>${rows.length} checks, ${formatDuration(seconds)}</small></summary>
<p>Deploys to <code>${escapeHtml(where)}</code>. Read from <code>${escapeHtml(artefact.file)}</code>, sha256 <code>${artefact.sha256.slice(0, 16)}</code>${artefact.editedByHand ? ", edited by hand after it was synthesized" : ""}.</p>
<ul>${list.join("")}</ul>
${noted.length === 0 ? "" : `<p>Different from the real thing on purpose:</p><ul>${noted.join("")}</ul>`}
<div class="scroll"><table class="log"><thead><tr><th scope="col">check</th><th scope="col">service</th><th scope="col">path</th><th scope="col"><span class="reader">outcome</span></th><th scope="col">what was found</th></tr></thead><tbody>${rows.join("\n")}</tbody></table></div></details>`;
    },
  );
  return section("details", "Every check", environments.join("\n"));
}

/** Whose measured times the message does not say already. */
const timedChecks: ReadonlySet<CheckId> = new Set(["batches"]);

function measuredHtml(check: CheckResult): string {
  if (!timedChecks.has(check.id)) return "";
  const values = Object.entries(check.measured).map(
    ([name, value]) => `${name.replace(/Ms$/, "")} ${formatMs(value)} ms`,
  );
  return values.length === 0 ? "" : `<p class="measured">${escapeHtml(values.join(" · "))}</p>`;
}

function subject(record: VerifyRecord): string {
  const { machine, settings, server, model } = record.subject;
  const facts: readonly (readonly [string, string])[] = [
    ["Processor", `${machine.cpu}, ${machine.cores} cores`],
    ["Memory", `${Math.round(machine.memoryMiB / 1024)} GiB`],
    ["System", `${machine.os}, Node ${machine.node}`],
    ["Server", server],
    ["Model file", model.sha256 === undefined ? model.name : `sha256 ${model.sha256}`],
    ["Port offset", String(settings.portOffset)],
    ["Sample images", settings.sampleImages.join(", ")],
    ["Record", `schema ${record.schema}, ${record.kind}`],
  ];
  return section(
    "subject",
    "What was measured, and on what",
    `<dl class="facts wide">${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${escapeHtml(value)}</dd></div>`).join("\n")}</dl>`,
  );
}

function section(id: string, title: string, body: string): string {
  return `<section aria-labelledby="${id}"><h2 id="${id}">${title}</h2>\n${body}\n</section>`;
}

const style = `
:root {
  --page: #fbfbf9; --surface: #ffffff; --line: #e3e2dc; --ink: #1c1c1a; --soft: #5d5c57;
  --mark: #2f5fb3; --mark-soft: #b9cbea; --good: #1d7a46; --good-soft: #e4f2e9; --bad: #b3261e; --bad-soft: #fbe9e7;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #161614; --surface: #1f1f1c; --line: #383833; --ink: #ecebe6; --soft: #a5a49c;
    --mark: #86aef0; --mark-soft: #3b5179; --good: #6cc992; --good-soft: #1c3326; --bad: #f28b82; --bad-soft: #3d211f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Liberation Sans", sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 40px 24px 80px; }
header { border-left: 4px solid var(--good); padding-left: 20px; margin-bottom: 40px; }
header.bad { border-color: var(--bad); }
.kicker { margin: 0; color: var(--soft); font-size: 14px; }
h1 { margin: 2px 0 18px; font-size: 32px; line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; text-wrap: balance; }
h1 .seal { color: var(--good); margin-right: 10px; }
header.bad .seal { color: var(--bad); }
h1 small { color: var(--soft); font-weight: 400; font-size: 20px; }
h2 { margin: 48px 0 14px; font-size: 21px; font-weight: 620; letter-spacing: -0.01em; }
p, ul { margin: 0 0 14px; max-width: 68ch; }
small { color: var(--soft); font-weight: 400; }
code, pre { font-family: var(--mono); font-size: 0.875em; overflow-wrap: anywhere; }
pre { background: var(--surface); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; overflow-x: auto; white-space: pre-wrap; margin: 6px 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 10px 28px; margin: 0; }
.facts.wide { grid-template-columns: minmax(0, 1fr); }
.facts dt, .questions dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.facts.wide div { display: grid; grid-template-columns: 140px minmax(0, 1fr); align-items: baseline; }
.questions { display: grid; gap: 6px; margin: 10px 0 0; }
.questions div { display: grid; grid-template-columns: 110px 1fr; align-items: baseline; }
.questions dd { margin: 0; }
.failures { list-style: none; padding: 0; max-width: none; display: grid; gap: 12px; }
.failures li { background: var(--bad-soft); border-radius: 8px; padding: 14px 16px; }
.failures p { margin: 0; max-width: none; overflow-wrap: anywhere; }
.failures .message { margin: 4px 0; font-weight: 600; }
.failures .resource { color: var(--soft); font-family: var(--mono); font-size: 13px; }
.badge { font-size: 13px; font-weight: 650; color: var(--bad); }
.caveats { padding-left: 20px; }
.caveats li { margin-bottom: 8px; }
.scroll { overflow-x: auto; position: relative; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 7px 12px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 500; font-size: 13px; white-space: nowrap; }
tbody th { font-weight: 600; white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
.matrix th, .matrix td { text-align: center; padding: 8px 8px; }
.matrix tbody th { text-align: left; padding-left: 0; }
.matrix th, .matrix td { vertical-align: middle; }
.outcome { padding-left: 14px; }
.cell { font-size: 17px; font-weight: 650; }
.cell.pass, .outcome.pass { color: var(--good); }
.cell.fail, .outcome.fail { color: var(--bad); }
.cell.fail { background: var(--bad-soft); }
.cell.skip, .outcome.skip { color: var(--soft); }
td.outcome { white-space: nowrap; font-weight: 600; }
.log td:nth-child(-n+3) { white-space: nowrap; }
.log .message { margin: 0; overflow-wrap: anywhere; }
.log .measured { margin: 2px 0 0; color: var(--soft); font-size: 13px; }
details { border-top: 1px solid var(--line); padding: 10px 0; }
details.quiet { border: 0; }
details.quiet summary { font-weight: 400; color: var(--soft); font-size: 14px; }
summary { cursor: pointer; font-weight: 600; }
details[open] > summary { margin-bottom: 10px; }
figure { margin: 22px 0 30px; }
figcaption { font-weight: 600; margin-bottom: 6px; }
figure > svg { width: 100%; height: auto; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 6px; font-size: 13px; color: var(--soft); max-width: none; }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
svg text { font-family: inherit; fill: var(--ink); }
svg .group { font-size: 14px; font-weight: 600; }
svg .label { font-size: 13px; fill: var(--soft); }
svg .value { font-size: 13px; font-variant-numeric: tabular-nums; }
svg .tick { font-size: 12px; fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .hit { fill: transparent; }
svg .range { stroke: var(--mark-soft); stroke-width: 6; stroke-linecap: round; }
svg .p50 { fill: var(--mark); }
svg .p95 { stroke: var(--mark); stroke-width: 2.5; }
svg .p99 { fill: var(--mark); stroke: var(--mark); stroke-width: 1.5; }
svg .p99.weak { fill: var(--page); }
svg .bar { fill: var(--mark); }
svg .dot { fill: var(--mark); fill-opacity: 0.45; stroke: var(--mark); stroke-width: 1; }
svg .dot.wrong { fill: var(--bad); fill-opacity: 0.8; stroke: var(--bad); }
svg .limit { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 4 3; }
svg .limit-label { font-size: 12px; fill: var(--bad); }
.reader { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
a { color: var(--mark); }
:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px; }
@media print {
  :root { --page: #fff; --surface: #fff; --line: #ccc; --ink: #000; --soft: #444; --mark: #2f5fb3; --mark-soft: #b9cbea; --good: #1d7a46; --bad: #b3261e; --good-soft: #fff; --bad-soft: #fff; }
  main { max-width: none; padding: 0; }
  figure, tr, .failures li { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; height: auto; }
}
`;
