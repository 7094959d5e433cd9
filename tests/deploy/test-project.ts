import {
  copyFile,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import {
  type Environment,
  environmentOutput,
  environment as environmentSchema,
} from "../../contract/environment.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { exampleStacks, shippedStacks } from "../../stacks/settings/environment-files.ts";
import { type CommandOptions, command, type Docker, type Outcome, succeed } from "./test-docker.ts";
import { providerEnvironment } from "./test-providers.ts";

/**
 * Copy of the project for tests in a temporary folder, with the tiny model, which deploys with the documented commands:
 * `npx cdktf deploy …`. It has its own settings, `cdktf.out` and state.
 */

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Folders of installed packages; the copy links to them. */
const installed = ["node_modules", "bench/node_modules", "cli/node_modules"];

const stacks = { ...shippedStacks, ...exampleStacks, "clipstack-test-acme": "single-gpu" } as const;
type ProjectEnvironment = keyof typeof stacks;

export interface TestProjectOptions {
  readonly docker: Docker;
  /**
   * Program that plans and applies, with Terraform's arguments.
   *
   * @default "terraform"
   */
  readonly binary?: string;
  /**
   * First folder of the PATH.
   *
   * @default - the PATH of the tests
   */
  readonly path?: string;
  /** Environment variables of all programs, in addition to those of the tests. */
  readonly variables?: NodeJS.ProcessEnv;
  /**
   * Timeout of a program in milliseconds.
   *
   * @default 840 000 - shorter than the timeout of a test
   */
  readonly timeoutMs?: number;
}

/**
 * Planned changes, one line per resource: `replace docker_container.embed`. Another instance of the same
 * resource, such as a one-shot container for new content, is one line with `create` and one with `delete`.
 */
export type Plan = readonly string[];

/** Planned change in the output of `terraform show -json`. */
interface PlannedChange {
  readonly address: string;
  readonly change: { readonly actions: readonly string[] };
}

export interface TestProject {
  readonly folder: string;
  /** Replaces the settings of an environment. */
  settings(
    environment: ProjectEnvironment,
    settings: Readonly<Record<string, unknown>>,
  ): Promise<void>;
  /** Runs a program in the folder, with these environment variables in addition to those of the project. */
  command(
    program: string,
    args: readonly string[],
    variables?: NodeJS.ProcessEnv,
  ): Promise<Outcome>;
  /** Runs `npx cdktf …`. */
  cdktf(...args: readonly string[]): Promise<Outcome>;
  /** Runs `npx cdktf deploy <environment> --auto-approve`. */
  deploy(environment: ProjectEnvironment): Promise<Outcome>;
  /** Writes `cdktf.out`. */
  synthesize(): Promise<void>;
  /** Runs `terraform …` in the folder of a stack. */
  terraform(folder: string, ...args: readonly string[]): Promise<Outcome>;
  /** Runs `npx clipstack …`. */
  clipstack(...args: readonly string[]): Promise<Outcome>;
  /** Synthesizes and plans; an empty plan means no changes. */
  plan(environment: ProjectEnvironment): Promise<Plan>;
  /** Synthesizes and validates the stack; returns the diagnostics. */
  validate(environment: ProjectEnvironment): Promise<readonly unknown[]>;
  output(environment: ProjectEnvironment): Promise<Environment>;
  /** Runs `npx cdktf destroy <environment> --auto-approve`. */
  destroy(environment: ProjectEnvironment): Promise<Outcome>;
  /** Destroys all deployments in any state and removes the folder. */
  remove(): Promise<void>;
}

export async function testProject({
  docker,
  binary = "terraform",
  path,
  variables,
  timeoutMs = 840_000,
}: TestProjectOptions): Promise<TestProject> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-deploy-"));
  await copyProject(folder);
  await copyFile(
    await tinyModel(),
    join(folder, "model_repository", "openclip_vit_b32", "1", "model.onnx"),
  );
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    ...variables,
    PATH: [path, variables?.PATH ?? process.env.PATH].filter(Boolean).join(delimiter),
    CHECKPOINT_DISABLE: "1",
    ...(await providerEnvironment(folder)),
    TF_IN_AUTOMATION: "1",
    TERRAFORM_BINARY_NAME: binary,
    // link providers of the mirror instead of copying them
    CDKTF_DISABLE_PLUGIN_CACHE_ENV: "true",
    NO_COLOR: "1",
    FORCE_COLOR: "0",
  };
  const run = (program: string, args: readonly string[], options: CommandOptions = {}) =>
    command(program, args, { cwd: folder, env, timeoutMs, ...options });
  const must = (program: string, args: readonly string[], options: CommandOptions = {}) =>
    succeed(program, args, { cwd: folder, env, ...options });
  const stackFolder = (name: ProjectEnvironment) => join(folder, "cdktf.out", "stacks", name);
  const cdktf = (...args: readonly string[]) =>
    run(process.execPath, [join(root, "node_modules", ".bin", "cdktf"), ...args]);
  // the copy needs no provider lock, which would require a registry
  const lock = "--skip-provider-lock";
  const deployed = new Set<ProjectEnvironment>();
  const project: TestProject = {
    folder,
    settings: (name, settings) =>
      writeFile(
        join(folder, "environments", `${name}.yaml`),
        stringify({
          stack: stacks[name],
          // the tiny model
          ...(["single-gpu", "multi-gpu"].includes(stacks[name]) && { allowRandomWeights: true }),
          ...settings,
        }),
      ),
    command: (program, args, more) => run(program, args, { env: { ...env, ...more } }),
    cdktf,
    synthesize: async () => {
      await must(process.execPath, [tsx, join(folder, "stacks", "main.ts")]);
    },
    terraform: (cwd, ...args) => run(binary, args, { cwd }),
    deploy: async (name) => {
      if (!deployed.has(name)) await requireNoObjects(docker, name);
      deployed.add(name);
      return cdktf("deploy", name, "--auto-approve", lock);
    },
    clipstack: (...args) => run(process.execPath, [join(folder, "cli", "clipstack.mjs"), ...args]),
    plan: async (name) => {
      await project.synthesize();
      const cwd = stackFolder(name);
      await must(binary, ["init", "-input=false"], { cwd });
      const file = join(folder, `${name}.plan`);
      const { code, output } = await run(
        binary,
        ["plan", "-input=false", "-detailed-exitcode", `-out=${file}`],
        { cwd },
      );
      if (code === 0) return [];
      if (code !== 2) throw new Error(`plan exited with code ${code}:\n${output}`);
      const plan = JSON.parse(await must(binary, ["show", "-json", file], { cwd }));
      return (plan.resource_changes as PlannedChange[])
        .filter(({ change }) => !["no-op", "read"].includes(change.actions.join()))
        .map(({ address, change }) => `${actionsIn(change.actions)} ${shortAddress(address)}`)
        .sort();
    },
    validate: async (name) => {
      await project.synthesize();
      const cwd = stackFolder(name);
      await must(binary, ["init", "-backend=false", "-input=false"], { cwd });
      const { stdout } = await run(binary, ["validate", "-json"], { cwd });
      return JSON.parse(stdout).diagnostics;
    },
    output: async (name) => {
      const text = await must(binary, ["output", "-json", environmentOutput], {
        cwd: stackFolder(name),
      });
      return environmentSchema.parse(JSON.parse(text));
    },
    destroy: async (name) => {
      const outcome = await cdktf("destroy", name, "--auto-approve", lock);
      if (outcome.code === 0) deployed.delete(name);
      return outcome;
    },
    remove: async () => {
      for (const name of [...deployed]) {
        const { code } = await project.destroy(name);
        if (code !== 0) await removeAll(docker, name);
      }
      await rm(folder, { recursive: true, force: true });
    },
  };
  return project;
}

