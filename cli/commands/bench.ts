import type { Command } from "commander";
import { runBench } from "../../bench/run/bench-run.ts";
import {
  addBenchOptions,
  addGridOptions,
  type BenchArguments,
  type GridArguments,
  loadsOf,
} from "./bench-options.ts";
import { runAndReport } from "./run-bench.ts";

/** `clipstack bench`: how fast is each endpoint, where does the time go, what does it cost? */
export function registerBench(program: Command): void {
  const command = program
    .command("bench")
    .argument(
      "[environment...]",
      "environments to measure, one after the other (default: single-gpu)",
    );
  addBenchOptions(addGridOptions(command))
    .addHelpText(
      "after",
      `
Each endpoint is measured with each batch size and each concurrency (or rate). Before anything is timed, its answers are
compared with the embeddings of the model here (--model); an endpoint that differs is not timed, and the run fails. A load
warms up until its throughput is steady, then is measured in windows of --window seconds until the last three agree within
--stability, or --max-trials were tried, or --duration is over, whichever comes first. Latency is counted
from when a request was due.

--backend accepts names of groups of endpoints (embed: the embed API; triton and triton_grpc: the Tritons over HTTP and gRPC; onnx
and tensorrt: both protocols of one Triton), of which it measures what there is, and names, which must be there. _u8, _jpeg
and _json say what a request carries in place of float32 tensors: pixels, image files, or the tensors as JSON text.

--target deployed measures what a deploy made, and changes nothing there; where an embed server asks for a key,
INFERENCE_API_KEY must have it. Ctrl-C ends the run, and what was measured until then is saved.

Examples:
  $ npx clipstack bench single-gpu
  $ npx clipstack bench single-gpu --model tiny --duration 5
  $ npx clipstack bench single-gpu --target deployed --concurrency 1,4,8,16,32,64,128 --batch-sizes 1,4,8,16,32 \\
      --window 5 --duration 60 --output results.json
  $ npx clipstack bench single-gpu --backend onnx-grpc,onnx-http_jpeg --rate 50,100 --arrivals poisson --seed 7
  $ npx clipstack bench --url onnx-http=http://10.0.0.5:40010 --url onnx-grpc=10.0.0.5:40011 \\
      --metrics-url onnx=http://10.0.0.5:40012 --price 2.00

Exit codes: 0 all good, 1 an endpoint differs, requests failed, or a figure is above what the GPU can compute, 2 wrong usage or
settings, 130 interrupted.`,
    )
    .action(bench);
}

async function bench(
  environments: readonly string[],
  args: BenchArguments & GridArguments,
): Promise<void> {
  const loads = loadsOf(args, args.seed);
  const { backend: endpoints, batchSizes } = args;
  const loadPointCount =
    Math.max(1, environments.length) * endpoints.length * batchSizes.length * loads.length;
  await runAndReport({ environments, args, endpoints, loadPointCount }, (prepared) =>
    runBench({ ...prepared, endpoints, batchSizes, loads }),
  );
}
