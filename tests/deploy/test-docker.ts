import { execFile } from "node:child_process";

/**
 * For tests: the Docker engine that they deploy on. `CLIPSTACK_TEST_DOCKER_HOST` names its endpoint; without it, it is the one
 * that `docker` talks to.
 */

export interface Outcome {
  readonly code: number;
  /** Standard output. */
  readonly stdout: string;
  /** Both streams, in the order in which they came, more or less. */
  readonly output: string;
}

export interface CommandOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Against a hang. */
  readonly timeoutMs?: number;
  /** Standard input. */
  readonly input?: string;
}

/** Run a program to its end. A failure is an outcome too. */
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
    // a program that does not read to the end has its reasons, and says them
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
  });
}

/** @throws with what the program wrote, unless it ends with exit code 0. */
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
  /** As the settings have it: `unix:///…`. */
  readonly endpoint: string;
  /** Output of `docker …`, without the last line's end. @throws when it fails. */
  run(...args: readonly string[]): Promise<string>;
  /** Its lines, none when there is no output. */
  lines(...args: readonly string[]): Promise<readonly string[]>;
  inspect(container: string): Promise<InspectedContainer>;
  /** Everything that a deployment could leave behind: containers, networks, volumes, images, by the name that it gave. */
  contents(): Promise<readonly string[]>;
}

/** What `docker inspect` says of a container; only what tests read. */
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
 * What may come and go meanwhile: layers that a build left for the next one have no name, its containers have two words for one,
 * and CI builds the images of its test cluster while tests run.
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

/** The engine, or why there is none. */
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
