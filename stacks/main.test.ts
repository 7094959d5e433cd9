import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { tooManyModels } from "../tools/render-models.ts";
import {
  type ExampleEnvironment,
  shippedEnvironments,
  shippedStacks,
} from "./settings/environment-files.ts";
import { synthCommand } from "./synth-command.ts";

const main = fileURLToPath(new URL("./main.ts", import.meta.url));
const tsx = fileURLToPath(new URL("../node_modules/tsx/dist/cli.mjs", import.meta.url));

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly folder: string;
}

/** Runs `tsx stacks/main.ts` in an empty folder. */
function run(
  environments: string | undefined,
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-synth-"));
  const args = environments === undefined ? [] : ["--environments", environments];
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [tsx, main, ...args],
      { cwd: folder, env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env } },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : Number(error.code);
        resolve({ code, stdout, stderr, folder });
      },
    );
  });
}

/** Copy of the shipped environments, with some files replaced or added; `stack` of a shipped one is added. */
function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-environments-"));
  const shipped = fileURLToPath(new URL("../environments/", import.meta.url));
  for (const name of shippedEnvironments) {
    cpSync(join(shipped, `${name}.yaml`), join(folder, `${name}.yaml`));
  }
  for (const [name, text] of Object.entries(files)) {
    const stack = shippedStacks[name as keyof typeof shippedStacks];
    writeFileSync(join(folder, `${name}.yaml`), stack ? `stack: ${stack}\n${text}` : text);
  }
  return folder;
}

function exampleFile(name: ExampleEnvironment): string {
  return readFileSync(new URL(`../environments/${name}.yaml`, import.meta.url), "utf8");
}

test("synthesizes the project's own folder by default", async () => {
  const { stdout } = await run(undefined);
  expect(stdout).toMatch(/^single-gpu: triton-onnx /m);
});

