import { topologies } from "../../bench/capacity/model.ts";
import { planJob, transferCost } from "../../bench/capacity/plan.ts";
import {
  type Payload,
  payloadNames,
  recommendedPayloads,
  type Scenario,
} from "../../bench/capacity/scenario.ts";
import { gpuNames, gpuSpec } from "../../contract/gpus.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  deviceFor,
  deviceOf,
  type PublishedServiceTimes,
  payloadOf,
  type RequestedHardware,
  scenarioBase,
  timeSources,
} from "./capacity-inputs.ts";
import type { CapacityArguments } from "./capacity-options.ts";
import { notesOf, planText, type Trust } from "./capacity-text.ts";

export interface CapacityResult {
  readonly text: string;
  readonly json: object;
  readonly exitCode: 0 | 1;
  /** Scenario of the prediction, or of the first plan that meets the deadline. @default - no plan meets it */
  readonly chosen?: Scenario;
}

export interface CapacityInputs extends PublishedServiceTimes {
  readonly hardware: RequestedHardware;
  readonly args: CapacityArguments;
}

/** Returns the payload formats to evaluate for a job: the requested one, those of the environment, or those that the stacks serve. */
function jobPayloads(
  hardware: RequestedHardware,
  payload: Payload | undefined,
): readonly Payload[] {
  if (payload !== undefined) return [payloadOf(hardware, payload)];
  const { served } = hardware;
  if (served === undefined) return recommendedPayloads;
  return payloadNames.filter((name) => name !== "json" && name in served);
}

/** Plans a job: GPUs, time and cost, with intervals. */
export function jobPlan(
  job: { readonly images: number; readonly withinHours: number },
  { hardware, args, times, uncertainty }: CapacityInputs,
): CapacityResult {
  if (hardware.price !== undefined && hardware.gpu === undefined) {
    throw new UserError("--price is that of one GPU model: set --gpu");
  }
  const devices =
    hardware.gpu === undefined
      ? gpuNames.map((name) => deviceFor(gpuSpec(name)))
      : [deviceOf(hardware)];
  const plan = planJob(
    job,
    scenarioBase(hardware, args),
    {
      devices,
      gpus: hardware.gpus === undefined ? [1, 2, 4, 8] : [hardware.gpus],
      topologies: hardware.topology === undefined ? topologies : [hardware.topology],
      payloads: jobPayloads(hardware, args.payload),
      concurrencies:
        args.concurrency === undefined ? [1, 2, 4, 8, 16, 32, 64, 128] : [args.concurrency],
    },
    times,
    uncertainty,
  );
  const [best] = plan.options;
  const notes = [
    "Costs are for the hours of the job; catalogue prices are from different sources and months.",
    ...(best === undefined ? [] : notesOf(best.scenario, times, best.bottleneck)),
  ];
  const trust: Trust = { sources: timeSources, notes };
  const transfer = transferCost(job.images, args.jpegKb * 1000, args.egressPrice);
  return {
    text: planText(job, plan, 10, trust, transfer),
    json: { job, ...plan, transfer, trust },
    ...(best?.meetsDeadline === true ? { exitCode: 0, chosen: best.scenario } : { exitCode: 1 }),
  };
}
