import { z } from "zod";
import { type WaitOptions, waitForState } from "../shared/wait-for-state.ts";
import { type Docker, DockerError } from "./docker-command.ts";

/** State of a container that decides whether it is healthy, from `docker inspect`. */
export interface ContainerState {
  /** `created`, `running`, `paused`, `restarting`, `exited`, `dead`. */
  readonly status: string;
  readonly exitCode: number;
  /** Whether the kernel killed it because it was out of memory. */
  readonly oomKilled: boolean;
  /** Error with which Docker failed to start the container; empty if it started. */
  readonly error: string;
  /** Restarts by the engine since the container was created. */
  readonly restarts: number;
  /** Absent if the container has no health check. */
  readonly health?: {
    readonly status: string;
    /** Consecutive failed probes. */
    readonly failures: number;
    /** Consecutive failures that make the container unhealthy. */
    readonly retries: number;
    /** Output of the last probe. */
    readonly probe: string;
  };
}

/** Docker's default if the health check does not set one. */
const defaultRetries = 3;

const inspected = z
  .object({
    RestartCount: z.number(),
    State: z.object({
      Status: z.string(),
      ExitCode: z.number(),
      OOMKilled: z.boolean(),
      Error: z.string(),
      Health: z
        .object({
          Status: z.string(),
          FailingStreak: z.number(),
          Log: z.array(z.object({ Output: z.string() })).nullish(),
        })
        .nullish(),
    }),
    Config: z.object({ Healthcheck: z.object({ Retries: z.number().nullish() }).nullish() }),
  })
  .transform(({ RestartCount, State, Config }): ContainerState => {
    const probe = State.Health?.Log?.at(-1);
    return {
      status: State.Status,
      exitCode: State.ExitCode,
      oomKilled: State.OOMKilled,
      error: State.Error,
      restarts: RestartCount,
      health:
        State.Health == null || State.Health.Status === "none"
          ? undefined
          : {
              status: State.Health.Status,
              failures: State.Health.FailingStreak,
              retries: Config.Healthcheck?.Retries || defaultRetries,
              probe: probe?.Output.trim() ?? "",
            },
    };
  });

/** Parses the output of `docker inspect --type container`. */
export function parseState(text: string): ContainerState {
  return z.array(inspected).length(1).parse(JSON.parse(text))[0] as ContainerState;
}

/** Number of restarts after which a container counts as restarting in a loop. */
const restartLimit = 3;

/** `ready` if the container is healthy; `failed` is the reason why it will not become healthy. */
export type HealthVerdict = "ready" | "waiting" | { readonly failed: string };

/** Judges a container by its state now and its first state, because earlier failures may be resolved. */
export function judgeState(now: ContainerState, first: ContainerState): HealthVerdict {
  const end = now.oomKilled
    ? "was killed because it ran out of memory"
    : now.error === ""
      ? `exited with code ${now.exitCode}`
      : `could not be started: ${now.error}`;
  if (now.health?.status === "healthy" && now.status === "running") return "ready";
  if (now.status === "exited" || now.status === "dead") return { failed: end };
  if (now.status === "paused") return { failed: "is paused" };
  const looping = now.status === "restarting" || now.restarts > first.restarts;
  if (looping && now.restarts >= restartLimit) {
    // the exit code is reset when the container starts
    const why = now.status === "restarting" ? `: it ${end}` : "";
    return { failed: `restarts in a loop (${now.restarts} times)${why}` };
  }
  if (now.status === "running" && now.health === undefined)
    return { failed: "has no health check" };
  if (now.status === "running" && now.health?.status === "unhealthy") {
    const { failures, retries, probe } = now.health;
    // the engine also reports a stopping container as unhealthy, without a failure
    if (failures >= failuresBefore(now, first) + retries) {
      return { failed: probe === "" ? "is unhealthy" : `is unhealthy: ${probe}` };
    }
  }
  return "waiting";
}

/**
 * Returns the failures that are not counted. A container that was already unhealthy is given another `retries` probes, because a
 * gateway of an earlier deployment becomes healthy once its Triton server is available.
 */
function failuresBefore(now: ContainerState, first: ContainerState): number {
  const since = first.health?.status === "unhealthy" && now.restarts === first.restarts;
  return since ? (first.health?.failures ?? 0) : 0;
}

/** State as text: `running, starting, 2 restarts`. */
export function stateText({ status, health, restarts }: ContainerState): string {
  const parts = [status, status === "running" ? health?.status : undefined];
  if (restarts > 0) parts.push(`${restarts} ${restarts === 1 ? "restart" : "restarts"}`);
  return parts.filter((part) => part !== undefined).join(", ");
}

export interface HealthWait extends WaitOptions {
  readonly docker: Docker;
  /** Name or id. */
  readonly container: string;
}

/** Consecutive Docker errors that end the wait; connections over ssh may drop. */
const errorLimit = 3;

/**
 * Waits until a container is healthy.
 *
 * @returns The failure as a predicate (`is unhealthy: …`), or undefined once the container is healthy.
 * @throws {DockerError} if Docker is unavailable at the start, or several times in a row.
 */
export function waitUntilHealthy(wait: HealthWait): Promise<string | undefined> {
  const { docker, timeoutMs } = wait;
  let first: ContainerState | undefined;
  let errors = 0;
  return waitForState(
    {
      async read() {
        try {
          const state = await readState(wait);
          errors = 0;
          return state;
        } catch (error) {
          if (!(error instanceof DockerError) || first === undefined || ++errors > errorLimit)
            throw error;
          return "unreachable";
        }
      },
      text: stateText,
      judge(state) {
        first ??= state;
        const verdict = judgeState(state, first);
        return typeof verdict === "string" ? verdict : verdict.failed;
      },
      missing: `does not exist on ${docker.endpoint}`,
      timedOut(state, text) {
        const probe = state === "unreachable" ? "" : (state.health?.probe ?? "");
        return `is not healthy after ${Math.round(timeoutMs / 1000)} s (${text})${probe === "" ? "" : `; last probe: ${probe}`}`;
      },
    },
    wait,
  );
}

/** Reads the state of a container; undefined if it does not exist. */
async function readState({ docker, container }: HealthWait): Promise<ContainerState | undefined> {
  const result = await docker.run("inspect", "--type", "container", container);
  if (result.exitCode === 0) return parseState(result.stdout);
  if (/no such (container|object)/i.test(result.stderr)) return undefined;
  throw new Error(`docker inspect ${container} failed: ${result.stderr.trim().split("\n")[0]}`);
}

/** Last lines of a container's log, stdout and stderr merged by time. */
export async function lastLogLines(
  docker: Docker,
  container: string,
  count: number,
): Promise<readonly string[]> {
  const { exitCode, stdout, stderr } = await docker.run(
    "logs",
    "--timestamps",
    "--tail",
    `${count}`,
    container,
  );
  if (exitCode !== 0) return [];
  return [...stdout.split("\n"), ...stderr.split("\n")]
    .filter((line) => line.trim() !== "")
    .sort() // by the timestamp prefix
    .slice(-count)
    .map((line) => line.replace(/^\S+ /, ""));
}
