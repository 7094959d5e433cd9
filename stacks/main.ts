import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { SettingsError } from "./settings.ts";
import { synthesize } from "./synthesize.ts";

/** `cdktf synth` and `npm run synth` run this: write every environment to `cdktf.out`. */

const usage = "usage: tsx stacks/main.ts [--settings FOLDER]";

/** Exit codes: 1 a mistake of ours, 2 wrong usage or settings. */
function main(): number {
  let folder: string | undefined;
  try {
    folder = parseArgs({ options: { settings: { type: "string" } } }).values.settings;
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    return 2;
  }
  const ours = relative(process.cwd(), fileURLToPath(new URL(".", import.meta.url)));
  try {
    const lines = synthesize({
      settings: folder ?? process.env.CLIPSTACK_SETTINGS_DIR ?? (ours || "."),
      outdir: process.env.CDKTF_OUTDIR ?? "cdktf.out",
    });
    console.log(lines.join("\n"));
    return 0;
  } catch (error) {
    if (error instanceof SettingsError) {
      console.error(error.lines.join("\n"));
      return 2;
    }
    console.error(`synth failed: ${error instanceof Error ? error.message : String(error)}`);
    if (process.env.CLIPSTACK_DEBUG !== undefined) console.error(error);
    return 1;
  }
}

process.exitCode = main();
