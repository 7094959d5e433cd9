import type { Command } from "commander";
import { runBench } from "../../bench/run/bench-run.ts";
import {
  addBenchOptions,
  addGridOptions,
  type BenchArguments,
  type GridArguments,
  loadsOf,
  textEndpoints,
} from "./bench-options.ts";
import { runAndReport } from "./run-bench.ts";

/** `clipstack bench`: measures throughput, latency and cost of each endpoint. */
export function registerBench(program: Command): void {
  const command = program
    .command("bench")
    .argument("[environment...]", "environments to measure sequentially (default: single-gpu)");
  addBenchOptions(addGridOptions(command))
    .addHelpText(
      "after",
      `
Each endpoint is measured at each batch size and each concurrency (or rate). First, its embeddings are compared with those
of the local model (--weights); an endpoint that differs is not timed and the run fails. Each load point warms up until its
throughput is steady and is then measured in windows of --window seconds until the last three agree within --stability, or
--max-trials or --duration is reached. Latency is measured from the time at which a request was due.

--backend accepts groups of endpoints (embed: the embed API; triton and triton_grpc: all Tritons over HTTP or gRPC; onnx and
tensorrt: both protocols of one Triton), of which the existing endpoints are measured, and endpoint names, which must exist. The
suffixes _uint8, _jpeg and _json send 8-bit pixels, image files, or float32 tensors as JSON text instead of binary float32 tensors.

--target deployed measures a deployment without changing it; if the embed server requires an API key, set
INFERENCE_API_KEY. Ctrl-C ends the run and saves the measurements so far.

Examples:
  $ npx clipstack bench single-gpu
  $ npx clipstack bench single-gpu --weights tiny --duration 5
  $ npx clipstack bench search --model dinov2-small
  $ npx clipstack bench search --modality text --texts queries.txt
  $ npx clipstack bench single-gpu --target deployed --concurrency 1,4,8,16,32,64,128 --batch-sizes 1,4,8,16,32 \\
      --window 5 --duration 60 --output results.json
  $ npx clipstack bench single-gpu --backend onnx-grpc,onnx-http_jpeg --rate 50,100 --arrivals poisson --seed 7
  $ npx clipstack bench single-gpu --target deployed --backend embed,onnx,tensorrt,pytorch
  $ npx clipstack bench --url onnx-http=http://10.0.0.5:40010 --url onnx-grpc=10.0.0.5:40011 \\
      --metrics-url onnx=http://10.0.0.5:40012 --price 2.00

pytorch is the baseline of 'baseline: pytorch'. In the simulation it needs PyTorch: CLIPSTACK_PYTHON_TORCH, or the environment of
'clipstack model export'; otherwise it is not measured.

Exit codes: 0 success, 1 an endpoint differs, requests failed, or a figure exceeds the peak of the GPU, 2 wrong usage or
settings, 130 interrupted.`,
    )
    .action(bench);
}

async function bench(
  environments: readonly string[],
  args: BenchArguments & GridArguments,
): Promise<void> {
  const loads = loadsOf(args, args.seed);
  const { backend, batchSizes } = args;
  const loadPointCount =
    Math.max(1, environments.length) * backend.length * batchSizes.length * loads.length;
  await runAndReport({ environments, args, endpoints: backend, loadPointCount }, (prepared) => {
    const { modality } = prepared.context.tower;
    const endpoints = modality === "text" ? textEndpoints(backend) : backend;
    return runBench({ ...prepared, endpoints, batchSizes, loads });
  });
}
