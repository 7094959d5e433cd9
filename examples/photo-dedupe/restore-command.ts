import { resolve } from "node:path";
import type { Command } from "commander";
import { databaseOption, untilInterrupt, withDatabase } from "./command-options.ts";
import { DedupeError } from "./dedupe-error.ts";
import { restore } from "./move-rejected.ts";
import { movedPhotosOf } from "./moved-photos.ts";
import { shownName } from "./shown-name.ts";

interface RestoreArguments {
  readonly db: string;
  readonly list: boolean;
}

/** `clipstack-dedupe restore [photo...]` */
export function registerRestore(program: Command): void {
  program
    .command("restore")
    .description("put photos back that the review page moved away: all of them, or those named")
    .argument("[photo...]", "where it was, or where it lies now")
    .addOption(databaseOption())
    .option("--list", "only print where they were and where they lie", false)
    .addHelpText(
      "after",
      `
A file that is there again under the name of a photo is left alone: the photo stays where it lies, and is listed.

Examples:
  $ npx clipstack-dedupe restore --list
  $ npx clipstack-dedupe restore ~/Pictures/2024/IMG_0001.jpg`,
    )
    .action((photos: readonly string[], { db, list }: RestoreArguments) =>
      untilInterrupt((signal) =>
        withDatabase(db, async (database) => {
          const named = new Set(photos.map((photo) => resolve(photo)));
          const which = ({
            path,
            moved_to,
          }: {
            readonly path: string;
            readonly moved_to: string;
          }) => named.size === 0 || named.has(path) || named.has(moved_to);
          const moves = movedPhotosOf(database);
          for (const name of named) {
            if (moves.some(({ path, moved_to }) => path === name || moved_to === name)) continue;
            throw new DedupeError("usage", `'${name}' was not moved: see --list`);
          }
          if (list) {
            for (const { path, moved_to } of moves.filter(which)) {
              console.log(`${shownName(path)}: lies at ${shownName(moved_to)}`);
            }
            return;
          }
          const { moved, problems } = await restore(database, { which, signal });
          for (const { path, problem } of problems) {
            console.error(`${shownName(path)}: ${shownName(problem)}`);
          }
          console.log(`${moved} photos put back, ${problems.length} stay where they lie`);
          if (signal.aborted) throw new DedupeError("failed", "stopped: run it again to go on");
          if (problems.length > 0) {
            throw new DedupeError("failed", `${problems.length} photos could not be put back`);
          }
        }),
      ),
    );
}
