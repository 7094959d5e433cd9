// `node with-install.mjs <tool> [args…]`: installs missing packages, then runs a tool of node_modules/.bin.
import { spawn } from "node:child_process";
import "../contract/require-node.mjs";
import "../cli/exit-with-parent.mjs";
import { ensureInstalled, root } from "./install.mjs";

ensureInstalled();
const [tool, ...args] = process.argv.slice(2);
const child = spawn(`${root}node_modules/.bin/${tool}`, args, {
  cwd: root,
  stdio: "inherit",
  shell: process.platform === "win32",
});
// Ctrl-C reaches the child through the terminal; this process waits until the child has ended.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("exit", (code, signal) => process.exit(code ?? (signal === "SIGINT" ? 130 : 1)));
