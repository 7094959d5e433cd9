import { parseArgs } from "node:util";
import { copyModelRepository } from "../model-tools/files/folders.ts";
import type { WrittenStacks } from "./write-stacks.ts";

/** Destination of the command's output. */
export interface Output {
  readonly log: (text: string) => void;
  readonly error: (text: string) => void;
}

export interface SynthCommandOptions {
  /** Arguments after the program's name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Folder of the environments if neither an argument nor an environment variable names one. */
  readonly defaultFolder: string;
  readonly output: Output;
}

const usage = "usage: tsx stacks/main.ts [--environments FOLDER] [--skip-invalid]";

const help = `${usage}

Synthesizes every environment to cdktf.out, from where cdktf deploys it.

  --environments FOLDER   folder of <environment>.yaml (also CLIPSTACK_ENVIRONMENTS_DIR); default: environments
  --skip-invalid          exit with 0 if at least one environment is valid, so that cdktf can deploy it

Examples:
  $ npm run synth
  $ npx tsx stacks/main.ts --environments ../my-environments

Exit codes: 0 success, 2 wrong usage, or an environment with errors; the others are written.`;

/**
 * Synthesizes all valid environments and prints the errors of the others, without a stack trace.
 *
 * @returns Exit code: 0 success, 1 internal error, 2 wrong usage or settings.
 */
export async function synthCommand(options: SynthCommandOptions): Promise<number> {
  const { env, output } = options;
  let values: ReturnType<typeof parseArguments>;
  try {
    values = parseArguments(options.args);
  } catch (error) {
    output.error(`${(error as Error).message}\n${usage}`);
    return 2;
  }
  if (values.help) {
    output.log(help);
    return 0;
  }
  // imported late, because --help and usage errors need no settings
  const { SettingsError } = await import("./settings/settings-error.ts");
  const { synthesize } = await import("./synthesize.ts");
  try {
    copyModelRepository();
    const result = await synthesize({
      environments: values.environments ?? env.CLIPSTACK_ENVIRONMENTS_DIR ?? options.defaultFolder,
      outdir: env.CDKTF_OUTDIR ?? "cdktf.out",
      warn: output.error,
    });
    return report(result, values["skip-invalid"], output);
  } catch (error) {
    if (error instanceof SettingsError) {
      output.error(error.message);
      return 2;
    }
    const detail = env.CLIPSTACK_DEBUG === undefined ? "message" : "stack";
    output.error(`synth failed: ${error instanceof Error ? error[detail] : String(error)}`);
    return 1;
  }
}

function parseArguments(args: readonly string[]) {
  return parseArgs({
    args: [...args],
    options: {
      environments: { type: "string" },
      "skip-invalid": { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  }).values;
}

function report(
  { summaries, notes, rejected }: WrittenStacks,
  skipInvalid: boolean,
  output: Output,
): number {
  const lines = [...summaries, ...notes.map((note) => `note: ${note}`)];
  if (lines.length > 0) output.log(lines.join("\n"));
  if (rejected.length === 0) return 0;
  const names = rejected.map(({ name }) => name).join(", ");
  output.error(rejected.flatMap(({ lines }) => lines).join("\n"));
  output.error(`not synthesized because of these errors: ${names}`);
  return skipInvalid && summaries.length > 0 ? 0 : 2;
}
