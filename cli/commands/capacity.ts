import type { Command } from "commander";
import { predictionInterval } from "../../bench/capacity/intervals.ts";
import { transferCost } from "../../bench/capacity/plan.ts";
import { alternatives, predictScenario, type Scenario } from "../../bench/capacity/scenario.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { UserError } from "../../contract/user-error.ts";
import { writeEnvironment } from "../prepare/capacity-environment.ts";
import {
  deviceOf,
  hardwareFromOptions,
  hardwareOfEnvironment,
  payloadOf,
  scenarioBase,
  serviceTimesOf,
  timeSources,
} from "../prepare/capacity-inputs.ts";
import { type CapacityInputs, type CapacityResult, jobPlan } from "../prepare/capacity-job.ts";
import { addCapacityOptions, type CapacityArguments } from "../prepare/capacity-options.ts";
import { notesOf, scenarioText, type Trust } from "../prepare/capacity-text.ts";
import { writeOutput } from "../shared/write-output.ts";

/** Registers `clipstack capacity`, which predicts throughput, latency, cost and the bottleneck. */
export function registerCapacity(program: Command): void {
  const command = program
    .command("capacity")
    .argument(
      "[environment]",
      "read GPUs, topology, backend and price from this environment's synthesized output",
    );
  addCapacityOptions(command);
  command.addHelpText("after", help).action(capacity);
}

const help = `
The model is a closed queueing network of client work, link, round trips, decoding, batcher, tensor ingest and GPU. Its
parameters come from published figures; docs/capacity.md explains them and lists the errors of the
model. The command needs no GPU and measures nothing.

Examples:
  $ npx clipstack capacity --gpu rtx-4080 --gpus 4 --topology per-gpu --payload jpeg --bandwidth 100Mbps --round-trip 60ms --concurrency 32
  $ npx clipstack capacity multi-gpu-4x --payload fp32 --bandwidth 10Gbps --round-trip 0.2ms --connections kept --concurrency 64
  $ npx clipstack capacity --images 1000000 --within 6h --bandwidth 200Mbps --round-trip 35ms
  $ npx clipstack capacity --gpu a100-sxm4-80gb --gpus 8 --cores 96 --payload jpeg --bandwidth 10Gbps --concurrency 512
  $ npx clipstack capacity --images 1000000 --within 6h --write environments/staging.yaml

Exit codes: 0 success, 1 no plan meets the deadline, 2 wrong usage or settings.`;

function capacity(environment: string | undefined, args: CapacityArguments): void {
  if (environment !== undefined && args.write !== undefined) {
    throw new UserError("--write writes a new environment: use it without the name of one");
  }
  const result = capacityResult(environment, args);
  if (args.write !== undefined && result.chosen !== undefined) {
    writeEnvironment(args.write, result.chosen, args.model);
  }
  const json = `${JSON.stringify({ schema: 1, ...result.json }, null, 2)}\n`;
  if (args.output !== undefined) writeOutput(args.output, json);
  if (args.json) process.stdout.write(json);
  else console.log(result.text);
  process.exitCode = result.exitCode;
}

function capacityResult(environment: string | undefined, args: CapacityArguments): CapacityResult {
  if ((args.images === undefined) !== (args.within === undefined)) {
    throw new UserError("a job requires both --images and --within");
  }
  const configured = environment === undefined ? {} : hardwareOfEnvironment(environment);
  const hardware = { ...configured, ...hardwareFromOptions(args) };
  const { name, batching } = hardware.model ?? defaultModel;
  if (args.batchSize > batching.maximum) {
    throw new UserError(
      `--batch-size must be 1 to ${batching.maximum}, the maximum of ${name}, got ${args.batchSize}`,
    );
  }
  const inputs: CapacityInputs = { hardware, args, ...serviceTimesOf(hardware, args) };
  return args.images !== undefined && args.within !== undefined
    ? jobPlan({ images: args.images, withinHours: args.within }, inputs)
    : prediction(inputs);
}

function prediction({ hardware, args, times, uncertainty }: CapacityInputs): CapacityResult {
  const base = scenarioBase(hardware, args);
  const payload = payloadOf(hardware, args.payload);
  const scenario: Scenario = {
    ...base,
    backend: base.served?.[payload] ?? base.backend,
    device: deviceOf(hardware),
    gpus: hardware.gpus ?? 1,
    topology: hardware.topology ?? "instance-group",
    payload,
    concurrency: args.concurrency ?? 16,
  };
  const predicted = predictScenario(scenario, times);
  const others = alternatives(scenario, times);
  const trust: Trust = {
    sources: timeSources,
    notes: notesOf(scenario, times, predicted.bottleneck),
  };
  const interval = predictionInterval(scenario, uncertainty);
  const transfer = transferCost(1_000, scenario.jpegBytes, args.egressPrice);
  return {
    text: scenarioText(scenario, predicted, others, trust, transfer, interval),
    json: { scenario, prediction: predicted, interval, transfer, alternatives: others, trust },
    exitCode: 0,
    chosen: scenario,
  };
}
