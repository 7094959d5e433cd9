import { mkdirSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import type { Command } from "commander";
import type { Interrupt } from "../../artefact/interrupt.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import { renderText } from "../../report/render/render-text.ts";
import { recordText, reportName } from "../../report/save-reports.ts";
import type { DrillRecord } from "../../verify/drills/drill-record.ts";
import { drillReport } from "../../verify/drills/drill-report.ts";
import { interruptible } from "../shared/interruptible.ts";
import { withFileErrors, writeOutput } from "../shared/write-output.ts";

/** Options for the record of a drill. */
export interface DrillOutput {
  readonly report: string;
  readonly json?: true;
  readonly output?: string;
}

/** Adds the options of {@link DrillOutput}. */
export function addDrillOutput(command: Command): Command {
  return command
    .option("--report <folder>", "folder for the record", join("bench", "reports"))
    .option("--json", "print only the record, as JSON")
    .option("--output <file>", "also write the record to a file");
}

/** Runs a drill, writes its record, and sets the exit code: 1 if a check failed, 130 after an interruption. */
export async function outputDrill(
  args: DrillOutput,
  drill: (interrupt: Interrupt) => Promise<DrillRecord>,
): Promise<void> {
  await interruptible("the drill was stopped", async (interrupt) => {
    const record = await drill(interrupt);
    const saved = saveDrillRecord(record, resolve(projectFolder, args.report));
    if (args.output !== undefined) writeOutput(args.output, recordText(record));
    if (args.json) process.stdout.write(recordText(record));
    else console.log(`\n${renderText(drillReport(record))}record: ${relative("", saved)}`);
    process.exitCode = record.passed ? 0 : 1;
  });
}

function saveDrillRecord(record: DrillRecord, folder: string): string {
  const file = join(folder, `${reportName(record.startedAt, `drill-${record.drill}`)}.json`);
  withFileErrors(`--report ${folder}`, "created", () => mkdirSync(folder, { recursive: true }));
  writeOutput(file, recordText(record), "--report");
  return file;
}
