import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { type Docker, DockerError } from "./docker-command.ts";

/** Waiting for a container to become healthy, with `docker inspect` and nothing else. */

/** How a container is, as far as waiting for it goes. */
export interface ContainerState {
  /** `created`, `running`, `paused`, `restarting`, `exited`, `dead`. */
  readonly status: string;
  readonly exitCode: number;
  /** Out of memory: the kernel ended it. */
  readonly oomKilled: boolean;
  /** Why the engine could not start it. */
  readonly error: string;
  /** Restarts by the engine, since the container was made. */
  readonly restarts: number;
  /** Absent where the container has no health check. */
  readonly health?: {
    readonly status: string;
    /** Probes that failed in a row. */
    readonly failures: number;
    /** So many in a row make it unhealthy. */
    readonly retries: number;
    /** What the last one said. */
    readonly probe: string;
  };
}

/** Docker's own, where a health check does not say. */
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

/** Of `docker inspect --type container`. */
export function parseState(text: string): ContainerState {
  return z.array(inspected).length(1).parse(JSON.parse(text))[0] as ContainerState;
}

/** A container that the engine has restarted this often does not start by waiting longer. */
const restartLimit = 3;

/** `healthy`, `waiting`, or why it will not become healthy. */
export type Verdict = "healthy" | "waiting" | { readonly failed: string };

/**
 * Judge a container by how it is and how it was when the wait began: what had happened before may be over.
 */
export function judgeState(now: ContainerState, first: ContainerState): Verdict {
  const end = now.oomKilled
    ? "was ended for lack of memory"
    : now.error === ""
      ? `exited with code ${now.exitCode}`
      : `could not be started: ${now.error}`;
  if (now.health?.status === "healthy" && now.status === "running") return "healthy";
  if (now.status === "exited" || now.status === "dead") return { failed: end };
  if (now.status === "paused") return { failed: "is paused" };
  const looping = now.status === "restarting" || now.restarts > first.restarts;
  if (looping && now.restarts >= restartLimit) {
    // how it ended is forgotten when it starts again
    const why = now.status === "restarting" ? `: it ${end}` : "";
    return { failed: `restarts in a loop (${now.restarts} times)${why}` };
  }
  if (now.status === "running" && now.health === undefined)
    return { failed: "has no health check" };
  if (now.status === "running" && now.health?.status === "unhealthy") {
    const { failures, retries, probe } = now.health;
    // the engine also calls it so, with no failure, when it ends the probes of one that stops
    if (failures >= failuresBefore(now, first) + retries) {
      return { failed: probe === "" ? "is unhealthy" : `is unhealthy: ${probe}` };
    }
  }
  return "waiting";
}

/**
 * One that was unhealthy before has as many probes again: a gateway of an earlier deployment becomes healthy once its Triton
 * is there.
 */
function failuresBefore(now: ContainerState, first: ContainerState): number {
  const since = first.health?.status === "unhealthy" && now.restarts === first.restarts;
  return since ? (first.health?.failures ?? 0) : 0;
}

/** `running, starting, 2 restarts`: what changes while one waits. */
export function stateText({ status, health, restarts }: ContainerState): string {
  const parts = [status, status === "running" ? health?.status : undefined];
  if (restarts > 0) parts.push(`${restarts} ${restarts === 1 ? "restart" : "restarts"}`);
  return parts.filter((part) => part !== undefined).join(", ");
}

export interface WaitOptions {
  readonly docker: Docker;
  /** Name or id. */
  readonly container: string;
  readonly timeoutMs: number;
  /** Between two looks. */
  readonly intervalMs: number;
  readonly signal?: AbortSignal;
  /** The state, each time that it changes, and how long it took. */
  readonly onState: (text: string, elapsedMs: number) => void;
}

/**
 * Wait until a container is healthy.
 *
 * @returns Why it is not, to follow its name, or nothing.
 * @throws {DockerError} where Docker cannot be asked for longer than a moment.
 */
export async function waitUntilHealthy(options: WaitOptions): Promise<string | undefined> {
  const { docker, timeoutMs, intervalMs, signal, onState } = options;
  const startMs = performance.now();
  let first: ContainerState | undefined;
  let told = "";
  let failures = 0;
  while (true) {
    const state = await look(options).catch((error: unknown) => {
      // a connection over ssh may drop in minutes of waiting
      if (!(error instanceof DockerError) || first === undefined || ++failures > 3) throw error;
      return "unreachable" as const;
    });
    const elapsedMs = performance.now() - startMs;
    if (state === undefined)
      return `is not there: no container has this name on ${docker.endpoint}`;
    if (state !== "unreachable") {
      failures = 0;
      first ??= state;
      const text = stateText(state);
      if (text !== told) onState(text, elapsedMs);
      told = text;
      const verdict = judgeState(state, first);
      if (verdict === "healthy") return undefined;
      if (verdict !== "waiting") return verdict.failed;
    }
    if (elapsedMs >= timeoutMs) {
      const probe = state === "unreachable" ? "" : (state.health?.probe ?? "");
      return `is not healthy after ${Math.round(timeoutMs / 1000)} s (${told})${probe === "" ? "" : `; its health check says: ${probe}`}`;
    }
    await sleep(Math.min(intervalMs, timeoutMs - elapsedMs), undefined, { signal });
  }
}

/** Nothing where there is no such container. */
async function look({ docker, container }: WaitOptions): Promise<ContainerState | undefined> {
  const result = await docker.run("inspect", "--type", "container", container);
  if (result.exitCode === 0) return parseState(result.stdout);
  if (/no such (container|object)/i.test(result.stderr)) return undefined;
  throw new Error(`docker inspect ${container} failed: ${result.stderr.trim().split("\n")[0]}`);
}

/** The last lines that a container wrote, stdout and stderr in their order where the engine keeps it. */
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
    .sort() // by the time that each line begins with
    .slice(-count)
    .map((line) => line.replace(/^\S+ /, ""));
}