function actionsIn(actions: readonly string[]): string {
  return (
    { "delete,create": "replace", "create,delete": "create, then delete" }[actions.join()] ??
    actions.join()
  );
}

/** Shortens `docker_container.weights_check_container_1D9A6BA1["161a50bc1684"]` to `docker_container.weights_check`. */
function shortAddress(address: string): string {
  return address.replace(/_[0-9A-F]{8}(\[[^\]]*\])?$/, "").replace(/_container$/, "");
}

const tsx = join(root, "node_modules", "tsx", "dist", "cli.mjs");

/** Copies the tracked and untracked files of git and links the installed packages. */
async function copyProject(folder: string): Promise<void> {
  const list = await succeed(
    "git",
    ["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    { cwd: root },
  );
  const files = list.split("\0").filter((file) => file !== "");
  for (const parent of new Set(files.map((file) => dirname(file)))) {
    await mkdir(join(folder, parent), { recursive: true });
  }
  // a removed file is listed until its removal is committed
  await Promise.all(
    files.map((file) =>
      // links inside the project then point into the copy
      cp(join(root, file), join(folder, file), { verbatimSymlinks: true }).catch(() => undefined),
    ),
  );
  await Promise.all(installed.map((packages) => linkPackages(packages, folder)));
}

/** Links the installed packages, but those of the project, and so its commands, are the copies. */
async function linkPackages(packages: string, folder: string): Promise<void> {
  const from = join(root, packages);
  const to = join(folder, packages);
  const names = await readdir(from).catch(() => []); // npm creates no folder for a workspace without own packages
  if (names.length > 0) await mkdir(to);
  await Promise.all(
    names.map((name) =>
      [".bin", "@clipstack", "clipstack"].includes(name)
        ? cp(join(from, name), join(to, name), { recursive: true, verbatimSymlinks: true })
        : symlink(join(from, name), join(to, name)),
    ),
  );
}

/** Embed image built on the host from its local base image. */
export function builtImage() {
  const { CLIPSTACK_NODE_IMAGE: base } = process.env;
  return { source: "build", ...(base === undefined ? {} : { buildArgs: { NODE_IMAGE: base } }) };
}

/** Settings of `single-gpu` with an embed server on the CPU as the only service. */
export function onlyEmbed(docker: Docker, port: number) {
  return {
    accelerator: "cpu",
    host: { docker: docker.endpoint },
    network: "clipstack-test-single-gpu",
    embed: { port, image: builtImage() },
    tritonOnnx: { enabled: false },
    tritonTrt: { enabled: false },
  };
}

/** Port settings of a Triton server: gRPC and metrics follow the HTTP port. */
export function tritonPortsOf(http: number) {
  return { http, grpc: http + 1, metrics: http + 2 };
}

/** GPU of a test; the other values are those of an RTX 4080. */
export interface TestGpu {
  readonly uuid: string;
  readonly memoryMiB?: number;
}

/** Returns a script with the output of `nvidia-smi` on a host with these GPUs. */
export function nvidiaSmi(gpus: readonly TestGpu[]): string {
  return gpus
    .map(
      ({ uuid, memoryMiB = 16_376 }, index) =>
        `echo '${index}, ${uuid}, ${memoryMiB}, ${memoryMiB - 300}, 8.9, 580.95.05, NVIDIA GeForce RTX 4080'`,
    )
    .join("\n");
}

/** Throws if objects with the name of this environment exist, because the test removes them afterwards. */
async function requireNoObjects(docker: Docker, environment: ProjectEnvironment): Promise<void> {
  const there = (await docker.contents()).filter((it) => it.includes(` ${environment}-`));
  if (there.length > 0) {
    throw new Error(
      `${docker.endpoint} already has objects of ${environment}, which a test must not remove: ${there.join(", ")}`,
    );
  }
}

/** Removes the objects of a deployment after a failed destroy. */
async function removeAll(docker: Docker, environment: ProjectEnvironment): Promise<void> {
  const prefix = `${environment}-`;
  const own = (names: readonly string[]) => names.filter((name) => name.startsWith(prefix));
  for (const name of own(await docker.lines("ps", "--all", "--format", "{{.Names}}"))) {
    await docker.run("rm", "--force", "--volumes", name).catch(() => undefined);
  }
  for (const name of own(await docker.lines("volume", "ls", "--format", "{{.Name}}"))) {
    await docker.run("volume", "rm", name).catch(() => undefined);
  }
  const networks = await docker.lines("network", "ls", "--format", "{{.Name}}");
  for (const name of networks.filter((network) => network.startsWith("clipstack-test-"))) {
    await docker.run("network", "rm", name).catch(() => undefined);
  }
}

/**
 * Removes the unlimited locked memory that a Triton server on a GPU requests from the constructs of a test project, if the engine runs
 * inside a container and cannot grant it.
 *
 * @throws {Error} if the constructs no longer contain the limit
 */
export async function keepLockedMemoryLimit(
  docker: Docker,
  project: TestProject,
  image: string,
): Promise<void> {
  const limit = ["run", "--rm", "--ulimit", "memlock=-1:-1", "--entrypoint=true", image];
  if ((await command("docker", ["--host", docker.endpoint, ...limit])).code === 0) return;
  const file = join(project.folder, "constructs", "docker", "triton-container.ts");
  const text = await readFile(file, "utf8");
  const without = text.replace('[{ name: "memlock", soft: -1, hard: -1 }]', "[]");
  if (without === text) throw new Error(`${file} requests no unlimited locked memory`);
  await writeFile(file, without);
}
