import { createHash } from "node:crypto";
import type { BenchRecord } from "../src/bench-record.ts";
import { type Caveat, caveatsOf, warningText } from "./caveats.ts";
import { settingText } from "./cells.ts";
import {
  type DataTable,
  escapeHtml,
  type Figure,
  formatMs,
  formatRate,
  listed,
  numberCell,
  numberColumn,
  type Section,
  type TableCell,
  textCell,
  textColumn,
} from "./document.ts";
import { pageScript } from "./page-script.ts";
import { pageStyle } from "./page-style.ts";
import { sectionsOf } from "./sections.ts";
import { allFacts, dateText, type Fact, headFacts, placeText } from "./subject.ts";
import { type Choice, type Verdict, verdictOf } from "./verdict.ts";

/**
 * A record as one HTML file: opens from disk, asks the network for nothing, prints, and follows a dark theme. What to choose
 * comes first, then what limits it, then the evidence.
 */
export function benchReportHtml(record: BenchRecord): string {
  const verdict = verdictOf(record);
  const sections = sectionsOf(record);
  const script = createHash("sha256").update(pageScript).digest("base64");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-${script}'">
<title>clipstack bench: ${escapeHtml(placeText(record))}, ${dateText(record.startedAt)}</title>
<style>${pageStyle}</style>
</head>
<body>
<a class="skip" href="#evidence">To the evidence</a>
<main>
${[
  header(record, verdict),
  failures(record),
  choices(verdict),
  caveats(caveatsOf(record)),
  limits(verdict),
  contents(sections),
  `<div id="evidence">\n${sections.map(section).join("\n")}\n</div>`,
  subject(record),
]
  .filter((part) => part !== "")
  .join("\n")}
</main>
<p id="said" class="reader" role="status"></p>
<script>${pageScript}</script>
</body>
</html>
`;
}

function header(record: BenchRecord, { headline }: Verdict): string {
  const warning = warningText(record);
  const [tone, seal] = !record.passed
    ? ["bad", "✗"]
    : warning === ""
      ? ["good", "✓"]
      : ["care", "!"];
  return `<header class="${tone}">
<p class="kicker">clipstack ${record.studies.length > 0 ? "sweep" : "bench"}</p>
<h1><span class="seal" aria-hidden="true">${seal}</span>${inline(headline)}</h1>
${warning === "" ? "" : `<p class="warning"><strong>Read with care:</strong> ${escapeHtml(lowerFirst(warning))}. <a href="#care">Why</a></p>`}
${facts(headFacts(record))}
</header>`;
}

function facts(list: readonly Fact[], wide = false): string {
  const items = list.map(
    ([name, value]) => `<div><dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd></div>`,
  );
  return `<dl class="facts${wide ? " wide" : ""}">\n${items.join("\n")}\n</dl>`;
}

function failures({ failures: list }: BenchRecord): string {
  if (list.length === 0) return "";
  return `<section aria-labelledby="failed" class="failed">
<h2 id="failed">What failed</h2>
<ul>${list.map((line) => `<li>${escapeHtml(line)}</li>`).join("\n")}</ul>
</section>`;
}

function choices({ choices: list }: Verdict): string {
  return `<section aria-labelledby="choose">
<h2 id="choose">What to choose</h2>
<div class="cards">
${list.map(card).join("\n")}
</div>
</section>`;
}

function card({ title, winner, ties, value, unit, setting, why, doubts }: Choice): string {
  const reasons = why.map((line) => `<li>${inline(line)}</li>`).join("");
  const doubt = doubts.map((line) => `<p class="doubt">${escapeHtml(line)}</p>`).join("");
  if (winner === undefined) {
    return `<article class="card none"><h3>${title}</h3><p class="choice">–</p><ul>${reasons}</ul></article>`;
  }
  const also =
    ties.length === 0
      ? ""
      : `<p class="ties">Within the noise: ${listed(ties.map((name) => `<code>${escapeHtml(name)}</code>`))}</p>`;
  return `<article class="card">
<h3>${title}</h3>
<p class="choice"><code>${escapeHtml(winner.name)}</code></p>
<p class="figure"><strong>${escapeHtml(value)}</strong> ${unit}</p>
<p class="setting">${inline(setting)}</p>
${also}${doubt}<ul>${reasons}</ul>
</article>`;
}

const caveatHeads: Readonly<Record<Caveat["kind"], string>> = {
  subject: "These are not the figures of what will run",
  figures: "Some figures are not to be relied on",
  know: "Good to know",
};

function caveats(list: readonly Caveat[]): string {
  if (list.length === 0) return "";
  const groups = (["subject", "figures", "know"] as const).flatMap((kind) => {
    const own = list.filter((caveat) => caveat.kind === kind);
    if (own.length === 0) return [];
    const items = own.map(
      ({ title, text }) => `<li><strong>${escapeHtml(title)}.</strong> ${inline(text)}</li>`,
    );
    return [`<div class="${kind}"><h3>${caveatHeads[kind]}</h3><ul>${items.join("\n")}</ul></div>`];
  });
  return `<section aria-labelledby="care" class="caveats">
<h2 id="care">Before you rely on it</h2>
${groups.join("\n")}
</section>`;
}

function limits({ limits: list }: Verdict): string {
  if (list.length === 0) return "";
  const table: DataTable = {
    caption: "The most images a second whose p95 stays within a limit",
    columns: [
      numberColumn("p95 at most"),
      textColumn("choose"),
      textColumn("load"),
      numberColumn("images/s"),
      numberColumn("its p95 ms"),
    ],
    rows: list.map(({ limitMs, name, cell }) => [
      { text: `${limitMs} ms`, sort: limitMs },
      textCell(name),
      textCell(settingText(cell)),
      numberCell(cell.imagesPerSecond, formatRate),
      numberCell(cell.latencyMs?.p95, formatMs),
    ]),
  };
  return `<section aria-labelledby="limits">
<h2 id="limits">If your latency has a limit</h2>
${tableHtml(table)}
</section>`;
}

function contents(sections: readonly Section[]): string {
  const links = sections.map(({ id, title }) => `<li><a href="#${id}">${title}</a></li>`);
  return `<nav aria-label="Evidence"><h2>Evidence</h2><ul>${links.join("")}<li><a href="#subject">What was measured</a></li></ul></nav>`;
}

function section({ id, title, question, answer, figures, tables, notes }: Section): string {
  const said =
    answer.length === 1
      ? `<p class="answer">${inline(answer[0] ?? "")}</p>`
      : answer.length === 0
        ? ""
        : `<ul class="answer">${answer.map((line) => `<li>${inline(line)}</li>`).join("")}</ul>`;
  const below = notes.map((note) => `<p class="note">${inline(note)}</p>`);
  return `<section aria-labelledby="${id}">
<h2 id="${id}">${title}</h2>
${[question === undefined ? "" : `<p class="question">${escapeHtml(question)}</p>`, said, ...figures.map(figure), ...tables.map(tableHtml), ...below].filter((part) => part !== "").join("\n")}
</section>`;
}

/** Two drawings of each figure, so that text is as large on a phone as on a screen; the page shows one. */
const columnWidths = { wide: 984, narrow: 358 } as const;

function figure({ title, caption, legend, draw }: Figure): string {
  const items = legend.map(
    ({ label, mark, named }) =>
      `<span${named === true ? ' class="named"' : ""}><svg width="26" height="14" viewBox="0 0 26 14" aria-hidden="true">${mark}</svg>${escapeHtml(label)}</span>`,
  );
  return `<figure>
<figcaption><strong>${escapeHtml(title)}</strong>${caption === undefined ? "" : ` <span>${inline(caption)}</span>`}</figcaption>
${items.length === 0 ? "" : `<p class="legend">${items.join("")}</p>`}
<div class="wide">${draw(columnWidths.wide)}</div>
<div class="narrow">${draw(columnWidths.narrow)}</div>
</figure>`;
}

/** Longer ones are folded away: what they say is drawn above them. */
const longTable = 16;

function tableHtml(table: DataTable): string {
  if (table.rows.length === 0) return "";
  const head = table.columns.map(
    ({ label, kind, title }) =>
      `<th scope="col" class="${kind}"${title === undefined ? "" : ` title="${escapeHtml(title)}"`}>${escapeHtml(label)}</th>`,
  );
  const body = table.rows.map(
    (row) =>
      `<tr>${row.map((cell, column) => cellHtml(cell, table.columns[column]?.kind ?? "text", column === 0)).join("")}</tr>`,
  );
  const whole = `<div class="table"><div class="tablehead"><p class="caption">${escapeHtml(table.caption)}</p></div>
<div class="scroll" role="region" aria-label="${escapeHtml(table.caption)}" tabindex="0"><table class="data"><thead><tr>${head.join("")}</tr></thead>
<tbody>
${body.join("\n")}
</tbody></table></div></div>`;
  return table.lookUp === true || table.rows.length > longTable
    ? `<details><summary>${escapeHtml(table.caption)} <small>${table.rows.length} rows</small></summary>\n${whole}\n</details>`
    : whole;
}

function cellHtml({ text, sort, tone, title }: TableCell, kind: string, first: boolean): string {
  const classes = [kind, ...(tone === undefined ? [] : [tone])].join(" ");
  // a dash has no figure: it sorts last
  const key = sort ?? (text === "–" ? "" : undefined);
  const attributes = [
    `class="${classes}"`,
    ...(key === undefined ? [] : [`data-sort="${escapeHtml(String(key))}"`]),
    ...(title === undefined ? [] : [`title="${escapeHtml(title)}"`]),
  ].join(" ");
  return first
    ? `<th scope="row" ${attributes}>${escapeHtml(text)}</th>`
    : `<td ${attributes}>${escapeHtml(text)}</td>`;
}

function subject(record: BenchRecord): string {
  return `<section aria-labelledby="subject">
<h2 id="subject">What was measured, and on what</h2>
${facts(allFacts(record), true)}
</section>`;
}

/** Text with code in backticks. */
function inline(text: string): string {
  return escapeHtml(text)
    .replace(/`([^`]*)`/g, "<code>$1</code>")
    .replace(/(\d) (%|×|ms|kB|MB|GiB|MiB|images\/s|Mbit\/s)/g, "$1&nbsp;$2");
}

const lowerFirst = (text: string) =>
  /^[A-Z][A-Z]/.test(text) ? text : `${text.charAt(0).toLowerCase()}${text.slice(1)}`;
