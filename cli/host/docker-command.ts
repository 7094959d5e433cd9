import type { Problem } from "../problem.ts";
import { type ProgramResult, runProgram } from "../run-program.ts";
import { explainSsh, sshTarget } from "./ssh.ts";

/** The `docker` command line. It knows every kind of endpoint, with the keys and contexts that its user has set up. */

/** Docker cannot be asked. */
export class DockerError extends Error {
  override readonly name = "DockerError";

  constructor(readonly problem: Problem) {
    super(`${problem.message}; ${problem.fix}`);
  }
}

/** Longest wait for one answer of the engine. Over ssh the connection is part of it. */
const answerMs = 40_000;

export class Docker {
  /** @param endpoint - `unix:///path`, `ssh://user@host`, `tcp://host:port`. */
  constructor(
    readonly endpoint: string,
    private readonly signal?: AbortSignal,
  ) {}

  /**
   * Run a command of the engine.
   *
   * @returns What it left, where the engine answered, with an exit code other than 0 as well.
   * @throws {DockerError} where there is no engine, or no docker command line, to ask; the reason of the signal after it.
   */
  async run(...args: readonly string[]): Promise<ProgramResult> {
    const result = await runProgram("docker", ["--host", this.endpoint, ...args], {
      timeoutMs: answerMs,
      signal: this.signal,
    });
    this.signal?.throwIfAborted();
    if (result.outcome === "ended" && result.exitCode === 0) return result;
    const problem = dockerProblem(result, this.endpoint);
    if (problem === undefined) return result;
    throw new DockerError(problem);
  }
}

/** This machine's engine, where neither the environment nor a context names another. */
const localEndpoint = "unix:///var/run/docker.sock";

/** The endpoint that the docker command line takes by itself, and what names it. */
export async function defaultEndpoint(): Promise<{
  readonly endpoint: string;
  readonly by: "DOCKER_HOST" | "context";
}> {
  const { DOCKER_HOST: host } = process.env;
  if (host !== undefined && host !== "") return { endpoint: host, by: "DOCKER_HOST" };
  const { exitCode, stdout } = await runProgram(
    "docker",
    ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"],
    { timeoutMs: answerMs },
  );
  const endpoint = exitCode === 0 && stdout.trim() !== "" ? stdout.trim() : localEndpoint;
  return { endpoint, by: "context" };
}

/** Whether Terraform's docker provider, which reads no contexts, finds the engine that the command line finds. */
export function isFoundByProvider({
  endpoint,
  by,
}: Awaited<ReturnType<typeof defaultEndpoint>>): boolean {
  return by === "DOCKER_HOST" || endpoint === localEndpoint;
}

/** Why the engine could not be asked; nothing when it was asked and refused. */
export function dockerProblem(result: ProgramResult, endpoint: string): Problem | undefined {
  if (result.outcome === "missing") {
    return {
      code: "docker-command",
      message: "the docker command line is not installed on this machine",
      fix: "install it (the client is enough: the engine may be elsewhere), for example with 'apt-get install docker-cli'",
    };
  }
  if (result.outcome === "late") {
    return {
      code: "docker-endpoint",
      message: `Docker at ${endpoint} did not answer in ${answerMs / 1000} s`,
      fix: "see whether the host is up and reached from here",
    };
  }
  const said = result.stderr;
  const target = sshTarget(endpoint);
  if (target !== undefined && /exited with exit status|dial-stdio/.test(said)) {
    if (/docker: (command )?not found|docker: No such file/.test(said)) {
      return {
        code: "docker-endpoint",
        message: `there is no docker command line on ${target.shown}, which '${endpoint}' needs there`,
        fix: `install Docker on ${target.shown}`,
      };
    }
    return explainSsh(said.replace(/^.*stderr=/s, ""), target);
  }
  if (/permission denied/i.test(said)) {
    return {
      code: "docker-endpoint",
      message: `this user may not use Docker at ${endpoint}`,
      fix: "add the user to the group 'docker' on the host, log in again, and try 'docker ps'",
    };
  }
  if (
    /cannot connect to the docker daemon|is the docker daemon running|error during connect|connection refused|no such host|unable to parse docker host|failed to connect|context deadline exceeded/i.test(
      said,
    )
  ) {
    return {
      code: "docker-endpoint",
      message: `Docker does not answer at ${endpoint}`,
      fix: endpoint.startsWith("unix://")
        ? "start it ('sudo systemctl start docker'), or set host.docker to where it listens ('docker context ls' tells)"
        : "start it there, or set host.docker to where it listens",
    };
  }
  return undefined;
}
