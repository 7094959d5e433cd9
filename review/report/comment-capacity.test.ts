import { expect, test } from "vitest";
import { predictEnvironment } from "../../cli/prepare/predict-environment.ts";
import type { StackChange } from "../input/change.ts";
import { changeOfDocuments } from "../input/document-change.ts";
import { parseDocument } from "../input/synthesized-document.ts";
import { reviewOf } from "../review.ts";
import { savedChange } from "../test-plans.ts";
import { synthesizedText } from "../test-stacks.ts";
import { markdownComment } from "./comment-markdown.ts";

const single = (yaml = "") => parseDocument(synthesizedText("single-gpu", yaml), "single-gpu");
const other = "tritonOnnx: { maxQueueDelayMicroseconds: 1000 }\n";

function totals(changes: readonly StackChange[]): readonly string[] {
  const text = markdownComment(reviewOf(changes, { predict: predictEnvironment }));
  return text.split("\n").filter((line) => /^(\| all \||- all:)/.test(line));
}

test("totals leave out environments that the change does not deploy", () => {
  const changed = ["a", "b"].map((name) => changeOfDocuments(name, single(), single(other)));
  const same = changeOfDocuments("c", single(), single());
  const [row = "", note] = totals([...changed, same]);
  expect(totals(changed)).toEqual([row]);
  expect(row).toMatch(/^\| all \| {2}\| {2}\| {2}\| \d{3,5} \| 4\.00 \| 2920 \| {2}\|$/);
  expect(note).toBe("- all: without c, not changed here and possibly not deployed");
});

test("totals leave out an environment of which a plan has no resources", () => {
  const plan = (stack: string): StackChange => ({ ...savedChange("nothing-changed"), stack });
  expect(totals([plan("a"), plan("b")]).join()).toContain("| 4.00 |");
  const described = { ...plan("b"), resources: [] };
  expect(totals([plan("a"), described])).toEqual([]);
  expect(totals([plan("a"), plan("c"), described]).join()).toContain("| 4.00 |");
});
