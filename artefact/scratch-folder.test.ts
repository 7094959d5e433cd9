import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { makeScratchFolder } from "./scratch-folder.ts";

const parent = mkdtempSync(join(tmpdir(), "clipstack-scratch-test-"));
afterAll(() => rmSync(parent, { recursive: true, force: true }));

test("removes only folders whose owner is not running", () => {
  const exited = spawnSync(process.execPath, ["--version"]).pid;
  const left = join(parent, `clipstack-verify-${exited}-AbCd12`);
  mkdirSync(left);
  writeFileSync(join(left, "model.onnx"), "");
  const others = ["clipstack-verify-test-AbCd12", `elsewhere-${exited}-AbCd12`];
  for (const name of others) mkdirSync(join(parent, name));
  const first = makeScratchFolder(parent);
  const second = makeScratchFolder(parent);
  expect(existsSync(left)).toBe(false);
  for (const path of [first, second, ...others.map((name) => join(parent, name))]) {
    expect(existsSync(path), path).toBe(true);
  }
  expect(basename(first)).toMatch(new RegExp(`^clipstack-verify-${process.pid}-`));
});
