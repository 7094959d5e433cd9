import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, copyFile, cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { commandsRun } from "./commands.ts";

/** Runs documented commands verbatim in a fresh copy of the project with the tiny model. */

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));
const record = "bench/reports/2026-11-24T13-39-41Z-bench-single-gpu.json";
const plan = "review/input/plans/queue-delay-changed.plan.json";

/** Files that the pages assume, and the files that replace them here. */
const givenFiles: Readonly<Record<string, string>> = {
  "plan.json": plan,
  "cdktf.out/plan.json": plan,
  "cdktf.out/fresh.json": plan,
  "record.json": record,
  "before.json": record,
  "after.json": record,
};

/** Folders with installed packages; the copy links to them. */
const packages = [
  "",
  "bench",
  "examples/photo-dedupe",
  "examples/search",
  "inference-image",
  "cli",
];

/** Replacement of `npx`, which would run the linked program of this checkout instead of the copy. */
const npx = `#!/bin/sh
case $1 in
  clipstack) shift; exec node cli/clipstack.mjs "$@" ;;
  clipstack-dedupe) shift; exec node examples/photo-dedupe/clipstack-dedupe.mjs "$@" ;;
  tsx) shift; exec node node_modules/tsx/dist/cli.mjs "$@" ;;
esac
echo "npx $1 is not run here" >&2
exit 127
`;

/** Limit per command in ms. It only prevents hangs; a command takes seconds. */
const timeout = 120_000;

let folder: string;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-docs-"));
  const project = join(folder, "clipstack");
  const { stdout } = await run(
    "git",
    ["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    { cwd: root, maxBuffer: 2 ** 24 },
  );
  const files = stdout
    .split("\0")
    .filter((file) => file !== "" && basename(file) !== "node_modules");
  for (const parent of new Set(files.map((file) => dirname(file)))) {
    await mkdir(join(project, parent), { recursive: true });
  }
  // git lists removed files until the removal is committed
  const copy = (file: string) =>
    cp(join(root, file), join(project, file), { verbatimSymlinks: true }).catch(() => undefined);
  await Promise.all(files.map(copy));
  for (const parent of packages) {
    const installed = join(parent, "node_modules");
    if (existsSync(join(root, installed))) {
      await symlink(join(root, installed), join(project, installed));
    }
  }
  await copyFile(
    await tinyModel(),
    join(project, "model_repository", "openclip_vit_b32", "1", "model.onnx"),
  );
  await mkdir(join(project, "cdktf.out"));
  for (const [file, from] of Object.entries(givenFiles)) {
    await copyFile(join(root, from), join(project, file));
  }
  const pictures = join(folder, "Pictures");
  await mkdir(pictures);
  for (const [file, name] of [
    ["dunes.jpg", "dunes.jpg"],
    ["dunes.jpg", "dunes-again.jpg"],
    ["fruit.jpg", "fruit.jpg"],
  ] as const) {
    await copyFile(join(root, "model-tools", "samples", file), join(pictures, name));
  }
  const bin = join(folder, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "npx"), npx);
  await chmod(join(bin, "npx"), 0o755);
  const git = (...args: readonly string[]) => run("git", args, { cwd: project });
  await git("init", "--quiet");
  await git("add", "--all");
  const author = ["-c", "user.name=reader", "-c", "user.email=reader@example.org"];
  await git(...author, "commit", "--quiet", "--message", "Begin");
  env = {
    ...process.env,
    PATH: [bin, process.env.PATH].join(delimiter),
    HOME: folder,
    NO_COLOR: "1",
    // the copy has no server and no user configuration
    INFERENCE_MODE: "",
    CLIPSTACK_ENVIRONMENTS_DIR: undefined,
  };
}, 300_000);

afterAll(() => rm(folder, { recursive: true, force: true }));

for (const { command, exitCode = 0, prints } of commandsRun) {
  test(
    command,
    async () => {
      const { code, output } = await run("sh", ["-c", command], {
        cwd: join(folder, "clipstack"),
        env,
        timeout,
        maxBuffer: 2 ** 26,
      }).then(
        ({ stdout, stderr }) => ({ code: 0, output: `${stdout}${stderr}` }),
        ({ code, stdout, stderr }) => ({ code, output: `${stdout}${stderr}` }),
      );
      expect(code, output).toBe(exitCode);
      expect(output).toMatch(prints);
    },
    timeout + 10_000,
  );
}

test("no command has changed a committed file", async () => {
  const { stdout } = await run("git", ["diff", "--name-only"], { cwd: join(folder, "clipstack") });
  expect(stdout).toBe("");
});
