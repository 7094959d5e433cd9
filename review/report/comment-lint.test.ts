import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { reviewOf } from "../review.ts";
import { plannedChange } from "../test-plans.ts";
import { markdownComment } from "./comment-markdown.ts";

/** Lists errors in the Markdown of a comment: unclosed fences and details, and incomplete table rows. */
function faultsIn(text: string): readonly string[] {
  const faults: string[] = [];
  let fence = "";
  let folds = 0;
  let cells = 0;
  let empty = 0;
  for (const [index, line] of text.split("\n").entries()) {
    const fault = (message: string) => faults.push(`line ${index + 1}: ${message}`);
    const [ticks = ""] = /^`{3,}/.exec(line) ?? [];
    if (fence !== "") {
      // closed by a line of at least as many backticks
      if (line.startsWith(fence) && /^`+$/.test(line)) fence = "";
      continue;
    }
    if (ticks !== "") fence = ticks;
    if (line === "<details>") folds += 1;
    if (line === "</details>") folds -= 1;
    if (folds < 0) fault("closes a fold that is not open");
    if (line.startsWith("#") && !/^#{2,4} \S/.test(line))
      fault("must be a heading of level 2 to 4");
    empty = line === "" ? empty + 1 : 0;
    if (empty > 1) fault("is a second empty line");
    const row = line.startsWith("|") ? line.split(/(?<!\\)\|/).length : 0;
    if (row > 0 && cells > 0 && row !== cells) fault(`has ${row - 2} cells, not ${cells - 2}`);
    cells = row;
  }
  if (fence !== "") faults.push("a fence is not closed");
  if (folds !== 0) faults.push("a fold is not closed");
  return faults;
}

describe("the Markdown of a comment", () => {
  const folder = fileURLToPath(new URL("../input/plans/", import.meta.url));
  for (const name of readdirSync(folder).filter((it) => it.endsWith(".review.md"))) {
    test(`${name} is well-formed`, () => {
      expect(faultsIn(readFileSync(`${folder}${name}`, "utf8"))).toEqual([]);
    });
  }

  const evil = "</details>|a|```\n```diff\n<details>\n## x\n| b |\n\n\n\\";
  const container = (more: object) => ({ name: evil, image: evil, command: [evil], ...more });
  const change = plannedChange(
    Array.from({ length: 40 }, (_, index) => ({
      address: `docker_container.${evil}${index}`,
      actions: index % 2 === 0 ? ["delete", "create"] : ["update"],
      before: container({ restart: "no", labels: [{ label: evil, value: evil }] }),
      after: container({ restart: evil, labels: [{ label: evil, value: "b" }] }),
      more: { replace_paths: [["restart"]] },
    })),
  );
  test("is well-formed with hostile texts at every size limit", () => {
    const findings = [
      {
        rule: "x",
        severity: "error",
        stack: "test",
        message: evil,
        fix: evil,
        address: evil,
      } as const,
    ];
    const review = reviewOf([change], { findings });
    for (const limit of [65_536, 20_000, 8_000, 5_000, 3_000, 2_500, 2_000, 1_700, 1_500]) {
      expect(faultsIn(markdownComment(review, { limit })), `${limit} characters`).toEqual([]);
    }
  });
});

test.each([
  ["a fence", "```\nx", "a fence is not closed"],
  ["details", "<details>", "a fold is not closed"],
  ["a table", "| a | b |\n| --- |", "line 2: has 1 cells, not 2"],
])("detects an error in %s", (_, text, fault) => {
  expect(faultsIn(text)).toEqual([fault]);
});
