import type { Report } from "../../report/document/document.ts";
import type { LoadPoint } from "../record/bench-record.ts";

/** The reports are written for images. Records of texts use the same report with the other unit. */

/** Matches `image` or `images` as the unit of a rate or a count: `images/s`, `images per request`, `1,000 images`, `4 images`. */
const unit = /\b[Ii]mages?(?=\/s| per )|(?<=(?:million|per|\d) )images?\b|^images$/g;

/** Returns a line of a report; if `isText`, the unit `images` is replaced with `texts`. */
export function inUnit(line: string, isText: boolean): string {
  if (!isText) return line;
  return line.replace(unit, (word) => word.replace("image", "text").replace("Image", "Text"));
}

export function isOfTexts({ loadPoints }: { readonly loadPoints: readonly LoadPoint[] }): boolean {
  return loadPoints.length > 0 && loadPoints.every(({ payload }) => payload === "text");
}

/** Replaces the unit `images` with `texts` in a whole report. */
export function inTexts(report: Report): Report {
  return mapped(report) as Report;
}

function mapped(value: unknown): unknown {
  if (typeof value === "string") return inUnit(value, true);
  if (Array.isArray(value)) return value.map(mapped);
  if (typeof value === "function") return (...args: unknown[]) => mapped(value(...args));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, mapped(part)]));
}
