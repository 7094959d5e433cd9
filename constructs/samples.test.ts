import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));
const readme = readFileSync(join(root, "constructs/README.md"), "utf8");
const [, sample = ""] = /```ts\n([\s\S]*?)```/.exec(readme) ?? [];

/** A project outside the repository, with the README's stack. */
let project: string;

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), "clipstack-readme-"));
  mkdirSync(join(project, "node_modules"));
  for (const name of ["cdktf", "constructs", "@types", "tsx"]) {
    symlinkSync(join(root, "node_modules", name), join(project, "node_modules", name));
  }
  writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module" }));
  const index = join(root, "constructs/index.ts");
  writeFileSync(join(project, "main.ts"), sample.replace("@clipstack/constructs", index));
});

afterAll(() => rmSync(project, { recursive: true }));

test("the stack fits on a screen and imports two packages", () => {
  const lines = sample.split("\n").filter((line) => line !== "");
  expect(lines.length).toBeLessThanOrEqual(30);
  expect(lines.filter((line) => line.startsWith("import "))).toHaveLength(2);
});

test("the stack has no type errors", () => {
  const options = {
    extends: join(root, "tsconfig.json"),
    compilerOptions: { noEmit: true, typeRoots: [join(root, "node_modules/@types")] },
    include: [],
    files: [join(project, "main.ts")],
  };
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify(options));
  const tsc = join(root, "node_modules/.bin/tsc");
  expect(execFileSync(tsc, ["-p", project], { encoding: "utf8" })).toBe("");
}, 60_000);

test("the stack synthesizes", () => {
  const tsx = join(root, "node_modules/tsx/dist/cli.mjs");
  execFileSync(process.execPath, [tsx, "main.ts"], { cwd: project });
  const file = join(project, "cdktf.out/stacks/inference/cdk.tf.json");
  const { resource, output } = JSON.parse(readFileSync(file, "utf8"));
  const containers = Object.values<{ name: string }>(resource.docker_container);
  expect(containers.map(({ name }) => name)).toEqual(
    expect.arrayContaining(["inference-triton", "inference-embed"]),
  );
  expect(output.environment.value.services).toHaveLength(2);
}, 60_000);
