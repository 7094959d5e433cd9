import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import manifest from "../cli/package.json" with { type: "json" };
import { command, testDocker } from "./deploy/test-docker.ts";

/** A project that the packed `create-clipstack` writes outside the repository, with the packed command line. */

const { version } = manifest;
const { docker, missing } = await testDocker();
const buildx = process.env.CLIPSTACK_BUILDX?.split(" ") ?? ["docker", "buildx"];
const noBuildx =
  missing !== ""
    ? ` (skipped: ${missing})`
    : (await command(buildx[0]!, [...buildx.slice(1), "version"])).code === 0
      ? ""
      : " (skipped: no buildx)";
const root = fileURLToPath(new URL("../", import.meta.url));

let folder: string;
let project: string;

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(
  program: string,
  args: readonly string[],
  cwd = project,
  more: NodeJS.ProcessEnv = {},
): Promise<Outcome> {
  const env = { ...process.env, CHECKPOINT_DISABLE: "1", CI: "1", ...more };
  return new Promise((resolve) => {
    execFile(program, args, { cwd, env, maxBuffer: 2 ** 26 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code) || 1, stdout, stderr }),
    );
  });
}

async function succeed(...args: Parameters<typeof run>): Promise<string> {
  const { code, stdout, stderr } = await run(...args);
  expect(code, `${args[1].join(" ")}: ${stdout}${stderr}`).toBe(0);
  return stdout;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-packed-"));
  project = join(folder, "project");
  await succeed("npm", ["run", "build", "-w", "cli", "-w", "create-clipstack"], root);
  const packages = [join(root, "cli/dist"), join(root, "create-clipstack")];
  await succeed("npm", ["pack", ...packages, "--pack-destination", folder], root);
  const [cli, create] = ["clipstack", "create-clipstack"].map((name) =>
    join(folder, `${name}-${version}.tgz`),
  );
  const creation = ["create-clipstack", "project", "--stack", "single-gpu", "--no-install"];
  await succeed("npm", ["exec", "--yes", "--package", create!, "--", ...creation], folder);
  const install = ["install", "--prefer-offline", "--no-audit", "--no-fund"];
  await succeed("npm", [...install, cli!]);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test("the package contains no tests, no TypeScript and no weights", async () => {
  const files = await readdir(join(project, "node_modules/clipstack"), { recursive: true });
  expect(files).toContain("cli/main.js");
  const own = files.filter((file) => !file.startsWith("node_modules/"));
  expect(own.filter((file) => /\.ts$|\.onnx|\btest\b.*\.js$/.test(file))).toEqual([]);
});

test("prints its help without a TypeScript loader", async () => {
  expect(await readdir(join(project, "node_modules"))).not.toContain("tsx");
  expect(await succeed("npx", ["clipstack", "--help"])).toContain("verify");
});

test("cdktf synthesizes the environments of the project, with files of the package", async () => {
  await succeed("npx", ["cdktf", "synth"]);
  const stack = await readFile(join(project, "cdktf.out/stacks/single-gpu/cdk.tf.json"), "utf8");
  const { resource } = JSON.parse(stack);
  expect(JSON.stringify(resource.docker_image)).toContain(
    `"context":"\${path.root}/../../../node_modules/clipstack"`,
  );
  expect(JSON.stringify(resource)).toContain("/../../../model_repository/");
  expect(stack).not.toContain(project);
});

test("a cluster pulls the published image of the version", async () => {
  const release = join(project, "node_modules/clipstack/contract/release.json");
  const unpublished = await readFile(release);
  const digest = `sha256:${"a".repeat(64)}`;
  const published = { registry: "r.mine", digests: { "embed-cpu": digest } };
  await writeFile(release, JSON.stringify(published));
  await succeed("npx", ["clipstack", "init", "cluster", "--stack", "kubernetes"]);
  expect(await succeed("npx", ["clipstack", "images", "cluster"])).toContain(
    `r.mine/clipstack/embed@${digest}`,
  );
  await rm(join(project, "environments/cluster.yaml"));
  await writeFile(release, unpublished);
});

test("verifies an environment in a local simulation", async () => {
  const args = ["clipstack", "verify", "single-gpu", "--weights", "tiny", "--seconds", "1"];
  expect(await succeed("npx", args)).toMatch(/^54 checks passed/m);
  expect(await readdir(join(project, "bench/reports"))).toContainEqual(
    expect.stringMatching(/single-gpu[.]html$/),
  );
});

test.skipIf(noBuildx !== "")(`builds the server image from the package${noBuildx}`, async () => {
  const [image, [program = "", ...words]] = [`clipstack-test/packed:${process.pid}`, buildx];
  const bake = [...words, "bake", "--file", "node_modules/clipstack/docker-bake.hcl", "embed"];
  const env = { DOCKER_HOST: docker.endpoint, NODE_IMAGE: process.env.CLIPSTACK_NODE_IMAGE };
  await succeed(program, [...bake, "--set", `embed.tags=${image}`], project, env);
  const labels = '{{index .Config.Labels "org.opencontainers.image.version"}}';
  expect(await docker.lines("image", "inspect", "--format", labels, image)).toEqual([version]);
  await docker.run("rmi", "--no-prune", image);
});

test("reviews a change", async () => {
  await cp(join(project, "cdktf.out"), join(folder, "before"), { recursive: true });
  const file = join(project, "environments/single-gpu.yaml");
  const text = await readFile(file, "utf8");
  await writeFile(file, text.replace("port: 8002", "port: 8003"));
  await succeed("npx", ["clipstack", "synth"]);
  const folders = ["--base", join(folder, "before"), "--head", "cdktf.out"];
  const { stdout } = await run("npx", ["clipstack", "review", ...folders]);
  expect(stdout).toContain(
    "embed-http moves from `http://127.0.0.1:8002` to `http://127.0.0.1:8003`",
  );
});

test("the doctor lists what the host is missing", async () => {
  const file = join(project, "environments/single-gpu.yaml");
  const text = await readFile(file, "utf8");
  await writeFile(file, text.replace("unix:///var/run", "unix:///nowhere"));
  const { code, stdout } = await run("npx", ["clipstack", "doctor", "single-gpu"]);
  expect(stdout).toContain("Docker does not respond at unix:///nowhere/docker.sock");
  expect(code).toBe(1);
});
