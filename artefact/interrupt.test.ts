import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const script = `
  import { onInterrupt } from ${JSON.stringify(new URL("interrupt.ts", import.meta.url).href)};
  const { signal, hold } = onInterrupt();
  if (process.argv[1] === "holds") hold("restoring things");
  signal.addEventListener("abort", () => console.log("stopping"));
  setInterval(() => {}, 1_000);
  console.log("ready");
`;

/** Sends SIGINT after each line that a program prints, until it ends. */
async function interrupt(...args: readonly string[]) {
  const child = spawn(
    process.execPath,
    ["--import", import.meta.resolve("tsx"), "--input-type=module", "-e", script, "--", ...args],
    { stdio: ["ignore", "pipe", "pipe"], cwd: fileURLToPath(new URL(".", import.meta.url)) },
  );
  const printed: string[] = [];
  for (const output of [child.stdout, child.stderr]) {
    output.setEncoding("utf8").on("data", (text: string) => {
      printed.push(text.trim());
      child.kill("SIGINT");
    });
  }
  const [code] = await once(child, "close");
  return { code, printed };
}

test("the second signal exits at once", async () => {
  expect(await interrupt()).toEqual({ code: 130, printed: ["ready", "stopping"] });
});

test("held work continues after the second signal, and not after the third", async () => {
  expect(await interrupt("holds")).toEqual({
    code: 130,
    printed: [
      "ready",
      "stopping",
      "clipstack: restoring things: not finished; press Ctrl-C again to skip it",
    ],
  });
});
