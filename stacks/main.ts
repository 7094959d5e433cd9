import { relative } from "node:path";
import { fileURLToPath } from "node:url";

/** `cdktf synth` and `npm run synth` run this: write every environment to `cdktf.out`. */

const here = relative(process.cwd(), fileURLToPath(new URL(".", import.meta.url)));

// Node parses the source map of every file of cdktf and of the provider bindings otherwise
if (process.env.CLIPSTACK_DEBUG === undefined) process.setSourceMapsEnabled(false);
const { synthCommand } = await import("./synth-command.ts");

process.exitCode = await synthCommand({
  args: process.argv.slice(2),
  env: process.env,
  defaultSettings: here === "" ? "." : here,
  output: console,
});
