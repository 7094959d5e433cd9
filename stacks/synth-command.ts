import { parseArgs } from "node:util";
import { SettingsError } from "./settings.ts";
import { synthesize } from "./synthesize.ts";

/** Where the command's lines go. */
export interface Output {
  readonly log: (text: string) => void;
  readonly error: (text: string) => void;
}

export interface SynthCommandOptions {
  /** After the program's name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Folder of the settings when neither an argument nor the environment names one. */
  readonly defaultSettings: string;
  readonly output: Output;
}

const usage = "usage: tsx stacks/main.ts [--settings FOLDER]";

/**
 * Synthesize every environment. What a person did wrong is said in plain lines, never with a stack trace.
 *
 * @returns The exit code: 0 all good, 1 a mistake of ours, 2 wrong usage or settings.
 */
export function synthCommand({ args, env, defaultSettings, output }: SynthCommandOptions): number {
  let folder: string | undefined;
  try {
    const options = { settings: { type: "string" } } as const;
    folder = parseArgs({ args: [...args], options }).values.settings;
  } catch (error) {
    output.error(`${(error as Error).message}\n${usage}`);
    return 2;
  }
  try {
    const lines = synthesize({
      settings: folder ?? env.CLIPSTACK_SETTINGS_DIR ?? defaultSettings,
      outdir: env.CDKTF_OUTDIR ?? "cdktf.out",
    });
    output.log(lines.join("\n"));
    return 0;
  } catch (error) {
    if (error instanceof SettingsError) {
      output.error(error.lines.join("\n"));
      return 2;
    }
    const detail = env.CLIPSTACK_DEBUG === undefined ? "message" : "stack";
    output.error(`synth failed: ${error instanceof Error ? error[detail] : String(error)}`);
    return 1;
  }
}
