import { parseArgs } from "node:util";
import { messageOf } from "../../contract/user-error.ts";

/** Wrong usage of a job: one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/**
 * Reads `--name value` or `--name=value`, each at most once.
 *
 * @param job - Name of the job, for messages.
 */
export function readArguments<Required extends string, Optional extends string = never>(
  job: string,
  args: readonly string[],
  {
    required,
    optional = [],
  }: { readonly required: readonly Required[]; readonly optional?: readonly Optional[] },
): Readonly<Record<Required, string> & Partial<Record<Optional, string>>> {
  const names: readonly string[] = [...required, ...optional];
  const usage = [
    ...required.map((name) => `--${name} …`),
    ...optional.map((name) => `[--${name} …]`),
  ].join(" ");
  const usageError = (problem: string) =>
    new UsageError(`${job}: ${problem}; usage: ${job} ${usage}`);
  let values: Readonly<Record<string, readonly string[] | undefined>>;
  try {
    values = parseArgs({
      args: [...args],
      options: Object.fromEntries(
        names.map((name) => [name, { type: "string", multiple: true } as const]),
      ),
    }).values as typeof values;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    // a URL without --url may contain a secret, so the message omits it
    const isPositional = code === "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL";
    throw usageError(
      isPositional ? "every value requires its option" : (message.split(/[\n.]/, 1)[0] ?? ""),
    );
  }
  for (const name of names) {
    const all = values[name] ?? [];
    if (all.length > 1) throw usageError(`--${name} must be given once, got ${all.length}`);
    if (all[0] === "") throw usageError(`--${name} must not be empty`);
  }
  const missing = required.find((name) => values[name] === undefined);
  if (missing !== undefined) throw usageError(`--${missing} must be given`);
  return Object.fromEntries(
    Object.entries(values).map(([name, all]) => [name, all?.[0]]),
  ) as Readonly<Record<Required, string> & Partial<Record<Optional, string>>>;
}

/**
 * Runs a job. Prints its result in one line on stdout (exit code 0), or one line on stderr for an error (1) or wrong usage (2).
 */
export async function runOnce(work: () => Promise<string>): Promise<void> {
  try {
    process.stdout.write(`${oneLine(await work())}\n`);
  } catch (error) {
    process.stderr.write(`${oneLine(messageOf(error))}\n`);
    process.exitCode = error instanceof UsageError ? 2 : 1;
  }
}

function oneLine(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, " ").trim();
}
