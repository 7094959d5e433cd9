import "../contract/require-node.mjs";
import { join, relative } from "node:path";
import { projectFolder } from "../model-tools/files/folders.ts";

/** Entry point of `cdktf synth` and `npm run synth`: writes every environment to `cdktf.out`. */

// otherwise Node parses the source map of every file of cdktf and of the provider bindings
if (process.env.CLIPSTACK_DEBUG === undefined) process.setSourceMapsEnabled(false);
const { synthCommand } = await import("./synth-command.ts");

process.exitCode = await synthCommand({
  args: process.argv.slice(2),
  env: process.env,
  defaultFolder: join(relative("", projectFolder), "environments"),
  output: console,
});
