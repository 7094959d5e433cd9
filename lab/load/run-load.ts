import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { serialize } from "node:v8";
import { endWithParent } from "../../artefact/child-process.ts";
import type { MeasuredLoad, MeasureOptions } from "../../target/load/measured-load.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { type BaselineLoad, pinned } from "./baseline-generators.ts";
import { runCommand } from "./run-process.ts";

/** Input of `load-main.ts`. */
export interface LoadFile {
  readonly requests: PreparedRequests;
  readonly options: Omit<MeasureOptions, "signal" | "readCounters" | "onWindow">;
}

/** Command of a TypeScript program of this folder. */
function tsxCommand(program: string): readonly string[] {
  return [
    process.execPath,
    ...["--import", import.meta.resolve("tsx"), "--import", endWithParent],
    fileURLToPath(new URL(program, import.meta.url)),
  ];
}

/** Closed loop with one worker of normal priority and three windows after the warm-up. */
export function comparisonLoad({
  concurrency,
  seconds,
}: Pick<BaselineLoad, "concurrency" | "seconds">): LoadFile["options"] {
  return {
    load: { kind: "closed loop", concurrency },
    windowSeconds: seconds / 3,
    windows: 3,
    warmupSeconds: seconds / 3,
    // upper bound, for a server that does not respond
    durationSeconds: 4 * seconds + 10,
    workers: 1,
    priority: "usual",
  };
}

/** Runs clipstack's load generator as a separate program, so that it can be pinned to cores. */
export async function runClipstackLoad(
  requests: PreparedRequests,
  load: BaselineLoad,
): Promise<MeasuredLoad> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-load-"));
  try {
    const file = join(folder, "load");
    const job: LoadFile = { requests, options: comparisonLoad(load) };
    writeFileSync(file, serialize(job));
    return await runCommand<MeasuredLoad>(
      {
        command: [...pinned(load.cores), ...tsxCommand("load-main.ts")],
        args: [file],
        env: {},
      },
      "the load generator",
      load.signal,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}
