import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

test.each(["cli/clipstack.mjs", "tools/start.mjs", "tools/with-install.mjs"])(
  "%s exits with one line if Node is too old",
  async (entry) => {
    const file = new URL(`../${entry}`, import.meta.url).href;
    const old = `Object.defineProperty(process.versions, "node", { value: "18.20.4" })`;
    const outcome = await new Promise((resolve) => {
      const args = ["--eval", `${old}; import(${JSON.stringify(file)})`];
      const cwd = fileURLToPath(new URL("../", import.meta.url));
      execFile(process.execPath, args, { cwd }, (error, stdout, stderr) =>
        resolve({ code: error?.code, stdout, stderr }),
      );
    });
    expect(outcome).toEqual({
      code: 2,
      stdout: "",
      stderr: "clipstack: node must be 20.19 or newer, got 18.20.4\n",
    });
  },
);
