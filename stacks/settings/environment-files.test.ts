import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { environmentNameError, loadEnvironments } from "./environment-files.ts";

/** Folder with these files. */
function folderWith(files: Readonly<Record<string, string | Buffer>>): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-environments-"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

/** Names of the valid environments, and the error lines of the others without the folder. */
function load(files: Readonly<Record<string, string | Buffer>>) {
  const folder = folderWith(files);
  const { environments, rejected } = loadEnvironments(folder);
  return {
    valid: environments.map(({ name, stack }) => `${name}: ${stack}`),
    rejected: Object.fromEntries(
      rejected.map(({ name, lines }) => [
        name,
        lines.map((line) => line.replaceAll(`${folder}/`, "")),
      ]),
    ),
  };
}

test("loads any number of environments per stack, by name", () => {
  const { valid, rejected } = load({
    "staging.yaml": "stack: single-gpu",
    "edge.yaml": "stack: single-gpu",
    "cluster.yaml": "stack: kubernetes",
  });
  expect(valid).toEqual(["cluster: kubernetes", "edge: single-gpu", "staging: single-gpu"]);
  expect(rejected).toEqual({});
});

test("ignores files that are not YAML, hidden files and folders", () => {
  const folder = folderWith({
    "a.yaml": "stack: kind",
    "README.md": "",
    ".draft.yaml": "?",
    "b.yaml~": "",
  });
  mkdirSync(join(folder, "models"));
  expect(loadEnvironments(folder).environments.map(({ name }) => name)).toEqual(["a"]);
});

test.each([
  [
    "no stack",
    "host: {}",
    "x.yaml: stack is required: one of single-gpu, multi-gpu, kind, kubernetes, bulk",
  ],
  [
    "an unknown stack",
    "stack: k8s-gpu",
    "x.yaml: stack must be one of single-gpu, multi-gpu, kind, kubernetes, bulk, got 'k8s-gpu'",
  ],
  [
    "an empty file",
    "",
    "x.yaml: stack is required: one of single-gpu, multi-gpu, kind, kubernetes, bulk",
  ],
  ["text", "just text", "x.yaml: must be a map of settings, got 'just text'"],
  ["binary data", Buffer.from([0x80, 0xff, 0xfe, 0x00]), "x.yaml: must be UTF-8 text"],
  ["a syntax error", "embed: *foo", "x.yaml:1:8: alias '*foo' must come after its anchor '&foo'"],
])("rejects an environment with %s in one line, and loads the others", (_, text, line) => {
  expect(load({ "x.yaml": text, "good.yaml": "stack: kind" })).toEqual({
    valid: ["good: kind"],
    rejected: { x: [line] },
  });
});

test.each(["Staging", "1st", "-a", "a-", "a_b", "a.b", "a".repeat(41), ""])(
  "rejects the name '%s'",
  (name) => {
    expect(environmentNameError(name)).toBe(
      `name must be lower-case letters, digits and '-', start with a letter and have at most 40 characters, got '${name}'`,
    );
  },
);

test.each(["a", "a1", "multi-gpu-4x", "a".repeat(40)])("accepts the name '%s'", (name) => {
  expect(environmentNameError(name)).toBeUndefined();
});

test("rejects another extension, so that the file is not overlooked", () => {
  expect(load({ "a.yml": "stack: kind", "b.yaml": "stack: kind" })).toEqual({
    valid: ["b: kind"],
    rejected: { a: ["a.yml: the name of the file must end in .yaml"] },
  });
});

test("fails if the folder has no environments or cannot be read", () => {
  const folder = folderWith({});
  expect(() => loadEnvironments(folder)).toThrow(`${folder}: has no environments (<name>.yaml)`);
  expect(() => loadEnvironments("/nowhere")).toThrow(
    "/nowhere: cannot be read as a folder of environments (ENOENT)",
  );
});
