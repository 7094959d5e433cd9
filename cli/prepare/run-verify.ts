import { relative } from "node:path";
import { Interrupted } from "../../artefact/interrupt.ts";
import { renderText } from "../../report/render/render-text.ts";
import { recordText } from "../../report/save-reports.ts";
import { startProgress } from "../../verify/progress.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import { writeOutput } from "../shared/write-output.ts";
import { type VerifyArguments, verifyEnvironments } from "./verify-environments.ts";

/** Verifies environments, prints progress and result, and sets the exit code. */
export async function runVerify(
  environments: readonly string[],
  args: VerifyArguments,
): Promise<void> {
  const progress = startProgress(process.stderr);
  try {
    const { onEvent, print } = progress;
    const { record, saved } = await verifyEnvironments(environments, args, onEvent, print);
    progress.end();
    if (args.output !== undefined) writeOutput(args.output, recordText(record));
    if (args.json) process.stdout.write(recordText(record));
    else console.log(`\n${renderText(verifyReport(record))}report: ${relative("", saved.html)}`);
    process.exitCode = record.passed ? 0 : 1;
  } catch (error) {
    progress.end();
    if (!(error instanceof Interrupted)) throw error;
    console.error("clipstack: interrupted; all processes are stopped");
    process.exitCode = error.exitCode;
  }
}
