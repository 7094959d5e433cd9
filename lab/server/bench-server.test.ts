import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import { expect, test } from "vitest";
import { project } from "../../cli/shared/project.ts";
import { renderMarkdown } from "../../report/render/render-md.ts";
import { registerBenchServer } from "./bench-server.ts";
import { parseServerRecord } from "./record.ts";
import { serverReport } from "./report.ts";

async function run(...args: readonly string[]): Promise<void> {
  const command = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  registerBenchServer(command);
  await command.parseAsync(args, { from: "user" });
}

test("fails on an unknown load, and accepts every option", async () => {
  const good = ["--quick", "--no-baseline", "--strict", "--rounds", "5", "--report", "reports"];
  await expect(run(...good, "--only", "c16", "c17")).rejects.toThrow(
    "--only must be of single, c16, batch32, photos, 12mp, tiny, int8, health, got 'c17'",
  );
});

test("fails on an unknown model, tower or load of a tower", async () => {
  await expect(run("--model", "dinov3")).rejects.toThrow(/^model must be one of .*, got 'dinov3'$/);
  await expect(run("--model", "dinov2-small:text")).rejects.toThrow(
    "model dinov2-small must have a text tower",
  );
  await expect(run("--model", "dinov2-small", "--only", "photos")).rejects.toThrow(
    "--only must be of single, c16, got 'photos'",
  );
});

test("fails if rounds is not a number", async () => {
  await expect(run("--rounds", "many")).rejects.toThrow("It must be an integer from 1 to 100.");
});

test("reads the saved records of version 1 and renders the same figures", () => {
  const folder = join(project, "lab/records");
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  expect(files.length).toBeGreaterThan(2);
  for (const file of files) {
    const record = parseServerRecord(readFileSync(join(folder, file), "utf8"), file);
    const saved = readFileSync(join(folder, file.replace(/json$/, "md")), "utf8");
    const row = /^\| 10 KB JPEG, batch 1, concurrency 16 \|.*$/m;
    const rendered = row.exec(renderMarkdown(serverReport(record)))?.[0];
    expect(rendered).toBe(row.exec(saved)?.[0].replaceAll("**", "").replaceAll("✘", "✗"));
  }
});
