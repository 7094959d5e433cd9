import { expect, test } from "vitest";
import { readPublished } from "../lab/capacity/published.ts";
import { resultsDocs } from "./render-results.ts";

const page = resultsDocs();
const published = [...readPublished().values()];

test("every published experiment has its setup, figures and finding on the page, and advice unless it has none", () => {
  for (const { id, title, figures, finding, advice } of published) {
    const start = page.indexOf(`\n### ${title}\n`);
    expect(start, id).toBeGreaterThan(0);
    const end = page.indexOf("\n### ", start + 5);
    const section = page.slice(start, end === -1 ? undefined : end);
    expect(section).toContain(`${id}.json](../lab/published/${id}.json)`);
    for (const { label } of figures) expect(section, id).toContain(`| ${label} |`);
    expect(finding, id).toBeDefined();
    expect(section).toContain(`**Finding.** ${finding}`);
    if (id !== "gpu-peaks") expect(section).toContain(`**Advice.** ${advice}`);
  }
});

test("the predictions beside the figures are those of figures that do not calibrate the model", () => {
  // calibrates the link's bandwidth
  expect(page).toContain("| Triton ONNX, batch 32 | 32.3 img/s |  |  |");
  expect(page).toMatch(/\| ONNX HTTP, concurrency 16 \| 32\.2 img\/s \| 35\.0 \| \+9 % \|/);
});
