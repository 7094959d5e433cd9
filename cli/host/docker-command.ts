import { z } from "zod";
import { type InspectedContainer, inspectedContainer } from "../../artefact/docker-inspect.ts";
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";
import type { Problem } from "../shared/problem.ts";
import { type ProgramOptions, type ProgramResult, runProgram } from "../shared/run-program.ts";
import { explainSsh, sshTarget } from "./ssh.ts";

/** Failure to reach a Docker engine. */
export class DockerError extends Error {
  override readonly name = "DockerError";

  constructor(readonly problem: Problem) {
    super(`${problem.message}; ${problem.fix}`);
  }
}

/** Timeout of a command, including the ssh connection. */
const commandMs = 40_000;

/** Docker engine, used through the `docker` command line with the user's keys and contexts. */
export class Docker {
  /** @param endpoint - `unix:///path`, `ssh://user@host`, `tcp://host:port`. */
  constructor(
    readonly endpoint: string,
    private readonly signal?: AbortSignal,
  ) {}

  /**
   * Runs a command of the engine.
   *
   * @returns The result; the exit code may be other than 0.
   * @throws {DockerError} if the engine cannot be reached or the docker command line is missing.
   */
  run(...args: readonly string[]): Promise<ProgramResult> {
    return this.runWith({}, ...args);
  }

  /** Like {@link run}, for a command that may take longer or reads variables. */
  async runWith(
    { timeoutMs = commandMs, env }: Partial<Pick<ProgramOptions, "timeoutMs" | "env">>,
    ...args: readonly string[]
  ): Promise<ProgramResult> {
    const result = await runProgram("docker", ["--host", this.endpoint, ...args], {
      timeoutMs,
      signal: this.signal,
      ...(env !== undefined && { env }),
    });
    this.signal?.throwIfAborted();
    if (result.outcome === "ended" && result.exitCode === 0) return result;
    const problem = dockerProblem(result, this.endpoint, timeoutMs);
    if (problem === undefined) return result;
    throw new DockerError(problem);
  }

  /** Inspects containers by name or id; missing ones are omitted. */
  async inspect(...containers: readonly string[]): Promise<readonly InspectedContainer[]> {
    if (containers.length === 0) return [];
    const { exitCode, stdout, stderr } = await this.run(
      ...["inspect", "--type", "container", ...containers],
    );
    if (exitCode !== 0 && !/no such (?:container|object)/i.test(stderr)) {
      throw new UserError(`docker inspect failed: ${stderr.trim().split("\n").at(-1)}`);
    }
    const where = "docker inspect";
    return parseAs(z.array(inspectedContainer), parseJson(stdout || "[]", where), where);
  }
}

/** Awaits commands of an engine; undefined if it cannot be reached. */
export async function ifReachable<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof DockerError) return undefined;
    throw error;
  }
}

const localEndpoint = "unix:///var/run/docker.sock";

/** Returns the default endpoint of the docker command line, and its source. */
export async function defaultEndpoint(): Promise<{
  readonly endpoint: string;
  readonly by: "DOCKER_HOST" | "context";
}> {
  const { DOCKER_HOST: host } = process.env;
  if (host !== undefined && host !== "") return { endpoint: host, by: "DOCKER_HOST" };
  const { exitCode, stdout } = await runProgram(
    "docker",
    ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"],
    { timeoutMs: commandMs },
  );
  const endpoint = exitCode === 0 && stdout.trim() !== "" ? stdout.trim() : localEndpoint;
  return { endpoint, by: "context" };
}

/** Returns whether Terraform's Docker provider, which does not read contexts, uses the same engine as the command line. */
export function isReadByProvider({
  endpoint,
  by,
}: Awaited<ReturnType<typeof defaultEndpoint>>): boolean {
  return by === "DOCKER_HOST" || endpoint === localEndpoint;
}

/** Returns why the engine could not be reached; undefined if it rejected the command. */
export function dockerProblem(
  result: ProgramResult,
  endpoint: string,
  timeoutMs: number = commandMs,
): Problem | undefined {
  if (result.outcome === "missing") {
    return {
      code: "docker-command",
      message: "the docker command line must be installed on this machine",
      fix: "install the client, for example with 'apt-get install docker-cli'; the engine may be on another machine",
    };
  }
  if (result.outcome === "late") {
    return {
      code: "docker-endpoint",
      message: `Docker at ${endpoint} must respond in ${timeoutMs / 1000} s`,
      fix: "check that the host is running and reachable",
    };
  }
  const { stderr } = result;
  const target = sshTarget(endpoint);
  if (target !== undefined && /exited with exit status|dial-stdio/.test(stderr)) {
    if (/docker: (command )?not found|docker: No such file/.test(stderr)) {
      return {
        code: "docker-endpoint",
        message: `the docker command line must be installed on ${target.text} for ${endpoint}`,
        fix: `install Docker on ${target.text}`,
      };
    }
    return explainSsh(stderr.replace(/^.*stderr=/s, ""), target);
  }
  if (/permission denied/i.test(stderr)) {
    return {
      code: "docker-endpoint",
      message: `this user must be allowed to use Docker at ${endpoint}`,
      fix: "add the user to the group 'docker' on the host, log in again, and run 'docker ps'",
    };
  }
  if (
    /cannot connect to the docker daemon|is the docker daemon running|error during connect|connection refused|no such host|unable to parse docker host|failed to connect|context deadline exceeded/i.test(
      stderr,
    )
  ) {
    return {
      code: "docker-endpoint",
      message: `Docker does not respond at ${endpoint}`,
      fix: endpoint.startsWith("unix://")
        ? `start Docker ('${endpoint.includes("/run/user/") ? "systemctl --user" : "sudo systemctl"} start docker'), or set host.docker to its endpoint ('docker context ls')`
        : "start Docker on the host, or set host.docker to its endpoint",
    };
  }
  return undefined;
}
