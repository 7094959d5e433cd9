import type { InspectedContainer } from "../../artefact/docker-inspect.ts";
import { counted } from "../../report/document/number-format.ts";
import { type WaitOptions, waitForState } from "../shared/wait-for-state.ts";
import { type Docker, DockerError } from "./docker-command.ts";

/** Docker's default if the health check does not set one. */
const defaultRetries = 3;

/** Health of a container; undefined without a health check. */
function healthOf({ State: { Health }, Config }: InspectedContainer) {
  if (Health == null || Health.Status === "none") return undefined;
  return {
    status: Health.Status,
    /** Consecutive failed probes. */
    failures: Health.FailingStreak,
    /** Consecutive failures that make the container unhealthy. */
    retries: Config.Healthcheck?.Retries || defaultRetries,
    /** Output of the last probe. */
    probe: Health.Log.at(-1)?.Output.trim() ?? "",
  };
}

/** Number of restarts after which a container counts as restarting in a loop. */
const restartLimit = 3;

/** `ready` if the container is healthy; `failed` is the reason why it will not become healthy. */
export type HealthVerdict = "ready" | "waiting" | { readonly failed: string };

/** Judges a container by its state now and its first state, because earlier failures may be resolved. */
export function judgeState(now: InspectedContainer, first: InspectedContainer): HealthVerdict {
  const { Status: status, OOMKilled, ExitCode, Error: error } = now.State;
  const { RestartCount: restarts } = now;
  const health = healthOf(now);
  const end = OOMKilled
    ? "was killed because it ran out of memory"
    : error === ""
      ? `exited with code ${ExitCode}`
      : `could not be started: ${error}`;
  if (health?.status === "healthy" && status === "running") return "ready";
  if (status === "exited" || status === "dead") return { failed: end };
  if (status === "paused") return { failed: "is paused" };
  const looping = status === "restarting" || restarts > first.RestartCount;
  if (looping && restarts >= restartLimit) {
    // the exit code is reset when the container starts
    const why = status === "restarting" ? `: it ${end}` : "";
    return { failed: `restarts in a loop (${restarts} times)${why}` };
  }
  if (status !== "running") return "waiting";
  if (health === undefined) return { failed: "has no health check" };
  // the engine also reports a stopping container as unhealthy, without a failure
  if (
    health.status === "unhealthy" &&
    health.failures >= failuresBefore(now, first) + health.retries
  ) {
    return { failed: health.probe === "" ? "is unhealthy" : `is unhealthy: ${health.probe}` };
  }
  return "waiting";
}

/**
 * Returns the failures that are not counted. A container that was already unhealthy is given another `retries` probes, because a
 * gateway of an earlier deployment becomes healthy once its Triton server is available.
 */
function failuresBefore(now: InspectedContainer, first: InspectedContainer): number {
  const health = healthOf(first);
  const isCounted = health?.status !== "unhealthy" || now.RestartCount !== first.RestartCount;
  return isCounted ? 0 : health.failures;
}

/** State as text: `running, starting, 2 restarts`. */
export function stateText(container: InspectedContainer): string {
  const { Status: status } = container.State;
  const health = status === "running" ? healthOf(container)?.status : undefined;
  const restarts =
    container.RestartCount === 0 ? undefined : counted(container.RestartCount, "restart");
  return [status, health, restarts].filter((part) => part !== undefined).join(", ");
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
  let first: InspectedContainer | undefined;
  let errors = 0;
  return waitForState(
    {
      async read() {
        try {
          const [container] = await docker.inspect(wait.container);
          errors = 0;
          return container;
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
        const probe = state === "unreachable" ? "" : (healthOf(state)?.probe ?? "");
        return `is not healthy after ${Math.round(timeoutMs / 1000)} s (${text})${probe === "" ? "" : `; last probe: ${probe}`}`;
      },
    },
    wait,
  );
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
