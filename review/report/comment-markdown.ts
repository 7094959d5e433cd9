import type { DiffBlock } from "../changes/diff-line.ts";
import type { Review } from "../changes/stack-review.ts";
import { type Block, levels, type Span, type Text, withVisibleControls } from "./comment-blocks.ts";
import { type DocumentOptions, documentOf } from "./comment-document.ts";

/** First line of a comment, by which a workflow finds its own. */
export const commentMarker = "<!-- clipstack-review -->";

/** GitHub rejects longer comments. */
export const commentLimit = 65_536;

interface MarkdownOptions extends Omit<DocumentOptions, "level"> {
  /**
   * Maximum length of the comment in characters.
   *
   * @default 65536 - GitHub's limit
   */
  readonly limit?: number;
}

/** Renders a review as GitHub Markdown, in the most detailed level that fits. */
export function markdownComment(review: Review, options: MarkdownOptions = {}): string {
  const { limit = commentLimit, ...links } = options;
  let text = "";
  for (const level of levels) {
    const blocks = documentOf(review, { level, ...links });
    text = [commentMarker, ...blocks.map(blockText), footer(review), ""].join("\n\n").trimEnd();
    if (text.length < limit) return `${text}\n`;
  }
  const note = `\n\n**Truncated**: see the full report for the rest.\n\n${footer(review)}\n`;
  const closing = "\n\n</details>";
  const room = Math.max(0, limit - note.length - closing.length - 1);
  const truncated = text
    .slice(0, room)
    .replace(/\n[^\n]*$/, "")
    .trimEnd();
  const isOpen = truncated.split("<details>").length > truncated.split("</details>").length;
  return `${truncated}${isOpen ? closing : ""}${note}`;
}

/** Maximum number of identified plans; others count as not reviewed. */
const maxPlans = 200;

/** Start of the last line, which identifies the reviewed plans for `--verify-plan`. Occurs nowhere else in a comment. */
export const plansMarker = "<!-- clipstack-plans ";

function footer({ stacks }: Review): string {
  const list = stacks
    .slice(0, maxPlans)
    .map(({ stack, fingerprint }) => `${markerName(stack)}:${fingerprint}`);
  return `${plansMarker}${list.join(" ")} -->`;
}

/** Encodes a name without spaces and `--`, which would end the HTML comment; `decodeURIComponent` decodes it. */
function markerName(text: string): string {
  return encodeURIComponent(text.replaceAll(/\p{Surrogate}/gu, "_")).replaceAll("--", "%2D%2D");
}

function blockText(block: Block): string {
  switch (block.kind) {
    case "heading":
      return `${"#".repeat(block.level)} ${spansText(block.text)}`;
    case "text":
      return spansText(block.text);
    case "list":
      return block.items.map((item) => `- ${spansText(item)}`).join("\n");
    case "table":
      return [
        row(block.head),
        `|${block.head.map(() => " --- |").join("")}`,
        ...block.rows.map(row),
      ].join("\n");
    case "diff":
      return diffText(block.title, block.diffs);
    case "details":
      return [
        "<details>",
        `<summary>${htmlText(spansPlain(block.summary))}</summary>`,
        "",
        block.blocks.map(blockText).join("\n\n"),
        "",
        "</details>",
      ].join("\n");
  }
}

function row(cells: readonly Text[]): string {
  return `| ${cells.map((cell) => spansText(cell).replaceAll("|", "\\|")).join(" | ")} |`;
}

function spansText(spans: Text): string {
  return spans.map(spanText).join("");
}

function spanText(span: Span): string {
  if (typeof span === "string") return escaped(span);
  if ("break" in span) return "<br>";
  if ("code" in span) return code(span.code);
  if ("strong" in span) return span.strong === "" ? "" : `**${escaped(span.strong)}**`;
  return `[${escaped(span.text)}](${encodeURI(span.link).replaceAll(/[()]/g, encodeURIComponent)})`;
}

function spansPlain(spans: Text): string {
  return spans
    .map((span) => (typeof span === "string" ? span : String(Object.values(span).at(-1))))
    .join("");
}

/** URL without trailing punctuation, which GitHub would turn into a link. */
const url = /((?:[a-z][a-z0-9+.-]*:\/\/|www\.)[^\s<>]*[^\s<>.,:;!?'")\]])/i;

/** Escapes tags, emphasis, links and mentions. */
function escaped(text: string): string {
  return text
    .split(url)
    .map((part, index) => (index % 2 === 1 ? code(part) : escapedWords(part)))
    .join("");
}

function escapedWords(text: string): string {
  return withVisibleControls(text)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll(/[\\`*[\]~]/g, "\\$&")
    .replaceAll(/(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])/g, "\\_")
    .replaceAll(/[@#](?=\w)|\bGH-(?=\d)|:(?=\/\/)|\bwww(?=\.)/gi, (match) => `${match}<!---->`);
}

/** Removes the markers that programs search for, in code that cannot be escaped. */
function withoutMarkers(text: string): string {
  return withVisibleControls(text).replaceAll("<!--", "<! --");
}

function code(text: string): string {
  const line = withoutMarkers(text);
  const runs = [...line.matchAll(/`+/g)].map(([run]) => run.length);
  const fence = "`".repeat(Math.max(0, ...runs) + 1);
  const space = line.startsWith("`") || line.endsWith("`") ? " " : "";
  return line === "" ? "" : `${fence}${space}${line}${space}${fence}`;
}

function htmlText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function diffText(title: string, diffs: readonly DiffBlock[]): string {
  const lines = diffs.flatMap(({ title: part, lines: all }) => [
    ...(part === "" ? [] : [`@@ ${part} @@`]),
    ...all.flatMap(({ path, before, after }) => [
      ...(before === undefined ? [] : [`- ${path}: ${before}`]),
      ...(after === undefined ? [] : [`+ ${path}: ${after}`]),
    ]),
  ]);
  const clean = lines.map(withoutMarkers);
  const runs = clean.flatMap((line) => [...line.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(Math.max(2, ...runs) + 1);
  return `**${escaped(title)}**\n\n${fence}diff\n${clean.join("\n")}\n${fence}`;
}
