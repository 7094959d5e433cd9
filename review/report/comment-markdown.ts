import type { DiffBlock } from "../changes/diff-line.ts";
import type { Review } from "../review.ts";
import { type Block, levels, type Span, type Text, withVisibleControls } from "./comment-blocks.ts";
import { documentOf } from "./comment-document.ts";

/** First line of a comment: a workflow finds its own by it. */
export const commentMarker = "<!-- clipstack-review -->";

/** GitHub rejects longer comments. */
export const commentLimit = 65_536;

export interface MarkdownOptions {
  /** Address of the folder with the pages of the rules, with a slash at its end. */
  readonly rulesUrl?: string;
  /** Where the whole report is, for a comment that is shortened. */
  readonly reportUrl?: string;
  /**
   * Longest comment, in characters.
   *
   * @default 65536 - GitHub's limit
   */
  readonly limit?: number;
}

/** A comment in GitHub's Markdown, in the most detailed level that fits. */
export function markdownComment(review: Review, options: MarkdownOptions = {}): string {
  const { limit = commentLimit, ...links } = options;
  let text = "";
  for (const level of levels) {
    const blocks = documentOf(review, { level, ...links });
    text = [commentMarker, ...blocks.map(blockText), footer(review), ""].join("\n\n").trimEnd();
    // GitHub counts characters as JavaScript does not: one of a pair is none to it
    if (text.length < limit) return `${text}\n`;
  }
  const note = `\n\n**Truncated**: see the full report for the rest.\n\n${footer(review)}\n`;
  const closing = "\n\n</details>";
  const room = Math.max(0, limit - note.length - closing.length - 1);
  const cut = text
    .slice(0, room)
    .replace(/\n[^\n]*$/, "")
    .trimEnd();
  const isOpen = cut.split("<details>").length > cut.split("</details>").length;
  return `${cut}${isOpen ? closing : ""}${note}`;
}

/** Plans that a comment names at most, for the limit: another one counts as not reviewed. */
const maxPlans = 200;

/** How the last line of a comment begins: which plans were reviewed, for `--verify-plan`. Nothing else in it begins so. */
export const plansMarker = "<!-- clipstack-plans ";

function footer({ stacks }: Review): string {
  const list = stacks
    .slice(0, maxPlans)
    .map(({ stack, fingerprint }) => `${markerName(stack)}:${fingerprint}`);
  return `${plansMarker}${list.join(" ")} -->`;
}

/** A name without spaces, which ends no comment of HTML: `decodeURIComponent` gives it back. */
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

/** An address, without the punctuation of the sentence behind it: a bare one would be a link. */
const address = /((?:[a-z][a-z0-9+.-]*:\/\/|www\.)[^\s<>]*[^\s<>.,:;!?'")\]])/i;

/** Text that nothing is made of: no tag, no emphasis, no link, no mention of a person. */
function escaped(text: string): string {
  return text
    .split(address)
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
    .replaceAll(/[@#](?=\w)|\bGH-(?=\d)|:(?=\/\/)|\bwww(?=\.)/gi, (sign) => `${sign}<!---->`);
}

/** What no escape works in, without what programs find in the text of a comment: its markers. */
function unmarked(text: string): string {
  return withVisibleControls(text).replaceAll("<!--", "<! --");
}

/** A span of code, whatever is in it. */
function code(text: string): string {
  const line = unmarked(text);
  const runs = [...line.matchAll(/`+/g)].map(([run]) => run.length);
  const fence = "`".repeat(Math.max(0, ...runs) + 1);
  const space = line.startsWith("`") || line.endsWith("`") ? " " : "";
  return line === "" ? "" : `${fence}${space}${line}${space}${fence}`;
}

function htmlText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** A fence that GitHub colours: what goes in red, what comes in green. */
function diffText(title: string, diffs: readonly DiffBlock[]): string {
  const lines = diffs.flatMap(({ title: part, lines: all }) => [
    ...(part === "" ? [] : [`@@ ${part} @@`]),
    ...all.flatMap(({ path, before, after }) => [
      ...(before === undefined ? [] : [`- ${path}: ${before}`]),
      ...(after === undefined ? [] : [`+ ${path}: ${after}`]),
    ]),
  ]);
  const clean = lines.map(unmarked);
  const runs = clean.flatMap((line) => [...line.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(Math.max(2, ...runs) + 1);
  return `**${escaped(title)}**\n\n${fence}diff\n${clean.join("\n")}\n${fence}`;
}
