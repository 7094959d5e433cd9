import type { Command } from "commander";
import { databaseOption, integerOf, untilInterrupt, withDatabase } from "./command-options.ts";
import { DedupeError } from "./dedupe-error.ts";
import { openProgress } from "./progress.ts";
import { type ScanResult, type Skipped, scan } from "./scan.ts";
import { shownJson, shownName } from "./shown-name.ts";

interface ScanArguments {
  readonly db: string;
  readonly concurrency?: number;
  readonly json: boolean;
}

/** `clipstack-dedupe scan <folder>` */
export function registerScan(program: Command): void {
  program
    .command("scan")
    .description("read the photos of a folder: JPEG, PNG, WebP, and HEIC where it can be decoded")
    .argument("<folder>", "it and all folders in it; links are not followed")
    .addOption(databaseOption())
    .option(
      "--concurrency <n>",
      "photos read at once; default: one for each core",
      integerOf(1, 256),
    )
    .option("--json", "print the result as JSON", false)
    .addHelpText(
      "after",
      `
A photo is read again only when its size or time has changed, so a scan can be stopped and repeated. Several folders can be
scanned into one file.

Examples:
  $ npx clipstack-dedupe scan ~/Pictures
  $ npx clipstack-dedupe scan /media/backup --db backup.db`,
    )
    .action(async (folder: string, { db, concurrency, json }: ScanArguments) => {
      const progress = openProgress();
      const onSkipped = ({ path, problem }: Skipped) => progress.note(`${path}: ${problem}`);
      const result = await untilInterrupt((signal) =>
        withDatabase(
          db,
          (database) => scan(database, { folder, concurrency, progress, onSkipped, signal }),
          { missing: "create" },
        ),
      );
      if (json) console.log(shownJson(result));
      else for (const line of scanText(result)) console.log(line);
      if (result.stopped) {
        throw new DedupeError("failed", "stopped: run the same command again to go on");
      }
    });
}

/** What a scan found, for people. */
export function scanText(result: ScanResult): readonly string[] {
  const { read, unchanged, gone, unreadable, closedFolders, links, heic, heicExample } = result;
  const lines = [
    `${read} photos read, ${unchanged} unchanged, ${gone} gone, ${unreadable} cannot be read`,
  ];
  if (closedFolders > 0) lines.push(`${closedFolders} folders cannot be listed`);
  if (links > 0) lines.push(`${links} links left out: what they point to is not a second photo`);
  if (heic > 0) {
    lines.push(
      `${heic} HEIC files left out, as '${shownName(heicExample ?? "")}': this build of libvips has no HEIC decoder (a copy as JPEG is read)`,
    );
  }
  return lines;
}
