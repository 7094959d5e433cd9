import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { endWithParent, startChild } from "./child-process.ts";

const tsx = import.meta.resolve("tsx");

/** Program that runs `code`, prints `ready` and keeps running. */
function script(code: string): readonly string[] {
  const program = `${code}; setInterval(() => {}, 1000); console.log("ready");`;
  return [process.execPath, "--import", tsx, "--import", endWithParent, "-e", program];
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await sleep(10);
}

const isReady = (child: { lastLines(count: number): readonly string[] }) => () =>
  child.lastLines(10).includes("ready");

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

test("a child has the given environment, not this process's own", async () => {
  process.env.CLIPSTACK_TEST_SECRET = "secret";
  const child = startChild({
    command: [process.execPath, "-e"],
    args: ["console.log(process.env.GIVEN, process.env.CLIPSTACK_TEST_SECRET)"],
    env: { GIVEN: "given" },
  });
  await child.exited;
  delete process.env.CLIPSTACK_TEST_SECRET;
  expect(child.lastLines(1)).toEqual(["given undefined"]);
});

test("a child that ends by itself has an exit code and output", async () => {
  const child = startChild({
    command: [process.execPath, "-e"],
    args: ['console.log("one"); console.error("two"); process.exitCode = 3'],
    env: {},
  });
  expect(await child.exited).toMatchObject({ code: 3, signal: null });
  expect([...child.lastLines(5)].sort()).toEqual(["one", "two"]);
});

test("a missing program ends at once with an error message", async () => {
  const child = startChild({ command: ["/no/such/program"], args: [], env: {} });
  expect(await child.exited).toMatchObject({ code: null, signal: null });
  expect(child.lastLines(1)).toEqual(["spawn /no/such/program ENOENT"]);
});

test("stop sends SIGTERM, and the child may exit with its own code", async () => {
  const child = startChild({
    command: script('process.on("SIGTERM", () => process.exit(7))'),
    args: [],
    env: {},
  });
  await until(isReady(child));
  expect(await child.stop(10)).toMatchObject({ code: 7, signal: null });
});

test("a child that does not stop within the grace period is killed", async () => {
  const child = startChild({
    command: script('process.on("SIGTERM", () => {})'),
    args: [],
    env: {},
  });
  await until(isReady(child));
  expect(await child.stop(0.2)).toMatchObject({ code: null, signal: "SIGKILL" });
});

/** Process that starts a child, prints its id and runs `ending`. */
async function orphan(
  ending: string,
): Promise<{ readonly parent: number; readonly child: number }> {
  const module = new URL("child-process.ts", import.meta.url).href;
  const program = `
    const { startChild } = await import(${JSON.stringify(module)});
    const child = startChild({ command: ${JSON.stringify(script(""))}, args: [], env: {} });
    while (!child.lastLines(10).includes("ready")) await new Promise((r) => setTimeout(r, 10));
    console.log(child.pid);
    ${ending}
  `;
  const parent = spawn(process.execPath, ["--import", tsx, "--input-type=module", "-e", program], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [line] = (await once(parent.stdout, "data")) as [Buffer];
  return { parent: parent.pid ?? 0, child: Number(line.toString().trim()) };
}

test("a child ends when its parent is killed", async () => {
  const { parent, child } = await orphan("setInterval(() => {}, 1000)");
  expect(isAlive(child)).toBe(true);
  process.kill(parent, "SIGKILL");
  await until(() => !isAlive(child));
});

test("a child ends when its parent throws", async () => {
  const { child } = await orphan('setTimeout(() => { throw new Error("planted") }, 50)');
  await until(() => !isAlive(child));
});

test("a child ends when its parent exits", async () => {
  const { child } = await orphan("setTimeout(() => process.exit(0), 50)");
  await until(() => !isAlive(child));
});
