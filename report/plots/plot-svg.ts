import { escapeHtml } from "../document/document.ts";
export const narrowWidth = 500;

export const textHeight = 16;

export const letterWidth = 7.1;

export type Scale = (value: number) => number;

export function truncate(text: string, width: number): string {
  const room = Math.floor((width - 8) / letterWidth);
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}

export const crossAt = (x: number, y: number) =>
  `<path class="crossed" d="M${x - 5} ${y - 5}l10 10M${x + 5} ${y - 5}l-10 10"/>`;

export function svg(
  width: number,
  height: number,
  description: string,
  content: readonly string[],
): string {
  return `<svg viewBox="0 0 ${width} ${round(height)}" width="${width}" height="${round(height)}" role="img" aria-label="${escapeHtml(description)}">\n${content.join("\n")}\n</svg>`;
}

export function label(x: number, y: number, style: string, text: string, anchor = "start"): string {
  return `<text class="${style}" x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escapeHtml(text)}</text>`;
}

export const round = (value: number) => Math.round(value * 10) / 10;

export interface Frame {
  readonly x: Scale;
  readonly y: Scale;
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}
