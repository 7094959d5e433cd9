import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { stackSchemas } from "../stacks/settings/settings.ts";
import { createProject, environmentFiles, problemOf } from "./create-project.mjs";

type Stack = keyof typeof environmentFiles;
const stacks = Object.keys(environmentFiles) as Stack[];

function created(stack: Stack, environment = "staging"): string {
  const folder = join(mkdtempSync(join(tmpdir(), "create-clipstack-")), "My Inference");
  createProject({ folder, stack, environment, version: "1.2.3" });
  return folder;
}

test("every stack of services can be chosen; `clipstack init` adds a bulk job", () => {
  expect(stacks.sort()).toEqual(
    Object.keys(stackSchemas)
      .filter((stack) => stack !== "bulk")
      .sort(),
  );
});

test.each(stacks)("the environment of %s is valid and uses the image of its package", (stack) => {
  const text = readFileSync(join(created(stack), "environments/staging.yaml"), "utf8");
  const { stack: name, ...settings } = parse(text);
  expect(name).toBe(stack);
  expect(stackSchemas[stack].safeParse(settings).error).toBeUndefined();
  expect(text).toContain(`$schema=../node_modules/clipstack/stacks/schemas/${stack}.schema.json`);
  // a kind cluster pulls nothing
  expect(settings.embed.image?.source).toBe(stack === "kind" ? "build" : undefined);
});

test("the files of a project name it, its environment and the version", () => {
  const folder = created("single-gpu");
  const read = (path: string) => readFileSync(join(folder, path), "utf8");
  expect(JSON.parse(read("package.json"))).toMatchObject({
    name: "my-inference",
    dependencies: { clipstack: "^1.2.3" },
  });
  expect(read("README.md")).toContain("npx cdktf deploy staging");
  expect(read(".gitignore")).toContain("model_repository/");
  expect(read(".npmrc")).toContain("ignore-scripts=true");
  expect(read(".github/workflows/review.yml")).toContain(
    "{{ github.event.workflow_run.head_sha }}",
  );
  expect(read("cdktf.json")).not.toContain("{{");
});

const valid = { folder: "/nowhere/new", stack: "kind", environment: "kind-local" };

test.each([
  [{ folder: undefined }, "the folder must be named: npm create clipstack@latest my-inference"],
  [{ stack: "gpu" }, "--stack must be one of single-gpu, multi-gpu, kind, kubernetes, got 'gpu'"],
  [
    { environment: "A b" },
    "--environment must be lower-case letters, digits and '-', start with a letter and have at most 40 characters, got 'A b'",
  ],
])("rejects %j", (choice, message) => {
  expect(problemOf({ ...valid, ...choice })).toBe(message);
});

test("rejects a folder with files, and accepts a new one", () => {
  const folder = mkdtempSync(join(tmpdir(), "create-clipstack-"));
  writeFileSync(join(folder, "file"), "");
  expect(problemOf({ ...valid, folder })).toBe(`the folder must be new or empty, got '${folder}'`);
  expect(problemOf(valid)).toBeUndefined();
});
