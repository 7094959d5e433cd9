import { createHash } from "node:crypto";
import {
  type Card,
  type Caveat,
  type DataTable,
  escapeHtml,
  type Fact,
  type Failure,
  type Figure,
  type Report,
  type Section,
  type TableCell,
} from "../document/document.ts";
import { listed } from "../document/number-format.ts";
import { pageScript } from "./page-script.ts";
import { pageStyle } from "./page-style.ts";

/** Renders a report as one self-contained HTML file: no network access, printable, with a light and a dark theme. */
export function renderHtml(report: Report): string {
  const script = createHash("sha256").update(pageScript).digest("base64");
  const { sections } = report;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-${script}'">
<title>clipstack ${escapeHtml(report.title.toLowerCase())}: ${escapeHtml(report.verdict.replaceAll("`", ""))}</title>
<style>${pageStyle}</style>
</head>
<body>
${sections.length === 0 ? "" : '<a class="skip" href="#evidence">Skip to the evidence</a>'}
<main>
${[
  header(report),
  failures(report.failures),
  ...report.summary.map(section),
  caveats(report.caveats),
  contents(report),
  sections.length === 0 ? "" : `<div id="evidence">\n${sections.map(section).join("\n")}\n</div>`,
  report.subject.length === 0
    ? ""
    : titled("subject", "System under test", facts(report.subject, true)),
]
  .filter((part) => part !== "")
  .join("\n")}
</main>
<p id="status" class="reader" role="status"></p>
<script>${pageScript}</script>
</body>
</html>
`;
}

const seals = { good: "✓", care: "!", bad: "✗" } as const;

function header({ title, verdict, tone, warning, facts: list }: Report): string {
  return `<header class="${tone}">
<p class="kicker">clipstack ${escapeHtml(title.toLowerCase())}</p>
<h1><span class="seal" aria-hidden="true">${seals[tone]}</span>${inline(verdict)}</h1>
${warning === undefined ? "" : `<p class="warning"><strong>Caution:</strong> ${escapeHtml(lowerFirst(warning))}. <a href="#care">Details</a></p>`}
${facts(list)}
</header>`;
}

function titled(id: string, title: string, body: string, style = ""): string {
  return `<section aria-labelledby="${id}"${style === "" ? "" : ` class="${style}"`}>
<h2 id="${id}">${escapeHtml(title)}</h2>
${body}
</section>`;
}

function facts(list: readonly Fact[], wide = false): string {
  const items = list.map(
    ([name, value]) => `<div><dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd></div>`,
  );
  return `<dl class="facts${wide ? " wide" : ""}">\n${items.join("\n")}\n</dl>`;
}

function failures(list: readonly Failure[]): string {
  if (list.length === 0) return "";
  const items = list.map(({ title, text, resource, log }) =>
    [
      "<li>",
      title === undefined ? "" : `<strong>${escapeHtml(title)}:</strong> `,
      escapeHtml(text),
      resource === undefined ? "" : ` <code>${escapeHtml(resource)}</code>`,
      log === undefined ? "" : `<pre>${escapeHtml(log.join("\n"))}</pre>`,
      "</li>",
    ].join(""),
  );
  return titled("failed", "Failures", `<ul>${items.join("\n")}</ul>`, "failed");
}

function card({ title, choice, ties, value, unit, setting, why, doubts }: Card): string {
  const reasons = why.map((line) => `<li>${inline(line)}</li>`).join("");
  const doubt = doubts.map((line) => `<p class="doubt">${escapeHtml(line)}</p>`).join("");
  if (choice === undefined) {
    return `<article class="card none"><h3>${title}</h3><p class="choice">–</p><ul>${reasons}</ul></article>`;
  }
  const also =
    ties.length === 0
      ? ""
      : `<p class="ties">Within the noise: ${listed(ties.map((name) => `<code>${escapeHtml(name)}</code>`))}</p>`;
  return `<article class="card">
<h3>${title}</h3>
<p class="choice"><code>${escapeHtml(choice)}</code></p>
<p class="figure"><strong>${escapeHtml(value)}</strong> ${unit}</p>
<p class="setting">${inline(setting)}</p>
${also}${doubt}<ul>${reasons}</ul>
</article>`;
}

const caveatHeads: Readonly<Record<Caveat["kind"], string>> = {
  subject: "Not the figures of the deployment",
  figures: "Some figures are unreliable",
  know: "Background",
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
  return titled("care", "Limitations", groups.join("\n"), "caveats");
}

function contents({ sections, subject }: Report): string {
  if (sections.length === 0) return "";
  const links = sections.map(
    ({ id, title }) => `<li><a href="#${id}">${escapeHtml(title)}</a></li>`,
  );
  const last = subject.length === 0 ? "" : '<li><a href="#subject">System under test</a></li>';
  return `<nav aria-label="Evidence"><h2>Evidence</h2><ul>${links.join("")}${last}</ul></nav>`;
}

function section(content: Section): string {
  const { id, title, question, answer, cards = [], figures, tables, notes } = content;
  const parts = [
    question === undefined ? "" : `<p class="question">${escapeHtml(question)}</p>`,
    answerHtml(answer),
    cards.length === 0 ? "" : `<div class="cards">\n${cards.map(card).join("\n")}\n</div>`,
    ...figures.map(figure),
    ...tables.map(tableHtml),
    ...notes.map((note) => `<p class="note">${inline(note)}</p>`),
  ];
  return titled(id, title, parts.filter((part) => part !== "").join("\n"));
}

function answerHtml(answer: readonly string[]): string {
  if (answer.length === 0) return "";
  if (answer.length === 1) return `<p class="answer">${inline(answer[0] ?? "")}</p>`;
  return `<ul class="answer">${answer.map((line) => `<li>${inline(line)}</li>`).join("")}</ul>`;
}

/** Widths at which each figure is drawn, so that its text has the same size on phones and larger screens; CSS shows one. */
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

/** Maximum number of rows of a table that is not collapsed. */
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
  const content = `<div class="table"><div class="tablehead"><p class="caption">${escapeHtml(table.caption)}</p></div>
<div class="scroll" role="region" aria-label="${escapeHtml(table.caption)}" tabindex="0"><table class="data"><thead><tr>${head.join("")}</tr></thead>
<tbody>
${body.join("\n")}
</tbody></table></div></div>`;
  return table.isReference === true || table.rows.length > longTable
    ? `<details><summary>${escapeHtml(table.caption)} <small>${table.rows.length} rows</small></summary>\n${content}\n</details>`
    : content;
}

function cellHtml({ text, sort, tone, title }: TableCell, kind: string, first: boolean): string {
  const classes = [kind, ...(tone === undefined ? [] : [tone])].join(" ");
  // absent figures sort last
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

function inline(text: string): string {
  return escapeHtml(text)
    .replace(/`([^`]*)`/g, "<code>$1</code>")
    .replace(/(\d) (%|×|ms|kB|MB|GiB|MiB|images\/s|Mbit\/s)/g, "$1&nbsp;$2");
}

const lowerFirst = (text: string) =>
  /^[A-Z][A-Z]/.test(text) ? text : `${text.charAt(0).toLowerCase()}${text.slice(1)}`;
