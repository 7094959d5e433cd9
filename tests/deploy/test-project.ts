import { copyFile, cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import {
  type Environment,
  environmentOutput,
  environment as environmentSchema,
} from "../../contract/environment.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { type ShippedEnvironment, shippedStacks } from "../../stacks/environment-files.ts";
import { type CommandOptions, command, type Docker, type Outcome, succeed } from "./test-docker.ts";

/**
 * For tests: a copy of the project in a folder of its own, with the tiny model, that deploys for real as a person does:
 * `npx cdktf deploy …`. Its settings, its `cdktf.out` and its state are its own.
 */

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Folders of installed packages; the copy leads to them. */
const installed = ["node_modules", "bench/node_modules", "cli/node_modules"];

export interface TestProjectOptions {
  readonly docker: Docker;
  /**
   * What plans and applies: a program that takes Terraform's arguments.
   *
   * @default "terraform"
   */
  readonly binary?: string;
  /**
   * Folder that programs are looked for in first.
   *
   * @default - the PATH of the tests
   */
  readonly path?: string;
  /** Of every program that is run, besides that of the tests. */
  readonly variables?: NodeJS.ProcessEnv;
  /**
   * Against a hang: of a program that is run, in ms.
   *
   * @default 840 000 - less than a test has
   */
  readonly timeoutMs?: number;
}

/**
 * What a deployment would do, a line for each resource: `replace docker_container.embed`. Another instance of the same
 * resource, as a one-shot container has it for every content, is a line with `create` and one with `delete`.
 */
export type Plan = readonly string[];

/** A planned change, as `terraform show -json` has it. */
interface PlannedChange {
  readonly address: string;
  readonly change: { readonly actions: readonly string[] };
}

export interface TestProject {
  readonly folder: string;
  /** Write the settings of an environment, instead of the project's. */
  settings(
    environment: ShippedEnvironment,
    settings: Readonly<Record<string, unknown>>,
  ): Promise<void>;
  /** `npx cdktf …` */
  cdktf(...args: readonly string[]): Promise<Outcome>;
  /** `npx cdktf deploy <environment> --auto-approve` */
  deploy(environment: ShippedEnvironment): Promise<Outcome>;
  /** Write `cdktf.out`. */
  synthesize(): Promise<void>;
  /** `terraform …` in the folder of a stack; another one of the same depth where it is named. */
  terraform(folder: string, ...args: readonly string[]): Promise<Outcome>;
  /** `npx clipstack …` */
  clipstack(...args: readonly string[]): Promise<Outcome>;
  /** Synthesize, and plan what a deploy would change: nothing where it changes nothing. */
  plan(environment: ShippedEnvironment): Promise<Plan>;
  /** Synthesize, and let the program read the stack: what it finds wrong. */
  validate(environment: ShippedEnvironment): Promise<readonly unknown[]>;
  /** What the deployment says of itself. */
  output(environment: ShippedEnvironment): Promise<Environment>;
  /** `npx cdktf destroy <environment> --auto-approve` */
  destroy(environment: ShippedEnvironment): Promise<Outcome>;
  /** Destroy what is deployed, whatever its state is, and remove the folder. */
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
    ...(await providerPlaces(folder)),
    TF_IN_AUTOMATION: "1",
    TERRAFORM_BINARY_NAME: binary,
    // a provider of the mirror is linked and not copied
    CDKTF_DISABLE_PLUGIN_CACHE_ENV: "true",
    NO_COLOR: "1",
    FORCE_COLOR: "0",
  };
  const run = (program: string, args: readonly string[], options: CommandOptions = {}) =>
    command(program, args, { cwd: folder, env, timeoutMs, ...options });
  const must = (program: string, args: readonly string[], options: CommandOptions = {}) =>
    succeed(program, args, { cwd: folder, env, ...options });
  const stackFolder = (name: ShippedEnvironment) => join(folder, "cdktf.out", "stacks", name);
  const cdktf = (...args: readonly string[]) =>
    run(process.execPath, [join(root, "node_modules", ".bin", "cdktf"), ...args]);
  // the lock of a copy is nobody's, and a registry is asked for it
  const lock = "--skip-provider-lock";
  const deployed = new Set<ShippedEnvironment>();
  const project: TestProject = {
    folder,
    settings: (name, settings) =>
      writeFile(
        join(folder, "environments", `${name}.yaml`),
        stringify({ stack: shippedStacks[name], ...settings }),
      ),
    cdktf,
    synthesize: async () => {
      await must(process.execPath, [tsx, join(folder, "stacks", "main.ts")]);
    },
    terraform: (cwd, ...args) => run(binary, args, { cwd }),
    deploy: async (name) => {
      if (!deployed.has(name)) await refuseWhatIsThere(docker, name);
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
      if (code !== 2) throw new Error(`plan ended with exit code ${code}:\n${output}`);
      const plan = JSON.parse(await must(binary, ["show", "-json", file], { cwd }));
      return (plan.resource_changes as PlannedChange[])
        .filter(({ change }) => !["no-op", "read"].includes(change.actions.join()))
        .map(({ address, change }) => `${actionsIn(change.actions)} ${plainAddress(address)}`)
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

/** `docker_container.weights_check` of `docker_container.weights_check_container_1D9A6BA1["161a50bc1684"]`. */
function plainAddress(address: string): string {
  return address.replace(/_[0-9A-F]{8}(\[[^\]]*\])?$/, "").replace(/_container$/, "");
}

const tsx = join(root, "node_modules", "tsx", "dist", "cli.mjs");

/** What git knows or would take, and links to what is installed. */
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
  // a file that was removed is still listed until that is committed
  await Promise.all(
    files.map((file) =>
      // a link inside the project leads to the copy
      cp(join(root, file), join(folder, file), { verbatimSymlinks: true }).catch(() => undefined),
    ),
  );
  for (const packages of installed) await symlink(join(root, packages), join(folder, packages));
}

/**
 * Where both programs look for providers: in their usual places, of which the mirror that `CLIPSTACK_TF_PLUGIN_DIR` names becomes
 * one. What is in none of them comes from the registry.
 *
 * @param folder - for what has to be written
 */
export async function providerPlaces(folder: string): Promise<NodeJS.ProcessEnv> {
  const { CLIPSTACK_TF_PLUGIN_DIR: mirror, XDG_DATA_DIRS } = process.env;
  // another configuration would say other places
  const cliConfig = join(folder, "terraform.rc");
  await writeFile(cliConfig, "");
  if (mirror === undefined) return { TF_CLI_CONFIG_FILE: cliConfig };
  const share = join(folder, "terraform-share");
  for (const program of ["terraform", "opentofu"]) {
    await mkdir(join(share, program), { recursive: true });
    await symlink(mirror, join(share, program, "plugins"));
  }
  return {
    TF_CLI_CONFIG_FILE: cliConfig,
    XDG_DATA_DIRS: [share, XDG_DATA_DIRS || "/usr/local/share:/usr/share"].join(delimiter),
  };
}

/** The embed image, built by the host, on the base image that it has. */
export function builtImage() {
  const { CLIPSTACK_NODE_IMAGE: base } = process.env;
  return { source: "build", ...(base === undefined ? {} : { buildArgs: { NODE_IMAGE: base } }) };
}

/** Ports of a Triton, as settings have them, where its HTTP port was free a moment ago: the others are beside it. */
export function tritonPortsOf(http: number) {
  return { http, grpc: http + 1, metrics: http + 2 };
}

/** What a test says of a GPU; the rest is that of an RTX 4080. */
export interface TestGpu {
  readonly uuid: string;
  readonly memoryMiB?: number;
}

/** A script that prints what `nvidia-smi` prints on a host with these GPUs. */
export function nvidiaSmi(gpus: readonly TestGpu[]): string {
  return gpus
    .map(
      ({ uuid, memoryMiB = 16_376 }, index) =>
        `echo '${index}, ${uuid}, ${memoryMiB}, ${memoryMiB - 300}, 8.9, 580.95.05, NVIDIA GeForce RTX 4080'`,
    )
    .join("\n");
}

/** Everything that is named like this environment is removed afterwards: it must not be somebody's. */
async function refuseWhatIsThere(docker: Docker, environment: ShippedEnvironment): Promise<void> {
  const there = (await docker.contents()).filter((it) => it.includes(` ${environment}-`));
  if (there.length > 0) {
    throw new Error(
      `${docker.endpoint} has ${environment} already, which a test must not touch: ${there.join(", ")}`,
    );
  }
}

/** What a deployment left behind when it could not be destroyed in order. */
async function removeAll(docker: Docker, environment: ShippedEnvironment): Promise<void> {
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
 * Removes the unlimited locked memory that a Triton on a GPU requests from the constructs of a test project, if the engine runs
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
