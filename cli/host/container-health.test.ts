import { describe, expect, test } from "vitest";
import { inspected } from "../../verify/test-containers.ts";
import { judgeState, stateText } from "./container-health.ts";

interface State {
  readonly status?: string;
  readonly exitCode?: number;
  readonly oomKilled?: boolean;
  readonly error?: string;
  readonly restarts?: number;
  readonly health?: { readonly status: string; readonly failures: number; readonly probe: string };
}

const health = (status: string, failures = 6, probe = "") => ({
  health: { status, failures, probe },
});
/** Container with six probes until it is unhealthy, which starts unless the state says otherwise. */
function container(state: State) {
  const {
    status = "running",
    exitCode = 0,
    oomKilled = false,
    error = "",
    restarts = 0,
    health: probed,
  } = { ...health("starting", 0), ...state };
  return inspected((raw) => {
    raw.RestartCount = restarts;
    raw.State = {
      ...raw.State,
      ...{ Status: status, ExitCode: exitCode, OOMKilled: oomKilled, Error: error },
      Health: probed && {
        Status: probed.status,
        FailingStreak: probed.failures,
        Log: [
          { ExitCode: 1, Output: "before" },
          { ExitCode: 1, Output: `${probed.probe}\n` },
        ],
      },
    };
  });
}
const judge = (now: State, first: State = {}) => judgeState(container(now), container(first));

describe("a container", () => {
  test("that starts is waiting, and a healthy one is ready", () => {
    expect(judge({})).toBe("waiting");
    expect(judge({ status: "created" })).toBe("waiting");
    expect(judge(health("healthy"))).toBe("ready");
  });

  test("that exited has failed, with its exit code or error", () => {
    expect(judge({ status: "exited", exitCode: 3 })).toEqual({ failed: "exited with code 3" });
    expect(judge({ status: "exited", exitCode: 137, oomKilled: true })).toEqual({
      failed: "was killed because it ran out of memory",
    });
    expect(judge({ status: "exited", exitCode: 127, error: "no such device" })).toEqual({
      failed: "could not be started: no such device",
    });
  });

  test("that restarts in a loop has failed, running or not", () => {
    expect(judge({ status: "restarting", restarts: 3, exitCode: 1 })).toEqual({
      failed: "restarts in a loop (3 times): it exited with code 1",
    });
    expect(judge({ restarts: 3 }, { restarts: 1 })).toEqual({
      failed: "restarts in a loop (3 times)",
    });
    const before = { status: "restarting", restarts: 5, exitCode: 1 };
    expect(judge(before, before)).toEqual({
      failed: "restarts in a loop (5 times): it exited with code 1",
    });
    expect(judge({ status: "restarting", restarts: 2, exitCode: 1 })).toBe("waiting");
  });

  test("that is stopping has not failed, although the engine reports it as unhealthy", () => {
    const unprobed = health("unhealthy", 0);
    expect(judge({ status: "restarting", restarts: 1, exitCode: 3, ...unprobed })).toBe("waiting");
    expect(judge({ status: "restarting", restarts: 1, ...health("unhealthy") })).toBe("waiting");
    expect(judge({ status: "restarting", restarts: 3, exitCode: 3, ...unprobed })).toEqual({
      failed: "restarts in a loop (3 times): it exited with code 3",
    });
    expect(judge(unprobed)).toBe("waiting");
  });

  test("that restarted before the wait is waiting", () => {
    expect(judge({ restarts: 9 }, { restarts: 9 })).toBe("waiting");
    expect(judge({ restarts: 9, ...health("healthy") }, { restarts: 9 })).toBe("ready");
  });

  test("that becomes unhealthy has failed, with the output of its probe", () => {
    expect(judge(health("unhealthy", 6, "503"))).toEqual({ failed: "is unhealthy: 503" });
    expect(judge(health("unhealthy"))).toEqual({ failed: "is unhealthy" });
  });

  test("that was unhealthy before has another full number of probes", () => {
    const before = health("unhealthy", 20);
    expect(judge(before, before)).toBe("waiting");
    expect(judge(health("unhealthy", 25), before)).toBe("waiting");
    expect(judge(health("unhealthy", 26), before)).toEqual({ failed: "is unhealthy" });
    expect(judge({ ...health("unhealthy"), restarts: 1 }, before)).toEqual({
      failed: "is unhealthy",
    });
  });

  test("without a health check has failed once it runs", () => {
    expect(judge({ health: undefined })).toEqual({ failed: "has no health check" });
    expect(judge(health("none"))).toEqual({ failed: "has no health check" });
    expect(judge({ health: undefined, status: "created" })).toBe("waiting");
  });

  test("that is paused has failed", () => {
    expect(judge({ status: "paused", ...health("healthy") })).toEqual({ failed: "is paused" });
  });
});

test("renders a state", () => {
  expect(stateText(container({}))).toBe("running, starting");
  expect(stateText(container({ status: "restarting", restarts: 1 }))).toBe("restarting, 1 restart");
});