function filesBelow(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** Written files by path inside `cdktf.out`. */
function written({ folder }: Outcome): Readonly<Record<string, string>> {
  const out = join(folder, "cdktf.out");
  return Object.fromEntries(
    filesBelow(out).map((file) => [file.slice(out.length + 1), readFileSync(file, "utf8")]),
  );
}

test("synthesizes the same bytes from any folder, and prints the services of each stack", async () => {
  const canary = "canary-9f2c";
  const secrets = {
    AWS_SECRET_ACCESS_KEY: canary,
    DOCKER_AUTH_CONFIG: canary,
    KUBECONFIG: `/tmp/${canary}`,
    TF_VAR_registry_password: canary,
    // synthesizing needs no Terraform
    TERRAFORM_BINARY_NAME: "no-such-terraform",
  };
  // not the folder of the project, in which users have environments of their own
  const environments = folderWith({ search: exampleFile("search") });
  const [one, two] = await Promise.all([run(environments), run(environments, secrets)]);
  expect(one.stderr).toBe("");
  expect(one.code).toBe(0);
  expect(one.stdout).toBe(
    [
      "k8s-gpu: triton (2 to 4 pods), embed (2 to 6 pods); 4 l4 of 23034 MiB, 3.22 $/hour (2025-06)",
      "kind-local: embed (2 to 6 pods)",
      "multi-gpu-4x: triton-onnx (4 execution instances), triton-trt (4 execution instances), embed; 4 rtx-4080 of 16376 MiB, 8 $/hour (2026-11)",
      "search: triton-onnx (4 execution instances), triton-trt (4 execution instances), embed; 1 rtx-4080 of 16376 MiB, 2 $/hour (2026-11)",
      "single-gpu: triton-onnx (1 execution instance), triton-trt (1 execution instance), embed; 1 rtx-4080 of 16376 MiB, 2 $/hour (2026-11)",
      "note: multi-gpu-4x, search and single-gpu share ports 8002, 8010, 8011, 8012, 8020, 8021, 8022 and GPU 0 of unix:///var/run/docker.sock: deploy one at a time, or change the others",
      "note: k8s-gpu: registry.example/clipstack/embed:0.1.0 has the embed server without weights: MODELS=openclip-vit-b32:image docker buildx bake embed --set embed.tags=registry.example/clipstack/embed:0.1.0 --push",
      "note: k8s-gpu: registry.example/clipstack/triton:26.07-1 has Triton and the weights: MODELS=openclip-vit-b32:image WEIGHTS=image docker buildx bake triton --set triton.tags=registry.example/clipstack/triton:26.07-1 --push",
      "",
    ].join("\n"),
  );
  const files = written(one);
  expect(Object.keys(files)).toEqual([
    "clipstack.json",
    "manifest.json",
    "stacks/k8s-gpu/cdk.tf.json",
    "stacks/kind-local/cdk.tf.json",
    "stacks/multi-gpu-4x/cdk.tf.json",
    "stacks/search/cdk.tf.json",
    "stacks/single-gpu/cdk.tf.json",
  ]);
  expect(written(two)).toEqual(files);

  // no setting is a secret, so there is no sensitive variable
  for (const name of shippedEnvironments) {
    expect(JSON.parse(files[`stacks/${name}/cdk.tf.json`] ?? "")).not.toHaveProperty("variable");
  }
  // no host name, user, path or environment variable of this machine
  const text = Object.values(written(two)).join("\n");
  expect(text).not.toContain(canary);
  for (const folder of [one.folder, two.folder, process.cwd(), process.env.HOME ?? "/root"]) {
    expect(text).not.toContain(folder);
  }

  const { schema, stacks } = JSON.parse(files["clipstack.json"] ?? "");
  expect(schema).toBe(1);
  for (const name of shippedEnvironments) {
    const file = `stacks/${name}/cdk.tf.json`;
    const sha256 = createHash("sha256")
      .update(files[file] ?? "")
      .digest("hex");
    expect(stacks[name]).toEqual({ file, sha256 });
  }
});

/** Runs the command in this process. */
async function runHere(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const outdir = join(mkdtempSync(join(tmpdir(), "clipstack-synth-")), "cdktf.out");
  const log: string[] = [];
  const error: string[] = [];
  const code = await synthCommand({
    args,
    env: { CDKTF_OUTDIR: outdir, ...env },
    defaultFolder: "/nowhere",
    output: { log: (text) => log.push(text), error: (text) => error.push(text) },
  });
  return { code, outdir, stdout: log.join("\n"), stderr: error.join("\n") };
}

/** Five environments of three stacks; the file of `staging` is invalid. */
const fiveEnvironments = {
  edge: "stack: single-gpu\naccelerator: cpu\nembed: { port: 9002 }\ntritonOnnx: { enabled: false }\ntritonTrt: { enabled: false }\n",
  production: "stack: multi-gpu\nhost: { docker: 'ssh://gpu-1' }\n",
  quality: "stack: multi-gpu\nhost: { docker: 'ssh://gpu-2' }\ntopology: per-gpu\n",
  shared: "stack: kubernetes\nnamespace: shared\n",
  staging: "stack: single-gpu\nhost: { gpuu: t4 }\n",
};

function fiveFiles(): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-environments-"));
  for (const [name, text] of Object.entries(fiveEnvironments)) {
    writeFileSync(join(folder, `${name}.yaml`), text);
  }
  return folder;
}

test("writes four of five environments when one is invalid, and fails with its errors", async () => {
  const folder = fiveFiles();
  const outcome = await run(folder);
  expect(outcome.stderr).toBe(
    [
      `${folder}/staging.yaml:`,
      "  unknown key 'host.gpuu' (did you mean 'host.gpu'?)",
      "not synthesized because of these errors: staging",
      "",
    ].join("\n"),
  );
  expect(outcome.code).toBe(2);
  expect(outcome.stdout.match(/^[a-z]+(?=:)/gm)).toEqual([
    "edge",
    "production",
    "quality",
    "shared",
    "note",
    "note",
  ]);
  expect(Object.keys(written(outcome)).filter((path) => path.startsWith("stacks/"))).toEqual([
    "stacks/edge/cdk.tf.json",
    "stacks/production/cdk.tf.json",
    "stacks/quality/cdk.tf.json",
    "stacks/shared/cdk.tf.json",
  ]);
});

