import { gapTexts, type Topic } from "../changes/coverage.ts";
import type { DiffBlock } from "../changes/diff-line.ts";
import type { StackReview } from "../changes/stack-review.ts";

export type Span =
  | string
  | { readonly break: true }
  | { readonly code: string }
  | { readonly strong: string }
  | { readonly link: string; readonly text: string };
export type Text = readonly Span[];

/** Block of a document, rendered to Markdown and HTML. */
export type Block =
  | { readonly kind: "heading"; readonly level: 2 | 3 | 4; readonly text: Text }
  | { readonly kind: "text"; readonly text: Text }
  | { readonly kind: "list"; readonly items: readonly Text[] }
  | {
      readonly kind: "table";
      readonly head: readonly Text[];
      readonly rows: readonly (readonly Text[])[];
    }
  | { readonly kind: "diff"; readonly title: string; readonly diffs: readonly DiffBlock[] }
  | { readonly kind: "details"; readonly summary: Text; readonly blocks: readonly Block[] };

/** Levels of detail. `full`: lists all changes. `attention`: lists those that need attention and counts the others. `counts`: only numbers. */
export const levels = ["full", "attention", "counts"] as const;
export type Level = (typeof levels)[number];

export function heading(level: 2 | 3 | 4, text: string): Block {
  return { kind: "heading", level, text: [text] };
}

export function details(summary: string, blocks: readonly Block[]): Block {
  return { kind: "details", summary: [summary], blocks };
}

export function list(items: readonly Text[]): Block {
  return { kind: "list", items };
}

/** `2 steps` */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

export function listOf(items: readonly Text[], more = 0, description = ""): readonly Block[] {
  if (items.length === 0 && more <= 0) return [];
  const rest: readonly Text[] =
    more > 0 ? [[`and ${more} more${description === "" ? "" : `: ${description}`}`]] : [];
  return [list([...items, ...rest])];
}

/** Joins lines and prints control characters as codes, because they can reverse the direction of the text. */
export function withVisibleControls(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(/[\p{Cc}\p{Cf}]/gu, (character) => {
    // joins emoji
    if (character === "\u200d") return character;
    return `(U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")})`;
  });
}

/** Items for the resources that were not examined for a topic. */
export function gapItems(stacks: readonly StackReview[], topic: Topic): readonly Text[] {
  const all = stacks.flatMap(({ coverage }) => coverage.unexamined);
  return gapTexts(all, topic).map((text) => [text]);
}
