import { once } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import { testDocker } from "../../tests/deploy/test-docker.ts";
import { clipstack, startClipstack } from "../test-programs.ts";

const { docker, missing } = await testDocker();
const image = process.env.CLIPSTACK_NODE_IMAGE ?? "node:24.21.0-bookworm-slim";
const name = `clipstack-test-health-${process.pid}`;

/** Starts a container that runs `script` and is probed with `probe` every second. */
async function start(script: string, probe?: string, ...args: readonly string[]) {
  const health =
    probe === undefined
      ? []
      : ["--health-cmd", probe, "--health-interval", "1s", "--health-retries", "2"];
  await docker.run("run", "-d", "--name", name, ...health, ...args, image, "sh", "-c", script);
}

function wait(...args: readonly string[]) {
  return clipstack(["wait-healthy", name, ...args], { DOCKER_HOST: docker.endpoint });
}

describe.skipIf(missing !== "")(`wait-healthy${missing && ` (skipped: ${missing})`}`, () => {
  afterEach(() => docker.run("rm", "--force", name).catch(() => {}));

  test("prints each state until the container is healthy", async () => {
    await start("sleep 2; touch /tmp/ready; sleep 600", "test -e /tmp/ready");
    const { code, stdout, stderr } = await wait("--timeout", "60");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(
      new RegExp(`^${name}: running, starting .*\\n${name}: running, healthy \\([\\d.]+ s\\)$`),
    );
  });

  test("fails early on a container that restarts in a loop, with its last log lines", async () => {
    await start(
      "echo loading; sleep 0.1; echo 'weights are damaged' >&2; exit 3",
      // on a slow machine it runs long enough to be probed
      "false",
      ...["--health-start-period", "600s", "--restart", "unless-stopped"],
    );
    const { code, stdout } = await wait("--timeout", "600");
    expect(code).toBe(1);
    expect(stdout).toMatch(/restarts in a loop \(\d+ times\)(: it exited with code 3)?\n/);
    expect(stdout).toMatch(/last log lines:\n(.*\n)* {2}weights are damaged/);
  });

  test("fails after the timeout", async () => {
    await start("echo working; sleep 600", "false", "--health-start-period", "600s");
    const { code, stdout } = await wait("--timeout", "2");
    expect(code).toBe(1);
    expect(stdout).toMatch(new RegExp(`${name} is not healthy after 2 s \\(running, starting\\)`));
    expect(stdout).toMatch(/last log lines:\n {2}working$/);
  });

  test("prints at most --lines log lines", async () => {
    await start("seq 1 100; exit 1", "true");
    const { stdout } = await wait("--lines", "2");
    expect(stdout).toMatch(/last log lines:\n {2}99\n {2}100$/);
  });

  test("fails on a container that does not exist or has no health check", async () => {
    const absent = await wait();
    expect(absent.code).toBe(1);
    expect(absent.stdout).toBe(`${name} does not exist on ${docker.endpoint}`);
    await start("sleep 600");
    const { code, stdout } = await wait();
    expect(code).toBe(1);
    expect(stdout).toContain(`${name} has no health check`);
  });

  test("ends on a signal without a message about the container", async () => {
    await start("sleep 600", "false", "--health-start-period", "600s");
    const { child, done } = startClipstack(["wait-healthy", name], {
      DOCKER_HOST: docker.endpoint,
    });
    await once(child.stdout, "data");
    child.kill("SIGTERM");
    const { code, stdout, stderr } = await done;
    expect({ code, stderr }).toEqual({ code: 130, stderr: "clipstack: interrupted" });
    expect(stdout).not.toContain("is not");
  });

  test("fails in two lines if Docker does not respond", async () => {
    const { code, stdout } = await wait("--docker", "unix:///nowhere/docker.sock");
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /^Docker does not respond at unix:\/\/\/nowhere\/docker\.sock\n {2}fix: [^\n]*$/,
    );
  });
});
