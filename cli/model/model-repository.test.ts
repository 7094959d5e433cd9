import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { UserError } from "../../contract/user-error.ts";
import { registerModelRepository } from "./model-repository.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-cli-repository-"));
});
afterEach(() => vi.restoreAllMocks());
afterAll(async () => {
  await rm(folder, { recursive: true });
});

/** Runs `clipstack model repository …` and returns its output. */
async function repository(...args: readonly string[]): Promise<string> {
  const log = vi.spyOn(console, "log").mockImplementation(() => undefined);
  const program = new Command();
  registerModelRepository(program);
  await program.parseAsync(["repository", ...args], { from: "user" });
  return log.mock.calls.flat().join("\n");
}

test("writes the models of several specs", async () => {
  const path = join(folder, "models");
  const { models } = JSON.parse(
    await repository("openclip-vit-b32", "dinov2-small", "--folder", path, "--json"),
  ) as { models: string[] };
  expect(models).toContain("openclip_vit_b32_text");
  expect(models).toContain("dinov2_small_jpeg");
  expect(models.filter((name) => !existsSync(join(path, name, "config.pbtxt")))).toEqual([]);
});

test("fails on an unknown model", async () => {
  const unknown = repository("clip", "--folder", join(folder, "other"));
  await expect(unknown).rejects.toThrow(/^model must be one of openclip-vit-b32, .*, got 'clip'$/);
});

test("fails if the folder cannot be written", async () => {
  const file = join(folder, "file");
  await writeFile(file, "");
  const failed = repository("--folder", file);
  await expect(failed).rejects.toThrow(UserError);
  await expect(failed).rejects.toThrow(/cannot be written: (ENOTDIR|EEXIST)$/);
});
