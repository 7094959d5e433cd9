import { execFile } from "node:child_process";

/**
 * Test fixture: the Docker engine for deployments. `CLIPSTACK_TEST_DOCKER_HOST` is its endpoint; default: the engine of the `docker`
 * command.
 */

export interface Outcome {
  readonly code: number;
  /** Standard output. */
  readonly stdout: string;
  /** Both streams, approximately in order of arrival. */
  readonly output: string;
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Limit in ms. It only prevents hangs. */
  readonly timeoutMs?: number;
  /** Standard input. */
  readonly input?: string;
}

/** Runs a program. Returns an outcome for failures too. */
export function command(
  program: string,
  args: readonly string[],
  { cwd, env, timeoutMs = 240_000, input }: CommandOptions = {},
): Promise<Outcome> {
  return new Promise((resolve) => {
    let output = "";
    const child = execFile(
      program,
      [...args],
      { cwd, env, timeout: timeoutMs, killSignal: "SIGINT", maxBuffer: 64 * 1024 * 1024 },
      (error, stdout) => {
        const code = error === null ? 0 : typeof error.code === "number" ? error.code : -1;
        if (code === -1) output += `\n${program}: ${error?.message}`;
        resolve({ code, stdout, output });
      },
    );
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (text: string) => {
        output += text;
      });
    }
    // a program that closes its input early reports the reason itself
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
  });
}

/** @throws with the output of the program if its exit code is not 0 */
export async function succeed(
  program: string,
  args: readonly string[],
  options?: CommandOptions,
): Promise<string> {
  const { code, stdout, output } = await command(program, args, options);
  if (code !== 0) {
    throw new Error(`${program} ${args.join(" ")} ended with exit code ${code}:\n${output}`);
  }
  return stdout;
}

/** A Docker engine. */
export interface Docker {
  /** Endpoint as in the settings: `unix:///…`. */
  readonly endpoint: string;
  /** Output of `docker …`, without the final line break. @throws if it fails */
  run(...args: readonly string[]): Promise<string>;
  /** Lines of the output; empty without output. */
  lines(...args: readonly string[]): Promise<readonly string[]>;
  inspect(container: string): Promise<InspectedContainer>;
  /** Names of all containers, networks, volumes and images. */
  contents(): Promise<readonly string[]>;
}

/** Part of `docker inspect` that tests read. */
export interface InspectedContainer {
  readonly Id: string;
  readonly Image: string;
  readonly RestartCount: number;
  readonly State: { readonly Status: string; readonly StartedAt: string; readonly Pid: number };
  readonly Config: {
    readonly Cmd: readonly string[] | null;
    readonly Env: readonly string[];
    readonly Labels: Readonly<Record<string, string>>;
  };
  readonly HostConfig: {
    readonly Runtime: string;
    readonly DeviceRequests:
      | readonly {
          readonly Driver: string;
          readonly Count: number;
          readonly DeviceIDs: readonly string[] | null;
          readonly Capabilities: readonly (readonly string[])[];
        }[]
      | null;
  };
}

/**
 * Objects that may appear during a test: unnamed layers of a build cache, build containers with generated names, and images that CI
 * builds for its test cluster.
 */
const ofBuilds = /^(image <none>:|image (local|registry\.k8s\.io)\/|container [a-z]+_[a-z]+\d?$)/;

export function dockerAt(endpoint: string): Docker {
  const run = async (...args: readonly string[]) =>
    (await succeed("docker", ["--host", endpoint, ...args])).trimEnd();
  const lines = async (...args: readonly string[]) =>
    (await run(...args)).split("\n").filter((line) => line !== "");
  return {
    endpoint,
    run,
    lines,
    inspect: async (container) =>
      (JSON.parse(await run("container", "inspect", container)) as [InspectedContainer])[0],
    contents: async () => {
      const [containers, networks, volumes, images] = await Promise.all([
        lines("ps", "--all", "--format", "container {{.Names}}"),
        lines("network", "ls", "--format", "network {{.Name}}"),
        lines("volume", "ls", "--format", "volume {{.Name}}"),
        lines("image", "ls", "--format", "image {{.Repository}}:{{.Tag}}"),
      ]);
      return [...containers, ...networks, ...volumes, ...images]
        .filter((it) => !ofBuilds.test(it))
        .sort();
    },
  };
}

/** Returns the engine, or the reason why there is none. */
export async function testDocker(
  endpoint = process.env.CLIPSTACK_TEST_DOCKER_HOST,
): Promise<{ readonly docker: Docker; readonly missing: string }> {
  const asked = endpoint === undefined ? [] : ["--host", endpoint];
  const info = await command("docker", [...asked, "version", "--format", "{{.Server.Version}}"]);
  const missing = info.code === 0 ? "" : "no Docker engine answers";
  if (endpoint !== undefined || missing !== "")
    return { docker: dockerAt(endpoint ?? ""), missing };
  const context = await command("docker", [
    "context",
    "inspect",
    "--format",
    "{{.Endpoints.docker.Host}}",
  ]);
  return { docker: dockerAt(process.env.DOCKER_HOST ?? context.stdout.trim()), missing };
}
