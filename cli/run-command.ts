import { exitCodeOf } from "./exit-code.ts";
import { clipstackProgram } from "./program.ts";

export { isUserError } from "./exit-code.ts";

/** Runs a `clipstack` command in this process, as {@link exitCodeOf} does. */
export function runCommand(args: readonly string[]): Promise<number> {
  const [first = "", second = ""] = args;
  return exitCodeOf(args, async (own) => {
    const program = await clipstackProgram([first === "help" ? second : first]);
    await program.parseAsync(own, { from: "user" });
  });
}
