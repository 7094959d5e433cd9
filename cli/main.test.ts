import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const here = (name: string) => fileURLToPath(new URL(name, import.meta.url));

test("prints the version of its package", () => {
  const { version } = JSON.parse(readFileSync(here("./package.json"), "utf8"));
  const stdout = execFileSync(process.execPath, [here("./clipstack.mjs"), "--version"]);
  expect(stdout.toString()).toBe(`${version}\n`);
});

test("ends without an error if the reader of its output has closed the pipe", async () => {
  const child = spawn(process.execPath, [here("./clipstack.mjs"), "bench", "--help"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.destroy();
  const printed: string[] = [];
  child.stderr.setEncoding("utf8").on("data", (text: string) => printed.push(text));
  const [code] = await once(child, "close");
  expect({ code, printed }).toEqual({ code: 0, printed: [] });
});
