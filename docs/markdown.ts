/** Code blocks, code spans, links and anchors of a Markdown page, read line by line. */

export interface CodeBlock {
  /** Language of the block; empty if not given. */
  readonly language: string;
  /** Line number of the first line in the page, from 1. */
  readonly line: number;
  /** Lines without the indentation of the block. */
  readonly lines: readonly string[];
}

export interface Link {
  readonly line: number;
  readonly target: string;
}

export interface Page {
  readonly blocks: readonly CodeBlock[];
  readonly links: readonly Link[];
  /** Code spans outside the blocks. */
  readonly spans: readonly { readonly line: number; readonly text: string }[];
  /** Anchors of the headings, as GitHub generates them. */
  readonly anchors: ReadonlySet<string>;
}

const fence = /^(\s*)```\s*(\S*)/;
const linkPattern = /\]\(([^()\s]+)\)/g;
const spanPattern = /`([^`]+)`/g;

export function readPage(text: string): Page {
  const blocks: CodeBlock[] = [];
  const links: Link[] = [];
  const spans: { line: number; text: string }[] = [];
  const anchors = new Set<string>();
  let open: { language: string; line: number; indent: number; lines: string[] } | undefined;
  for (const [index, content] of text.split("\n").entries()) {
    const line = index + 1;
    const [, indent = "", language = ""] = fence.exec(content) ?? [];
    const isFence = fence.test(content);
    if (open !== undefined) {
      if (isFence) {
        blocks.push({ language: open.language, line: open.line, lines: open.lines });
        open = undefined;
      } else {
        open.lines.push(content.slice(open.indent));
      }
      continue;
    }
    if (isFence) {
      open = { language, line: line + 1, indent: indent.length, lines: [] };
      continue;
    }
    if (/^#{1,6} /.test(content)) anchors.add(freeAnchor(anchorOf(content), anchors));
    for (const [, target = ""] of content.replaceAll(spanPattern, "``").matchAll(linkPattern)) {
      links.push({ line, target });
    }
    for (const [, span = ""] of content.matchAll(spanPattern)) spans.push({ line, text: span });
  }
  if (open !== undefined) throw new Error(`the block of line ${open.line} does not end`);
  return { blocks, links, spans, anchors };
}

/** Anchor of a heading, as GitHub generates it. */
export function anchorOf(heading: string): string {
  return heading
    .replace(/^#+ /, "")
    .toLowerCase()
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .replaceAll(/\s/g, "-");
}

function freeAnchor(anchor: string, taken: ReadonlySet<string>): string {
  for (let number = 0; ; number++) {
    const candidate = number === 0 ? anchor : `${anchor}-${number}`;
    if (!taken.has(candidate)) return candidate;
  }
}
