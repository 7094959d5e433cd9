import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { environmentNames } from "./settings.ts";
import { synthCommand } from "./synth-command.ts";

const main = fileURLToPath(new URL("./main.ts", import.meta.url));
const tsx = fileURLToPath(new URL("../node_modules/tsx/dist/cli.mjs", import.meta.url));

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly folder: string;
}

/** Run `tsx stacks/main.ts` in a folder of its own. */
function run(
  settings: string | undefined,
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-synth-"));
  const args = settings === undefined ? [] : ["--settings", settings];
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

/** A copy of the project's settings, with some files replaced. */
function settingsWith(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-settings-"));
  for (const name of environmentNames) {
    const file = `${name}.settings.yaml`;
    cpSync(fileURLToPath(new URL(`./${file}`, import.meta.url)), join(folder, file));
  }
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.settings.yaml`), text);
  }
  return folder;
}

function filesBelow(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** Every file that was written, by its path inside `cdktf.out`. */
function written({ folder }: Outcome): Readonly<Record<string, string>> {
  const out = join(folder, "cdktf.out");
  return Object.fromEntries(
    filesBelow(out).map((file) => [file.slice(out.length + 1), readFileSync(file, "utf8")]),
  );
}

test("synthesizes the same bytes from any folder, and says what is in each stack", async () => {
  const canary = "canary-9f2c";
  const secrets = {
    AWS_SECRET_ACCESS_KEY: canary,
    DOCKER_AUTH_CONFIG: canary,
    KUBECONFIG: `/tmp/${canary}`,
    TF_VAR_registry_password: canary,
    // synthesizing needs no Terraform
    TERRAFORM_BINARY_NAME: "no-such-terraform",
  };
  const [one, two] = await Promise.all([run(undefined), run(undefined, secrets)]);
  expect(one.stderr).toBe("");
  expect(one.code).toBe(0);
  expect(one.stdout).toBe(
    [
      "single-gpu: triton-onnx (1 execution instance), triton-trt (1 execution instance), embed; 1 rtx-4080 of 16376 MiB, 2 $/hour (2026-11)",
      "multi-gpu-4x: triton-onnx (4 execution instances), triton-trt (4 execution instances), embed; 4 rtx-4080 of 16376 MiB, 8 $/hour (2026-11)",
      "kind-local: embed (2 to 6 pods)",
      "k8s-gpu: triton (2 to 4 pods), embed (2 to 6 pods); 4 l4 of 23034 MiB, 3.22 $/hour (2025-06)",
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
    "stacks/single-gpu/cdk.tf.json",
  ]);
  expect(written(two)).toEqual(files);

  // no setting is a secret, so there is no variable that would have to be sensitive
  for (const name of environmentNames) {
    expect(JSON.parse(files[`stacks/${name}/cdk.tf.json`] ?? "")).not.toHaveProperty("variable");
  }
  // nothing of this machine, and nothing of the environment of the process
  const text = Object.values(written(two)).join("\n");
  expect(text).not.toContain(canary);
  for (const folder of [one.folder, two.folder, process.cwd(), process.env.HOME ?? "/root"]) {
    expect(text).not.toContain(folder);
  }

  const { schema, stacks } = JSON.parse(files["clipstack.json"] ?? "");
  expect(schema).toBe(1);
  for (const name of environmentNames) {
    const file = `stacks/${name}/cdk.tf.json`;
    const sha256 = createHash("sha256")
      .update(files[file] ?? "")
      .digest("hex");
    expect(stacks[name]).toEqual({ file, sha256 });
  }
});

/** Run the command in this process. */
async function runHere(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const outdir = join(mkdtempSync(join(tmpdir(), "clipstack-synth-")), "cdktf.out");
  const log: string[] = [];
  const error: string[] = [];
  const code = await synthCommand({
    args,
    env: { CDKTF_OUTDIR: outdir, ...env },
    defaultSettings: "/nowhere",
    output: { log: (text) => log.push(text), error: (text) => error.push(text) },
  });
  return { code, outdir, stdout: log.join("\n"), stderr: error.join("\n") };
}

test("fails with exit code 2 and lines that a person can read, as a process", async () => {
  const settings = settingsWith({ "kind-local": "autoscaler: { maxReplicas: 8 }" });
  const { code, stdout, stderr, folder } = await run(settings);
  expect(stderr).toBe(
    "kind-local/embed: autoscaler.maxReplicas must be at most 6 to fit quota.requests.cpuMillicores 1750 (250 a pod, and a rolling update adds 1 pod), got 8\n",
  );
  expect(code).toBe(2);
  expect(stdout).toBe("");
  expect(filesBelow(folder).filter((file) => file.endsWith("cdk.tf.json"))).toEqual([]);
});

test("keeps a password in a URL out of what is said and of what is written", async () => {
  const password = "canary-51e0";
  const docker = `host: { docker: "ssh://gpu:${password}@gpu-1" }`;
  const { code, stdout, stderr, folder } = await run(settingsWith({ "single-gpu": docker }));
  expect(code).toBe(2);
  expect(stderr).toContain(
    "host.docker must be 'ssh://[user@]host[:port]' or 'unix:///path', got 'ssh://gpu:…@gpu-1'\n",
  );
  const written = filesBelow(folder).map((file) => readFileSync(file, "utf8"));
  expect([stdout, stderr, ...written].join("\n")).not.toContain(password);
});

/** Exit code 2, these lines and nothing else, and nothing written. */
async function expectRefusal(
  files: Readonly<Record<string, string>>,
  lines: readonly string[],
): Promise<void> {
  const settings = settingsWith(files);
  const outcome = await runHere(["--settings", settings]);
  expect(outcome.stderr.split("\n")).toEqual(
    lines.map((line) => line.replace("SETTINGS", settings)),
  );
  expect(outcome.code).toBe(2);
  expect(outcome.stdout).toBe("");
  const paths = existsSync(outcome.outdir) ? filesBelow(outcome.outdir) : [];
  expect(paths.filter((file) => file.endsWith("cdk.tf.json"))).toEqual([]);
}

test.each([
  [
    "an unknown key",
    { "single-gpu": "host: { gpuu: t4 }" },
    ["SETTINGS/single-gpu.settings.yaml:", "  unknown key 'host.gpuu' (did you mean 'host.gpu'?)"],
  ],
  [
    "a wrong type",
    { "multi-gpu-4x": "host: { count: four }" },
    [
      "SETTINGS/multi-gpu-4x.settings.yaml:",
      "  host.count must be a whole number, 1 to 16, got 'four'",
    ],
  ],
  [
    "a syntax error",
    { "kind-local": "cluster: [" },
    [
      "SETTINGS/kind-local.settings.yaml:1:11: Flow sequence in block collection must be sufficiently indented and end with a ]",
    ],
  ],
  [
    "two services on one port",
    { "single-gpu": "embed: { port: 8010 }" },
    [
      "single-gpu/embed: port must be free on the host, got 8010, which triton-onnx (ports.http) has",
    ],
  ],
  [
    "an autoscaler above the quota",
    { "kind-local": "autoscaler: { maxReplicas: 8 }" },
    [
      "kind-local/embed: autoscaler.maxReplicas must be at most 6 to fit quota.requests.cpuMillicores 1750 (250 a pod, and a rolling update adds 1 pod), got 8",
    ],
  ],
  [
    "GPU index 4 of 4",
    { "multi-gpu-4x": "tritonOnnx: { gpus: [1, 2, 3, 4] }" },
    ["multi-gpu-4x/triton-onnx: gpus must be 0 to 3 (host.count is 4), got 4"],
  ],
  [
    "a NodePort that kind does not map",
    { "kind-local": "embed: { nodePort: 30093 }" },
    [
      "kind-local/embed: nodePort must be one that kind maps (cluster.portMappings: 30092), got 30093",
    ],
  ],
  [
    "errors in two files, before any finding of the checks",
    {
      "single-gpu": "embed: { gpuz: [0] }",
      "multi-gpu-4x": "embed: *foo",
      "kind-local": "budget: { maxUnavailable: 0 }",
    },
    [
      "SETTINGS/single-gpu.settings.yaml:",
      "  unknown key 'embed.gpuz' (did you mean 'embed.gpus'?)",
      "SETTINGS/multi-gpu-4x.settings.yaml:1:8: alias '*foo' must come after its anchor '&foo'",
    ],
  ],
  [
    "a rule between settings",
    { "multi-gpu-4x": "tritonOnnx: { enabled: false }" },
    [
      "multi-gpu-4x: embed.upstream must name a service that is enabled (tritonOnnx.enabled is false), got 'triton-onnx'",
    ],
  ],
  [
    "findings in several stacks",
    { "kind-local": "budget: { maxUnavailable: 0 }", "single-gpu": "tritonTrt: { gpus: [1] }" },
    [
      "single-gpu/triton-trt: gpus must be 0 to 0 (host.count is 1), got 1",
      "kind-local/embed: budget.maxUnavailable must be at least 1, or no node can be drained, got 0",
    ],
  ],
])("fails with exit code 2 and one clear line on %s", async (_, files, lines) => {
  await expectRefusal(files, lines);
});

test.each([
  ["--help", 0],
  ["--settings=/nowhere", 2],
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

test("says what is worth knowing, and synthesizes all the same", async () => {
  const { code, stdout, stderr } = await runHere([
    "--settings",
    settingsWith({ "k8s-gpu": "triton: { autoscaler: { minReplicas: 1 } }" }),
  ]);
  expect(code).toBe(0);
  expect(stderr).toBe(
    "warning: k8s-gpu/inference: triton.autoscaler.minReplicas is 1: where a node is drained, nobody answers until the next pod is ready",
  );
  expect(stdout).toContain("k8s-gpu: triton (1 to 4 pods)");
});

test("fails with exit code 2 when there are no settings", async () => {
  const { code, stderr } = await runHere([]);
  expect(code).toBe(2);
  expect(stderr.split("\n")).toEqual(
    environmentNames.map((name) => `/nowhere/${name}.settings.yaml: cannot be read (ENOENT)`),
  );
});

test("explains itself with --help, and writes nothing", async () => {
  const { code, stdout, outdir } = await runHere(["--help"]);
  expect(code).toBe(0);
  expect(existsSync(outdir)).toBe(false);
  expect(stdout).toContain("usage: tsx stacks/main.ts [--settings FOLDER]");
  expect(stdout).toContain("Exit codes: 0 all good, 2 wrong usage or settings.");
});

test("fails with exit code 2 on an argument that it does not know", async () => {
  const { code, stderr } = await runHere(["--setings", "x"]);
  expect(code).toBe(2);
  expect(stderr).toMatch(/^Unknown option '--setings'/);
  expect(stderr).toContain("usage: tsx stacks/main.ts [--settings FOLDER]");
});

test("fails with exit code 1 and one line when the folder cannot be written", async () => {
  const settings = settingsWith({});
  const file = join(settings, "single-gpu.settings.yaml");
  const { code, stderr } = await runHere(["--settings", settings], {
    CDKTF_OUTDIR: join(file, "out"),
  });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^synth failed: /);
  expect(stderr.split("\n")).toHaveLength(1);
});

test("takes the folder of the settings from CLIPSTACK_SETTINGS_DIR", async () => {
  const folder = settingsWith({ "kind-local": "autoscaler: { maxReplicas: 5 }" });
  const { code, stdout } = await runHere([], { CLIPSTACK_SETTINGS_DIR: folder });
  expect(code).toBe(0);
  expect(stdout).toContain("kind-local: embed (2 to 5 pods)");
});
