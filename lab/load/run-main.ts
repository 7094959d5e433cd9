import { type ParseArgsConfig, parseArgs } from "node:util";
import { UserError } from "../../contract/user-error.ts";

type Options = NonNullable<ParseArgsConfig["options"]>;
type Values<O extends Options> = ReturnType<typeof parseArgs<{ options: O }>>["values"];

/**
 * Runs a program and sets its exit code: 0 success or `--help`, 1 if `work` returns false, 2 usage error, 130 interrupted.
 *
 * @param work - The first SIGINT or SIGTERM aborts its signal; it ends a program whose `work` takes none.
 */
export async function runMain<const O extends Options>(
  help: string,
  options: O,
  work: (values: Values<O>, signal: AbortSignal) => Promise<boolean>,
): Promise<void> {
  const interrupt = new AbortController();
  try {
    const { values } = parseArgs({ options: { ...options, help: { type: "boolean" } } as Options });
    if (values.help === true) {
      console.log(help);
      return;
    }
    if (work.length > 1) {
      process.once("SIGINT", () => interrupt.abort());
      process.once("SIGTERM", () => interrupt.abort());
    }
    process.exitCode = (await work(values as Values<O>, interrupt.signal)) ? 0 : 1;
  } catch (error) {
    if (interrupt.signal.aborted) process.exitCode = 130;
    else if (error instanceof UserError || isUsageError(error)) {
      console.error(error.message);
      process.exitCode = 2;
    } else throw error;
  }
}

export function numberOption(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new UserError(`${name} must be a positive integer, got '${text}'`);
  }
  return value;
}

/** Returns whether an error was thrown by `parseArgs`. */
function isUsageError(error: unknown): error is Error {
  return (
    error instanceof TypeError && "code" in error && /^ERR_PARSE_ARGS/.test(String(error.code))
  );
}
