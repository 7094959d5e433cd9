import { scrollShadows } from "../../contract/scroll-shadows.ts";
import type { DiffBlock } from "../changes/diff-line.ts";
import type { Review } from "../changes/stack-review.ts";
import { type Block, type Span, type Text, withVisibleControls } from "./comment-blocks.ts";
import { documentOf } from "./comment-document.ts";

/** Renders a review as one HTML file that loads nothing else and supports printing and dark mode. */
export function htmlReport(
  review: Review,
  { rulesUrl }: { readonly rulesUrl?: string } = {},
): string {
  const blocks = documentOf(review, { level: "full", rulesUrl });
  const names = review.stacks.map(({ stack }) => stack).join(", ");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>clipstack review: ${escapeHtml(names)}</title>
<style>${style}</style>
</head>
<body class="${review.verdict.level}">
<main>
${blocks.map(blockHtml).join("\n")}
</main>
</body>
</html>
`;
}

function blockHtml(block: Block): string {
  switch (block.kind) {
    case "heading": {
      const level = block.level - 1;
      return `<h${level}>${spansHtml(block.text)}</h${level}>`;
    }
    case "text":
      return `<p>${spansHtml(block.text)}</p>`;
    case "list":
      return `<ul>${block.items.map((item) => `<li>${spansHtml(item)}</li>`).join("\n")}</ul>`;
    case "table":
      return `<div class="wide" tabindex="0"><table><thead><tr>${block.head
        .map((cell) => `<th scope="col">${spansHtml(cell)}</th>`)
        .join("")}</tr></thead><tbody>${block.rows
        .map((cells) => `<tr>${cells.map((cell) => `<td>${spansHtml(cell)}</td>`).join("")}</tr>`)
        .join("\n")}</tbody></table></div>`;
    case "diff":
      return `<section class="diff"><p><strong>${escapeHtml(block.title)}</strong></p>${block.diffs.map(diffHtml).join("")}</section>`;
    case "details":
      return `<details><summary>${spansHtml(block.summary)}</summary>${block.blocks.map(blockHtml).join("\n")}</details>`;
  }
}

function diffHtml({ title, lines }: DiffBlock): string {
  const rows = lines.flatMap(({ path, before, after }) => [
    ...(before === undefined ? [] : [`<del>− ${escapeHtml(`${path}: ${before}`)}</del>`]),
    ...(after === undefined ? [] : [`<ins>+ ${escapeHtml(`${path}: ${after}`)}</ins>`]),
  ]);
  const head = title === "" ? "" : `<p class="part">${escapeHtml(title)}</p>`;
  return `${head}<pre tabindex="0">${rows.join("")}</pre>`;
}

function spansHtml(spans: Text): string {
  return spans.map(spanHtml).join("");
}

function spanHtml(span: Span): string {
  if (typeof span === "string") return escapeHtml(span);
  if ("break" in span) return "<br>";
  if ("code" in span) return `<code>${escapeHtml(span.code)}</code>`;
  if ("strong" in span) return `<strong>${escapeHtml(span.strong)}</strong>`;
  const link = /^https?:\/\//.test(span.link) ? span.link : "";
  return link === ""
    ? `<code>${escapeHtml(span.text)}</code>`
    : `<a href="${escapeHtml(link)}">${escapeHtml(span.text)}</a>`;
}

export function escapeHtml(text: string): string {
  return withVisibleControls(text)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}

const style = `
:root { --ink: #1f2328; --soft: #59636e; --paper: #fff; --line: #d1d9e0; --box: #f6f8fa;
  --bad: #b3261e; --good: #1a7f37; --warn: #8a5a00; --minus: #ffebe9; --plus: #dafbe1; }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --soft: #9198a1; --paper: #0d1117; --line: #3d444d;
  --box: #151b23; --bad: #ff7b72; --good: #3fb950; --warn: #d29922; --minus: #3a1618; --plus: #12261e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; border-left: .35rem solid var(--warn); padding-left: .75rem; }
.safe h1 { border-color: var(--good); } .blocked h1 { border-color: var(--bad); }
h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: 1rem; }
li { margin: .3rem 0; }
code { font: .87em/1.4 ui-monospace, monospace; background: var(--box); border-radius: 4px; padding: .1em .35em; overflow-wrap: anywhere; }
.wide { ${scrollShadows("var(--paper)")} }
table { border-collapse: collapse; min-width: 30rem; }
th, td { min-width: 5.5rem; border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--box); font-weight: 600; }
summary { cursor: pointer; color: var(--soft); }
pre { margin: .25rem 0 1rem; border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; font: .87em/1.5 ui-monospace, monospace; }
pre del, pre ins { display: block; text-decoration: none; padding: 0 .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
pre del { background: var(--minus); } pre ins { background: var(--plus); }
.part { color: var(--soft); margin: .25rem 0; }
.diff p { margin-bottom: .25rem; }
@media print { details { display: block; } .wide { background: none; } }
`;