test("removes the stack of an environment that has become invalid", async () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-environments-"));
  const file = join(folder, "a.yaml");
  writeFileSync(join(folder, "b.yaml"), "stack: kind");
  writeFileSync(file, "stack: kubernetes");
  const { outdir } = await runHere(["--environments", folder]);
  expect(stacksIn(outdir)).toEqual(["stacks/a/cdk.tf.json", "stacks/b/cdk.tf.json"]);
  for (const yaml of ["stack: k8s", "stack: kubernetes\nquota: { pods: 1 }"]) {
    writeFileSync(file, yaml);
    await runHere(["--environments", folder], { CDKTF_OUTDIR: outdir });
    expect(stacksIn(outdir)).toEqual(["stacks/b/cdk.tf.json"]);
  }
});

test("exits with 0 for cdktf when at least one environment is valid", async () => {
  const skip = (folder: string) => runHere(["--environments", folder, "--skip-invalid"]);
  const { code, stderr } = await skip(fiveFiles());
  expect(code).toBe(0);
  expect(stderr).toContain("staging.yaml:\n  unknown key 'host.gpuu'");
  const folder = mkdtempSync(join(tmpdir(), "clipstack-environments-"));
  writeFileSync(join(folder, "staging.yaml"), fiveEnvironments.staging);
  expect((await skip(folder)).code).toBe(2);
});

test("neither prints nor writes a password in a URL", async () => {
  const password = "canary-51e0";
  const docker = `host: { docker: "ssh://gpu:${password}@gpu-1" }`;
  const { code, stdout, stderr, folder } = await run(folderWith({ "single-gpu": docker }));
  expect(code).toBe(2);
  expect(stderr).toContain(
    "host.docker must be 'ssh://[user@]host[:port]' or 'unix:///path', got 'ssh://gpu:…@gpu-1'\n",
  );
  const written = filesBelow(folder).map((file) => readFileSync(file, "utf8"));
  expect([stdout, stderr, ...written].join("\n")).not.toContain(password);
});

/** Paths of the synthesized stacks inside `outdir`. */
function stacksIn(outdir: string): readonly string[] {
  return filesBelow(outdir)
    .filter((file) => file.endsWith("cdk.tf.json"))
    .map((file) => file.slice(outdir.length + 1));
}

/** Exit code 2, these lines and nothing else, and all environments written except those in `files`. */
async function expectRejection(
  files: Readonly<Record<string, string>>,
  lines: readonly unknown[],
): Promise<void> {
  const folder = folderWith(files);
  const outcome = await runHere(["--environments", folder]);
  const names = shippedEnvironments.filter((name) => name in files).sort();
  expect(outcome.stderr.split("\n")).toEqual([
    ...lines.map((line) => (typeof line === "string" ? line.replace("FOLDER", folder) : line)),
    expect.stringMatching(/^not synthesized because of these errors: /),
  ]);
  expect(outcome.code).toBe(2);
  expect(stacksIn(outcome.outdir)).toEqual(
    [...shippedEnvironments]
      .sort()
      .filter((name) => !names.includes(name))
      .map((name) => `stacks/${name}/cdk.tf.json`),
  );
}

test.each([
  [
    "two services on one port beside an error of the schema",
    {
      "single-gpu":
        "host: { gpu: rtx4090 }\nembed: { port: 8010 }\ntritonOnnx: { ports: { http: 8010 } }",
    },
    [
      "FOLDER/single-gpu.yaml:",
      expect.stringMatching(
        /^ {2}host\.gpu must be one of .*, got 'rtx4090' \(did you mean 'rtx-4090'\?\)$/,
      ),
      "single-gpu/embed: port must be free on the host, got 8010, which triton-onnx (ports.http) uses",
    ],
  ],
  [
    "a port of another service in place of an invalid one, whose default clashes",
    { "single-gpu": "embed: { port: 8010 }\ntritonOnnx: { ports: { http: 80110 } }" },
    ["FOLDER/single-gpu.yaml:", "  tritonOnnx.ports.http must be 1 to 65535, got 80110"],
  ],
  [
    "errors in two files, followed by findings of the checks",
    {
      "single-gpu": "embed: { gpuz: [0] }",
      "multi-gpu-4x": "embed: *foo",
      "kind-local": "budget: { maxUnavailable: 0 }",
    },
    [
      "FOLDER/multi-gpu-4x.yaml:2:8: alias '*foo' must come after its anchor '&foo'",
      "FOLDER/single-gpu.yaml:",
      "  unknown key 'embed.gpuz' (did you mean 'embed.gpus'?)",
      "kind-local/embed: budget.maxUnavailable must be at least 1, or no node can be drained, got 0",
    ],
  ],
])("fails with exit code 2 and one clear line on %s", async (_, files, lines) => {
  await expectRejection(files, lines);
});

