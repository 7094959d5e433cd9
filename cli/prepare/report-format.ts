import type { Report } from "../../report/document/document.ts";
import { renderHtml } from "../../report/render/render-html.ts";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { renderText } from "../../report/render/render-text.ts";

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
