import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));

test("says the version of its package", () => {
  const { version } = JSON.parse(readFileSync(here("./package.json"), "utf8"));
  const stdout = execFileSync(process.execPath, [here("./clipstack.mjs"), "--version"]);
  expect(stdout.toString()).toBe(`${version}\n`);
});
