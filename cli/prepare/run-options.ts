import type { Command } from "commander";
import { numberUpTo, portOffset } from "../shared/option-values.ts";

/** Options of `verify` and `start`. */
export interface RunArguments {
  readonly portOffset: number;
  readonly weights: string;
  readonly json?: true;
  readonly output?: string;
  readonly report?: string;
  readonly seconds: number;
}

/** Adds the options of {@link RunArguments}. */
export function addRunOptions(command: Command): Command {
  return command
    .option("--port-offset <number>", "added to every local port", portOffset, 0)
    .option(
      "--weights <weights>",
      "generated (the environment's own file, or that of model_repository), tiny, or an ONNX file",
      "generated",
    )
    .option(
      "--seconds <number>",
      "length of the load on each endpoint, in seconds",
      numberUpTo(3_600),
      3,
    )
    .option("--report <folder>", "folder for the record and the reports (default: bench/reports)")
    .option("--json", "print only the record, as JSON")
    .option("--output <file>", "also write the record to a file");
}
