import { spawnSync } from "node:child_process";
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";

/**
 * Tests the constructs with `cdktn`, the community fork of `cdktf` (docs/cdktf.md), installed under the old name, because the
 * prebuilt providers require it.
 */
const cdktn = "0.24.0";
/** Newest supported version. */
const constructs = "10.7.2";

const root = fileURLToPath(new URL("../", import.meta.url));
const { dependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

function run(program: string, args: readonly string[], cwd: string, env: object = {}) {
  return spawnSync(program, [...args], {
    cwd,
    encoding: "utf8",
    timeout: 300_000,
    env: { ...process.env, ...env },
    shell: process.platform === "win32",
  });
}

const quick = ["--fetch-retries=0", "--fetch-timeout=20000"];
const seen = run("npm", ["view", `cdktn@${cdktn}`, "version", ...quick], tmpdir());
const why = seen.stdout?.trim() === cdktn ? "" : " (skipped: the npm registry has no answer)";

/** A project of the sources here, with the fork among its packages. */
let folder: string;

beforeAll(() => {
  if (why !== "") return;
  folder = mkdtempSync(join(tmpdir(), "clipstack-cdktn-"));
  const providers = Object.entries<string>(dependencies).filter(([name]) => /^@cdktf/.test(name));
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({
      private: true,
      type: "module",
      dependencies: {
        ...Object.fromEntries(providers),
        cdktf: `npm:cdktn@${cdktn}`,
        constructs,
      },
    }),
  );
  // the providers ask for a version of cdktf that no fork has
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--legacy-peer-deps"];
  const installed = run("npm", ["install", ...flags], folder);
  if (installed.status !== 0) throw new Error(installed.stderr);
  for (const name of ["zod", "yaml", "@types"]) {
    symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name), "dir");
  }
  const shipped = (path: string) => !/node_modules|\.test\.ts$/.test(path);
  for (const source of [
    "constructs",
    "stacks",
    "monitoring",
    "contract",
    "model-tools",
    "review/input",
  ]) {
    cpSync(join(root, source), join(folder, source), {
      recursive: true,
      filter: (path) => shipped(path.slice(root.length)),
    });
  }
  const { compilerOptions } = JSON.parse(readFileSync(join(root, "tsconfig.json"), "utf8"));
  const include = ["constructs", "stacks/main.ts"];
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions, include, exclude: ["**/test-*.ts"] }),
  );
}, 600_000);

test.skipIf(why !== "")(`constructs and stacks compile against cdktn ${cdktn}${why}`, () => {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const { status, stdout } = run(process.execPath, [tsc, "--noEmit"], folder);
  expect(stdout).toBe("");
  expect(status).toBe(0);
});

test.skipIf(why !== "")(
  `cdktn ${cdktn} synthesizes the same resources, at the same addresses${why}`,
  () => {
    const tsx = join(root, "node_modules/tsx/dist/cli.mjs");
    const settings = { CLIPSTACK_ENVIRONMENTS_DIR: join(root, "environments") };
    const synthesized = (cwd: string) => {
      const outdir = join(mkdtempSync(join(tmpdir(), "clipstack-synth-")), "out");
      const main = join(cwd, "stacks/main.ts");
      const env = { ...settings, CDKTF_OUTDIR: outdir };
      const { status, stderr } = run(process.execPath, [tsx, main], cwd, env);
      expect(stderr).toBe("");
      expect(status).toBe(0);
      return Object.fromEntries(
        readdirSync(join(outdir, "stacks")).map((stack) => {
          const file = join(outdir, "stacks", stack, "cdk.tf.json");
          const document = JSON.parse(readFileSync(file, "utf8"));
          expect(document["//"].metadata.version).toBe(cwd === folder ? cdktn : dependencies.cdktf);
          delete document["//"].metadata.version;
          return [stack, document];
        }),
      );
    };
    const theirs = synthesized(folder);
    expect(Object.keys(theirs)).toHaveLength(6);
    expect(theirs).toEqual(synthesized(root));
  },
);
