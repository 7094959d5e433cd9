import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../artefact/free-ports.ts";
import { startClipstack } from "../cli/test-programs.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { providerEnvironment } from "./deploy/test-providers.ts";

/** The examples outside the repository, with the packed packages, from `npm install` on. */

const root = fileURLToPath(new URL("../", import.meta.url));
const photo = join(root, "model-tools/samples/sunset.jpg");

let folder: string;
let project: string;
let terraformEnv: NodeJS.ProcessEnv;
let tarballs: readonly string[];
const install = ["install", "--prefer-offline", "--no-audit", "--no-fund"];

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(
  program: string,
  args: readonly string[],
  { cwd = project, env = {} }: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<Outcome> {
  return new Promise((resolve) => {
    execFile(
      program,
      args,
      { cwd, env: { ...process.env, CHECKPOINT_DISABLE: "1", CI: "1", ...env } },
      (error, stdout, stderr) =>
        resolve({ code: error === null ? 0 : Number(error.code) || 1, stdout, stderr }),
    );
  });
}

async function succeed(...args: Parameters<typeof run>): Promise<Outcome> {
  const outcome = await run(...args);
  expect(outcome.code, `${args[1].join(" ")}: ${outcome.stdout}${outcome.stderr}`).toBe(0);
  return outcome;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-own-stack-"));
  project = join(folder, "own-stack");
  const packed = join(folder, "packed");
  await mkdir(packed);
  const packages = ["-w", "client", "-w", "constructs"];
  await succeed("npm", ["run", "build", ...packages], { cwd: root });
  await succeed("npm", ["pack", "--ignore-scripts", "--pack-destination", packed, ...packages], {
    cwd: root,
  });
  await cp(join(root, "examples/own-stack"), project, { recursive: true });
  tarballs = (await readdir(packed)).map((file) => join(packed, file));
  await succeed("npm", [...install, ...tarballs]);
  terraformEnv = await providerEnvironment(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test.each(["client", "constructs"])(
  "the package %s contains no tests and no TypeScript",
  async (name) => {
    const files = await readdir(join(project, "node_modules/@clipstack", name), {
      recursive: true,
    });
    expect(files).toEqual(
      expect.arrayContaining(["LICENSE", "NOTICE", "README.md", `dist/${name}/index.d.ts`]),
    );
    expect(files.filter((file) => /(?<!\.d)\.m?ts$/.test(file) || /\btest\b/.test(file))).toEqual(
      [],
    );
  },
);

test("optional packages are not installed", async () => {
  const installed = await readdir(join(project, "node_modules"));
  expect(installed).not.toContain("sharp");
  expect(installed).not.toContain("onnxruntime-node");
});

test("the project compiles with strict types", async () => {
  const { stdout } = await run("npm", ["run", "--silent", "typecheck"]);
  expect(stdout).toBe("");
});

describe("cdktf synth", () => {
  let stack: string;
  beforeAll(async () => {
    await succeed("npm", ["run", "--silent", "synth"]);
    stack = join(project, "cdktf.out/stacks/search");
  });

  const synthesized = async () => JSON.parse(await readFile(join(stack, "cdk.tf.json"), "utf8"));

  test("composes two GPU hosts and one Kubernetes workload", async () => {
    const { resource } = await synthesized();
    expect(Object.keys(resource.docker_container)).toHaveLength(2);
    expect(Object.keys(resource.docker_network)).toHaveLength(2);
    expect(Object.keys(resource.kubernetes_deployment_v1)).toHaveLength(1);
  });

  test("Terraform accepts the stack", async ({ skip }) => {
    const reason = await missingProvider(stack);
    if (reason !== undefined) skip(reason);
    await expectValid(stack);
  });

  test("Terraform accepts the Docker hosts", async ({ skip }) => {
    const hosts = join(folder, "hosts");
    await mkdir(hosts);
    await writeFile(
      join(hosts, "cdk.tf.json"),
      JSON.stringify(withoutKubernetes(await synthesized())),
    );
    const reason = await missingProvider(hosts);
    if (reason !== undefined) skip(reason);
    await expectValid(hosts);
  });
});

async function missingProvider(cwd: string): Promise<string | undefined> {
  const args = ["init", "-backend=false", "-input=false", "-no-color"];
  const { code, stderr } = await run("terraform", args, { cwd, env: terraformEnv });
  if (code === 0) return undefined;
  const provider = /versions for provider\s+(\S+?):/.exec(stderr)?.[1];
  expect(provider, stderr).toBeDefined();
  return `terraform init cannot get ${provider} on this machine`;
}

async function expectValid(cwd: string): Promise<void> {
  const { stdout } = await run("terraform", ["validate", "-json"], { cwd, env: terraformEnv });
  const { valid, diagnostics } = JSON.parse(stdout);
  expect(diagnostics).toEqual([]);
  expect(valid).toBe(true);
}

type Blocks = Record<string, Record<string, unknown>>;

/** Removes the provider kubernetes, its resources and everything that refers to them. */
function withoutKubernetes(stack: {
  readonly terraform: { readonly required_providers: Record<string, unknown> };
  readonly provider: Record<string, unknown>;
  readonly resource: Blocks;
}) {
  const { kubernetes: _version, ...required_providers } = stack.terraform.required_providers;
  const { kubernetes: _configuration, ...provider } = stack.provider;
  const resource = Object.fromEntries(
    Object.entries(stack.resource)
      .filter(([type]) => !type.startsWith("kubernetes_"))
      .map(([type, byName]) => [
        type,
        Object.fromEntries(
          Object.entries(byName).filter(
            ([, body]) => !JSON.stringify(body).includes("kubernetes_"),
          ),
        ),
      ]),
  );
  return { ...stack, terraform: { ...stack.terraform, required_providers }, provider, resource };
}

describe("the client", () => {
  test("embeds photos with clipstack serve", async () => {
    const [port] = await freePorts(1);
    const { child, done } = startClipstack(
      ["serve", "--model", "tiny", "--http-port", String(port)],
      {},
    );
    try {
      const url = `http://127.0.0.1:${port}`;
      const isReady = () =>
        fetch(`${url}/readyz`).then(
          ({ ok }) => ok,
          () => false,
        );
      await expect.poll(isReady).toBe(true);
      const { stdout } = await succeed(
        process.execPath,
        ["--import", "tsx", "embed.ts", photo, photo],
        {
          env: { INFERENCE_MODE: "remote", INFERENCE_SERVICE_URL: url },
        },
      );
      const line = `${photo}: 512 values, cosine to the first 1.000\n`;
      expect(stdout).toBe(line + line);
    } finally {
      child.kill("SIGINT");
      await done;
    }
  });

  test("fails in one line if a local model needs packages that are not installed", async () => {
    const { code, stderr } = await run(process.execPath, ["--import", "tsx", "embed.ts", photo], {
      env: { INFERENCE_MODE: "local", INFERENCE_MODEL_PATH: await tinyModel() },
    });
    expect(code).toBe(1);
    expect(stderr).toBe(
      "[settings] embedding in this process requires onnxruntime-node and sharp: run 'npm install onnxruntime-node sharp'\n",
    );
  });
});

test("photo-dedupe scans, embeds and groups photos with the packed client and command line", async () => {
  const packed = join(folder, "packed-cli");
  await mkdir(packed);
  await succeed("npm", ["run", "build", "-w", "cli"], { cwd: root });
  await succeed("npm", ["pack", join(root, "cli/dist"), "--pack-destination", packed], {
    cwd: root,
  });
  const [cli] = await readdir(packed);
  const client = tarballs.filter((file) => file.includes("clipstack-client"));
  for (const name of ["search", "photo-dedupe"]) {
    const ours = join(root, "examples", name);
    const copy = join(folder, name);
    await cp(ours, copy, {
      recursive: true,
      filter: (file) => !/\.test\.ts$|\/test-|node_modules/.test(file.slice(ours.length)),
    });
    await succeed("npm", [...install, ...client, join(packed, cli!)], { cwd: copy });
  }
  const cwd = join(folder, "photo-dedupe");
  const photos = join(cwd, "photos");
  await mkdir(photos);
  await cp(photo, join(photos, "a.jpg"));
  await cp(photo, join(photos, "b.jpg"));
  const dedupe = (...args: readonly string[]) =>
    succeed(process.execPath, ["clipstack-dedupe.mjs", ...args], { cwd });
  expect((await dedupe("scan", "photos")).stdout).toContain("2 photos read");
  expect((await dedupe("embed", "--weights", await tinyModel())).stdout).toMatch(
    /^1 photo embedded/m,
  );
  expect((await dedupe("group")).stdout).toContain("1 group with 2 of 2 photos");
});