test.each([
  ["--help", 0],
  ["--environments=/nowhere", 2],
])("loads neither cdktf nor a provider for %s", async (arg, expected) => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-synth-"));
  const hook = join(folder, "hook.cjs");
  writeFileSync(
    hook,
    `process.on("exit", () => console.log("loaded", Object.keys(require.cache).filter((it) => /cdktf/.test(it))))`,
  );
  const result = await new Promise<{ code: unknown; stdout: string }>((resolve) =>
    execFile(
      process.execPath,
      ["--require", hook, "--import", import.meta.resolve("tsx"), main, arg],
      { cwd: folder },
      (error, stdout) => resolve({ code: error?.code ?? 0, stdout }),
    ),
  );
  expect(result.code).toBe(expected);
  expect(result.stdout).toMatch(/loaded \[\]\n$/);
});

test("rejects a list of models that does not fit a T4", async () => {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-environments-"));
  const { name, yaml, error } = tooManyModels;
  writeFileSync(join(folder, `${name}.yaml`), yaml);
  const { code, stderr } = await run(folder);
  expect(stderr.split("\n")[0]).toBe(error);
  expect(code).toBe(2);
});

test("prints warnings and still synthesizes", async () => {
  const { code, stdout, stderr } = await runHere([
    "--environments",
    folderWith({ "k8s-gpu": "triton: { autoscaler: { minReplicas: 1 } }" }),
  ]);
  expect(code).toBe(0);
  expect(stderr).toMatch(/^warning: k8s-gpu\/inference: triton\.autoscaler\.minReplicas is 1: /);
  expect(stdout).toContain("k8s-gpu: triton (1 to 4 pods)");
});

test("fails with exit code 2 if the folder of the environments does not exist", async () => {
  const { code, stderr } = await runHere([]);
  expect(code).toBe(2);
  expect(stderr).toBe("/nowhere: cannot be read as a folder of environments (ENOENT)");
});

test("prints its usage with --help, and writes nothing", async () => {
  const { code, stdout, outdir } = await runHere(["--help"]);
  expect(code).toBe(0);
  expect(existsSync(outdir)).toBe(false);
  expect(stdout).toContain("usage: tsx stacks/main.ts [--environments FOLDER] [--skip-invalid]");
});

test("fails with exit code 2 on an unknown argument", async () => {
  const { code, stderr } = await runHere(["--enviroments", "x"]);
  expect(code).toBe(2);
  expect(stderr).toMatch(/^Unknown option '--enviroments'/);
  expect(stderr).toContain("usage: tsx stacks/main.ts [--environments FOLDER] [--skip-invalid]");
});

test("fails with exit code 1 and one line when the folder cannot be written", async () => {
  const settings = folderWith({});
  const file = join(settings, "single-gpu.yaml");
  const { code, stderr } = await runHere(["--environments", settings], {
    CDKTF_OUTDIR: join(file, "out"),
  });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^synth failed: /);
  expect(stderr.split("\n")).toHaveLength(1);
});

test("reads the environments of CLIPSTACK_ENVIRONMENTS_DIR", async () => {
  const folder = folderWith({ "kind-local": "autoscaler: { maxReplicas: 5 }" });
  const { code, stdout } = await runHere([], { CLIPSTACK_ENVIRONMENTS_DIR: folder });
  expect(code).toBe(0);
  expect(stdout).toContain("kind-local: embed (2 to 5 pods)");
});
