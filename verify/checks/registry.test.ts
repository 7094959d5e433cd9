import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { checks } from "./registry.ts";

test("docs/checks.md has the conditions of each check", () => {
  const lines = readFileSync("docs/checks.md", "utf8").split("\n");
  const rows = lines.filter((line) => line.startsWith("| ")).slice(2);
  const cells = rows.map((row) => row.split(" | ").map((cell) => cell.replace(/^\| | \|$/g, "")));
  expect(cells.map(([name, question]) => [name, question])).toEqual(
    checks.map(({ name, question }) => [name, question]),
  );
  for (const [index, { only, skipReason }] of checks.entries()) {
    const [, , simulation, deployed] = cells[index] ?? [];
    const notRun = skipReason === undefined ? "not run" : `not run: ${skipReason}`;
    expect([simulation === notRun, deployed === notRun]).toEqual([
      only === "deployed",
      only === "simulation",
    ]);
  }
});
