import { parseArgs } from "node:util";

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

const help = `${usage}

Synthesizes every environment to cdktf.out, for cdktf to deploy.

  --settings FOLDER   where <environment>.settings.yaml are (also CLIPSTACK_SETTINGS_DIR); default: stacks

Examples:
  $ npm run synth
  $ npx tsx stacks/main.ts --settings ../my-settings

Exit codes: 0 all good, 2 wrong usage or settings.`;

/**
 * Synthesize every environment. What a person did wrong is said in plain lines, never with a stack trace.
 *
 * @returns The exit code: 0 all good, 1 a mistake of ours, 2 wrong usage or settings.
 */
export async function synthCommand({
  args,
  env,
  defaultSettings,
  output,
}: SynthCommandOptions): Promise<number> {
  let folder: string | undefined;
  try {
    const options = {
      settings: { type: "string" },
      help: { type: "boolean", short: "h" },
    } as const;
    const { values } = parseArgs({ args: [...args], options });
    if (values.help) {
      output.log(help);
      return 0;
    }
    folder = values.settings;
  } catch (error) {
    output.error(`${(error as Error).message}\n${usage}`);
    return 2;
  }
  // after the options: help and usage errors need no settings
  const { SettingsError } = await import("./settings.ts");
  const { synthesize } = await import("./synthesize.ts");
  try {
    const lines = await synthesize({
      settings: folder ?? env.CLIPSTACK_SETTINGS_DIR ?? defaultSettings,
      outdir: env.CDKTF_OUTDIR ?? "cdktf.out",
      warn: output.error,
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
