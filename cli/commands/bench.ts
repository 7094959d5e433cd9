import type { Command } from "commander";
import { runBench } from "../../bench/run/bench-run.ts";
import {
  addBenchOptions,
  addGridOptions,
  type BenchArguments,
  type GridArguments,
  loadsOf,
  sloGoalOf,
  textEndpoints,
} from "../prepare/bench-options.ts";
import { runAndReport } from "../prepare/bench-output.ts";

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
of the local model (--weights); an endpoint that differs is not timed and the run fails. Then each load point is measured once in
each of --rounds rounds, in an order shuffled by --seed, with new connections and, in a local simulation, restarted processes:
--warmup seconds, then --windows windows of --window seconds, whatever they show. Latency is measured from the time at which a
request was due. Intervals come from the differences between rounds: with one round, nothing is compared.

--backend accepts groups of endpoints (embed: the embed API; triton and triton_grpc: all Triton servers over HTTP or gRPC; onnx and
tensorrt: both protocols of one Triton server), of which the existing endpoints are measured, and endpoint names, which must exist. The
suffixes _uint8, _jpeg and _json send 8-bit pixels, image files, or float32 tensors as JSON text instead of binary float32 tensors.

--slo p99=200ms then searches, for each endpoint and batch size, the highest rate (open loop, Poisson) at which that percentile is
within the limit: bisection below the closed loop's throughput to within 2 %, at most 12 trials, each with as many windows as fit into
--duration (more at low rates). Failed requests count as later than every response. The result is confirmed with other arrival times.
--demand adds the number of replicas.

--target deployed measures a deployment without changing it; if the embed server requires an API key, set
INFERENCE_API_KEY. Ctrl-C ends the run and saves the measurements so far.

Examples:
  $ npx clipstack bench single-gpu
  $ npx clipstack bench single-gpu --weights tiny --rounds 1
  $ npx clipstack bench search --model dinov2-small
  $ npx clipstack bench search --modality text --texts queries.txt
  $ npx clipstack bench single-gpu --target deployed --concurrency 1,4,8,16,32,64,128 --batch-sizes 1,4,8,16,32 \\
      --window 2 --warmup 2 --duration 60 --output results.json
  $ npx clipstack bench single-gpu --backend onnx-grpc,onnx-http_jpeg --rate 50,100 --arrivals poisson --seed 7
  $ npx clipstack bench single-gpu --target deployed --slo p99=200ms --demand 500 --batch-sizes 1 --duration 60
  $ npx clipstack bench single-gpu --backend onnx --concurrency 16 --channels shared   # 16 clients, one gRPC channel
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
  const slo = sloGoalOf(args, args.seed);
  const { backend, batchSizes } = args;
  const loadPointCount =
    Math.max(1, environments.length) * backend.length * batchSizes.length * loads.length;
  const measurementCount = loadPointCount * args.rounds;
  await runAndReport({ environments, args, endpoints: backend, measurementCount }, (prepared) => {
    const { modality } = prepared.context.tower;
    const endpoints = modality === "text" ? textEndpoints(backend) : backend;
    return runBench({ ...prepared, endpoints, batchSizes, loads, slo });
  });
}
