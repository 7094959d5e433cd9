import { parseArgs } from "node:util";
import { SettingsError } from "./settings.ts";
import { synthesize } from "./synthesize.ts";

/** `cdktf synth` and `npm run synth` run this: write every environment to `cdktf.out`. */

try {
  const { values } = parseArgs({ options: { settings: { type: "string" } } });
  const lines = synthesize({
    settings: values.settings ?? process.env.CLIPSTACK_SETTINGS_DIR ?? "stacks",
    outdir: process.env.CDKTF_OUTDIR ?? "cdktf.out",
  });
  console.log(lines.join("\n"));
} catch (error) {
  const usage = error instanceof TypeError && "code" in error;
  const lines = error instanceof SettingsError ? error.lines : [(error as Error).message];
  console.error(lines.join("\n"));
  process.exitCode = error instanceof SettingsError || usage ? 2 : 1;
}
