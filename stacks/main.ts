import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { synthCommand } from "./synth-command.ts";

/** `cdktf synth` and `npm run synth` run this: write every environment to `cdktf.out`. */

const here = relative(process.cwd(), fileURLToPath(new URL(".", import.meta.url)));

process.exitCode = synthCommand({
  args: process.argv.slice(2),
  env: process.env,
  defaultSettings: here === "" ? "." : here,
  output: console,
});
