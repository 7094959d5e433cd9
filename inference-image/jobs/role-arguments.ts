import { parseArgs } from "node:util";

/** Wrong usage of a role of this program: one line, exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/**
 * Read `--name value` or `--name=value`, each at most once.
 *
 * @param role - For messages.
 * @throws {UsageError} one line that names the option, the rule and the value.
 */
export function readArguments<Required extends string, Optional extends string = never>(
  role: string,
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
  const refuse = (problem: string) =>
    new UsageError(`${role}: ${problem}; usage: ${role} ${usage}`);
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
    // an address that lacks its --url may have a secret: it is not repeated
    const lacksName = code === "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL";
    throw refuse(lacksName ? "every value needs its option" : (message.split(/[\n.]/, 1)[0] ?? ""));
  }
  for (const name of names) {
    const given = values[name] ?? [];
    if (given.length > 1) throw refuse(`--${name} must be given once, got ${given.length}`);
    if (given[0] === "") throw refuse(`--${name} must not be empty`);
  }
  const missing = required.find((name) => values[name] === undefined);
  if (missing !== undefined) throw refuse(`--${missing} must be given`);
  return Object.fromEntries(
    Object.entries(values).map(([name, given]) => [name, given?.[0]]),
  ) as Readonly<Record<Required, string> & Partial<Record<Optional, string>>>;
}

/**
 * Run a role that does one thing and ends: one line on stdout of what was done (exit code 0), or one on stderr of what went
 * wrong (1), or of what was asked wrongly (2).
 */
export async function runOnce(work: () => Promise<string>): Promise<void> {
  try {
    process.stdout.write(`${oneLine(await work())}\n`);
  } catch (error) {
    process.stderr.write(`${oneLine(error instanceof Error ? error.message : String(error))}\n`);
    process.exitCode = error instanceof UsageError ? 2 : 1;
  }
}

function oneLine(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, " ").trim();
}
