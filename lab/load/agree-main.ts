/** `npm run lab -- generator` and `npm run lab -- generator --null`: compares the load generator with perf_analyzer and hey. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { startChild } from "../../artefact/child-process.ts";
import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount } from "../../contract/tensor.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type AgreeOptions,
  agreeTable,
  compareWithBaselines,
  disagreement,
  medianRatio,
} from "./agree.ts";
import { heyVariable, pinned } from "./baseline-generators.ts";
import { startNullHttpServer } from "./null-server.ts";
import { numberOption, runMain } from "./run-main.ts";

const tritonVariable = "CLIPSTACK_REAL_TRITON";

const help = `Usage: npm run lab -- generator [options]
       npm run lab -- generator --null [options]

Compares clipstack's load generator with NVIDIA's perf_analyzer and hey: same server and load, in alternating rounds.
The servers take 30 ms per request, so that the generators do not compete with them for CPU time: a real tritonserver and an HTTP
server without a model. With --null, a server responds immediately and each generator is pinned to one core, so that the generator is
the bottleneck.

Options:
  --null             load a server that responds immediately
  --rounds <n>       rounds; the order alternates (default: 3)
  --seconds <n>      length of each measurement (default: 6)
  --concurrency <n>  clients (default: 2)
  --help

Environment:
  ${heyVariable}          path of hey; .ci/hey prints it
  ${tritonVariable}  folder with bin/tritonserver and bin/perf_analyzer; .ci/real-triton prints it

Exit code 1 if throughput, p50 or p95 differ by more than 5 %; with --null, if clipstack sends less than half as many requests
per second as hey.
`;

const sample = new URL("../../model-tools/samples/mountains.jpg", import.meta.url);
const sleepMs = 30;
/** Maximum deviation of a median ratio from 1. */
const maxDisagreement = 0.05;
/** Minimum request rate relative to hey on a server that responds immediately. */
const minRateRatio = 0.5;

await runMain(
  help,
  {
    null: { type: "boolean", default: false },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "6" },
    concurrency: { type: "string", default: "2" },
  },
  async (values, signal) => {
    const options: AgreeOptions = {
      image: {
        bytes: readFileSync(sample),
        contentType: "image/jpeg",
        tensor: Float32Array.from(
          { length: elementCount(normalisedImage(imageTowerOf(defaultModel)).dims) },
          (_, i) => Math.sin(i),
        ),
      },
      rounds: numberOption("--rounds", values.rounds),
      seconds: numberOption("--seconds", values.seconds),
      concurrency: numberOption("--concurrency", values.concurrency),
      cores: values.null && (await canPin()) ? "0" : undefined,
      signal,
      log: (line) => console.error(line),
    };
    const hey = process.env[heyVariable];
    const triton = values.null ? undefined : process.env[tritonVariable];
    if (hey === undefined && (values.null || triton === undefined)) {
      throw new UserError(
        `${heyVariable}${values.null ? "" : ` or ${tritonVariable}`} must be set`,
      );
    }
    const rows = [
      ...(triton === undefined ? [] : await compareWithPerfAnalyzer(triton, options)),
      ...(hey === undefined ? [] : await compareWithHey(hey, values.null ? 0 : sleepMs, options)),
    ];
    console.log(agreeTable(rows));
    return values.null
      ? rows.every((row) => medianRatio(row, "requestsPerSecond") >= minRateRatio)
      : disagreement(rows) <= maxDisagreement;
  },
);

async function compareWithPerfAnalyzer(home: string, options: AgreeOptions) {
  // the module locates tritonserver on import
  const { startSleepingTriton } = await import("./test-sleeping-triton.ts");
  const { url: http, grpcTarget: grpc, stop } = await startSleepingTriton(sleepMs);
  try {
    const perfAnalyzer = join(home, "bin", "perf_analyzer");
    return await compareWithBaselines({ triton: { http, grpc, perfAnalyzer } }, options);
  } finally {
    await stop();
  }
}

async function compareWithHey(hey: string, delayMs: number, options: AgreeOptions) {
  const server = await startNullHttpServer({ delayMs });
  try {
    return await compareWithBaselines({ embed: { http: server.url, hey } }, options);
  } finally {
    await server.close();
  }
}

/** Returns whether a generator can be pinned to one core while the server uses another. */
async function canPin(): Promise<boolean> {
  if (process.platform !== "linux" || availableParallelism() < 2) return false;
  const command = [...pinned("0"), process.execPath, "--version"];
  return (await startChild({ command, args: [], env: {} }).exited).code === 0;
}
