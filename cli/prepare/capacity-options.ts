import { type Command, InvalidArgumentError, Option } from "commander";
import { type Topology, topologies } from "../../bench/capacity/model.ts";
import { typicalEgressUsdPerGb } from "../../bench/capacity/plan.ts";
import { type Payload, payloadNames } from "../../bench/capacity/scenario.ts";
import type { Backend } from "../../bench/capacity/service-times.ts";
import { type GpuName, gpuNames } from "../../contract/gpus.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { numberFrom, numberUpTo, wholeNumber } from "../shared/option-values.ts";

/** Options of `clipstack capacity`. */
export interface CapacityArguments {
  readonly gpu?: GpuName;
  readonly gpus?: number;
  /** Name of a model of the catalogue or of `environments/models/`. */
  readonly model?: string;
  readonly topology?: Topology;
  readonly backend?: Backend;
  /** US dollars per hour for one GPU. */
  readonly price?: number;
  readonly payload?: Payload;
  readonly jpegKb: number;
  /** Mbit/s. */
  readonly bandwidth: number;
  /** Milliseconds. */
  readonly roundTrip: number;
  readonly connections: "new" | "kept";
  readonly concurrency?: number;
  readonly batchSize: number;
  /** US dollars per GB. */
  readonly egressPrice: number;
  readonly images?: number;
  /** Hours. */
  readonly within?: number;
  readonly cores?: number;
  readonly decodeMs?: number;
  readonly decodeWorkers?: number;
  readonly ingestMs?: number;
  readonly clientMs: number;
  readonly json?: true;
  readonly output?: string;
  /** Environment file to write. */
  readonly write?: string;
}

/** Adds the options of {@link CapacityArguments}. */
export function addCapacityOptions(command: Command): void {
  addHardwareOptions(command);
  addLoadOptions(command);
  addCalibrationOptions(command);
  command
    .option("--json", "print only the result, as JSON")
    .option("--output <file>", "also write the result to this file, as JSON")
    .option(
      "--write <file>",
      "write the prediction or the first plan as a new environment: environments/x.yaml",
    );
}

function addHardwareOptions(command: Command): void {
  command
    .addOption(new Option("--gpu <name>", "GPU model of the catalogue").choices(gpuNames))
    .option("--gpus <number>", "number of GPUs (default: 1)", wholeNumber(1, 64))
    .option(
      "--model <name>",
      `model of the catalogue or of environments/models (default: the environment's first, or ${defaultModel.name})`,
    )
    .addOption(
      new Option(
        "--topology <name>",
        "one Triton server across all GPUs, or one per GPU (default: instance-group)",
      ).choices(topologies),
    )
    .addOption(
      new Option("--backend <name>", "backend that executes the model (default: tensorrt)").choices(
        ["onnxruntime", "tensorrt"],
      ),
    )
    .option(
      "--price <dollars>",
      "US dollars per hour for one GPU (default: price of the catalogue)",
      numberUpTo(1e12),
    );
}

function addLoadOptions(command: Command): void {
  command
    .addOption(
      new Option(
        "--payload <name>",
        "payload format: jpeg to the embed API; uint8, fp32 or json tensors to Triton (default: jpeg, or the environment's first)",
      ).choices(payloadNames),
    )
    .option(
      "--jpeg-kb <size>",
      "size of an image file in kB, for decoding, the link and the transfer of the source",
      numberUpTo(1e12),
      10,
    )
    .option(
      "--egress-price <dollars>",
      "US dollars per GB of image files that leave the object storage; 0: beside the GPUs",
      numberFrom(0, 1e12),
      typicalEgressUsdPerGb,
    )
    .addOption(
      new Option("--bandwidth <rate>", "bandwidth of the client's link: 100Mbps, 2.5Gbps")
        .argParser(bandwidth)
        .default(1000, "1Gbps"),
    )
    .addOption(
      new Option("--round-trip <time>", "round-trip time between client and server: 60ms")
        .argParser(milliseconds)
        .default(1, "1ms"),
    )
    .addOption(
      new Option(
        "--connections <kind>",
        "new: one per request, as in the published figures; kept: reused",
      )
        .choices(["new", "kept"])
        .default("new"),
    )
    .option(
      "--concurrency <number>",
      "clients, each with one outstanding request (default: 16; for a job, the best number)",
      wholeNumber(1, 4096),
    )
    .option("--batch-size <number>", "images per request", wholeNumber(1, 32), 1)
    .option("--images <number>", "number of images of a job", wholeNumber(1, 1e12))
    .option("--within <time>", "deadline of the job: 6h, 90min", hours);
}

function addCalibrationOptions(command: Command): void {
  command
    .option(
      "--cores <number>",
      "cores of the host, for decoding and ingest (default: 8 per GPU)",
      wholeNumber(1, 4096),
    )
    .option(
      "--decode-ms <ms>",
      "time of one core to decode an image (default: clipstack's server, by --jpeg-kb)",
      numberUpTo(1e12),
    )
    .option(
      "--decode-workers <number>",
      "images decoded concurrently (default: the cores, less those for ingest)",
      wholeNumber(1, 1024),
    )
    .option(
      "--ingest-ms <ms>",
      "time of one Triton server to ingest one float32 tensor (default: measured per core)",
      numberUpTo(1e12),
    )
    .option("--client-ms <ms>", "client work between two requests", numberFrom(0, 1e12), 0);
}

/** Parses a number with one of `units`; returns it in the unit with factor 1. */
function quantity(
  units: Readonly<Record<string, number>>,
  example: string,
  minimum: "above 0" | "0 or more" = "above 0",
) {
  const factors = new Map(
    Object.entries(units).map(([name, factor]) => [name.toLowerCase(), factor]),
  );
  return (text: string): number => {
    const [, digits = "", unit = ""] = /^([0-9.]+)\s*([A-Za-z/]*)$/.exec(text.trim()) ?? [];
    const factor = factors.get(unit.toLowerCase());
    if (digits !== "" && unit !== "" && factor === undefined) {
      throw new InvalidArgumentError(
        `Its unit must be ${Object.keys(units).join(", ")}${/bit|bps/i.test(example) ? " (bits, not bytes)" : ""}, got ${unit}.`,
      );
    }
    const value = Number(digits) * (factor ?? Number.NaN);
    const inRange = minimum === "above 0" ? value > 0 : value >= 0;
    if (digits === "" || !(inRange && Number.isFinite(value))) {
      throw new InvalidArgumentError(
        `It must be a number ${minimum} with its unit, like ${example}.`,
      );
    }
    return value;
  };
}

/** Parser of a bandwidth in Mbit/s. */
export const bandwidth = quantity(
  { kbps: 1e-3, "kbit/s": 1e-3, Mbps: 1, "Mbit/s": 1, Gbps: 1000, "Gbit/s": 1000 },
  "100Mbps",
);

const milliseconds = quantity({ us: 1e-3, ms: 1, s: 1000 }, "60ms", "0 or more");

/** Parser of a time in hours. */
export const hours = quantity({ s: 1 / 3600, min: 1 / 60, h: 1, d: 24 }, "6h or 90min");
