import type { Report } from "../../bench/report/document.ts";
import { renderHtml } from "../../bench/report/render-html.ts";
import { renderMarkdown } from "../../bench/report/render-md.ts";
import { renderText } from "../../bench/report/render-text.ts";

export const reportFormats = ["html", "md", "text", "json"] as const;
export type ReportFormat = (typeof reportFormats)[number];

/** Report and the JSON that it is computed from. */
export interface ReadReport {
  readonly report: () => Report;
  readonly json: string;
}

export function renderAs({ report, json }: ReadReport, format: ReportFormat): string {
  switch (format) {
    case "html":
      return renderHtml(report());
    case "md":
      return renderMarkdown(report());
    case "text":
      return renderText(report());
    case "json":
      return json;
  }
}
