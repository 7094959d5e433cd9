import { Command, CommanderError } from "commander";
import { isUserError } from "../../cli/run-command.ts";
import { messageOf } from "../../contract/user-error.ts";

/**
 * Runs an experiment with the options of this process. Errors are printed as one line.
 *
 * @param register - Declares the options and the action of its command.
 */
export async function runExperiment(
  name: string,
  register: (command: Command) => void,
): Promise<void> {
  const command = new Command(`npm run lab -- ${name}`).exitOverride();
  register(command);
  try {
    await command.parseAsync(process.argv.slice(2), { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
    else {
      console.error(messageOf(error));
      process.exitCode = isUserError(error) ? 2 : 1;
    }
  }
}
