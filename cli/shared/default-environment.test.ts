import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { defaultEnvironment } from "./default-environment.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

function environments(files: Readonly<Record<string, string>>): void {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-default-"));
  for (const [name, stack] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.yaml`), `stack: ${stack}\n`);
  }
  vi.stubEnv("CLIPSTACK_ENVIRONMENTS_DIR", folder);
}

test("is the shipped environment of the stack", () => {
  environments({ a: "single-gpu", "single-gpu": "single-gpu", "kind-local": "kind" });
  expect(defaultEnvironment("single-gpu")).toBe("single-gpu");
  expect(defaultEnvironment("kind")).toBe("kind-local");
});

test("is the only environment of the stack if the shipped one was deleted", () => {
  environments({ a: "single-gpu", b: "kind" });
  expect(defaultEnvironment("single-gpu")).toBe("a");
});

test("fails with the names of all environments if several are possible, or none", () => {
  environments({ a: "single-gpu", b: "single-gpu" });
  for (const stack of ["single-gpu", "kind"] as const) {
    expect(() => defaultEnvironment(stack)).toThrow("name an environment: one of a, b");
  }
});
