import { describe, expect, test } from "vitest";
import { type ContainerState, judgeState, parseState, stateText } from "./container-health.ts";

const starting: ContainerState = {
  status: "running",
  exitCode: 0,
  oomKilled: false,
  error: "",
  restarts: 0,
  health: { status: "starting", failures: 0, retries: 6, probe: "" },
};
const state = (changes: Partial<ContainerState>): ContainerState => ({ ...starting, ...changes });
const health = (status: string, failures = 6, probe = "") => ({
  health: { status, failures, retries: 6, probe },
});
const judge = (now: Partial<ContainerState>, first: Partial<ContainerState> = {}) =>
  judgeState(state(now), state(first));

test("parses the output of docker inspect, including the last probe", () => {
  const text = JSON.stringify([
    {
      RestartCount: 2,
      State: {
        Status: "running",
        ExitCode: 0,
        OOMKilled: false,
        Error: "",
        Health: {
          Status: "unhealthy",
          FailingStreak: 7,
          Log: [{ Output: "x" }, { Output: "503\n" }],
        },
      },
      Config: { Healthcheck: { Retries: 6 } },
    },
  ]);
  expect(parseState(text)).toEqual(state({ restarts: 2, ...health("unhealthy", 7, "503") }));
});

test("parses a container without a health check", () => {
  const text = JSON.stringify([
    {
      RestartCount: 0,
      State: { Status: "running", ExitCode: 0, OOMKilled: false, Error: "" },
      Config: {},
    },
  ]);
  expect(parseState(text).health).toBeUndefined();
});

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
    expect(judge({ health: undefined, status: "created" })).toBe("waiting");
  });

  test("that is paused has failed", () => {
    expect(judge({ status: "paused", ...health("healthy") })).toEqual({ failed: "is paused" });
  });
});

test("renders a state", () => {
  expect(stateText(starting)).toBe("running, starting");
  expect(stateText(state({ status: "restarting", restarts: 1 }))).toBe("restarting, 1 restart");
});
