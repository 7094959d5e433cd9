/** `npm run lab -- ingest`: measures what a request costs Triton itself, and decoding in Pillow, in processor time per image. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { publishedModel } from "../../bench/capacity/service-times.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { imagePixels, normalisedImage } from "../../contract/model-shapes.ts";
import { UserError } from "../../contract/user-error.ts";
import { parseProcessStat } from "../../target/readings/process-stat.ts";
import { median } from "../../target/stats/statistics.ts";
import { publishedTower } from "../capacity/published.ts";
import { pinned, runPerfAnalyzer } from "../load/baseline-generators.ts";
import { numberOption, runMain } from "../load/run-main.ts";

const help = `Usage: npm run lab -- ingest [options]

Loads a real tritonserver whose backend computes nothing (discard-backend.c, built with cc) with perf_analyzer, over HTTP and gRPC
with each payload format, on one and on two cores, in rounds of alternating order. Prints the figures of lab/published/clipstack-ingest.json:
processor time of tritonserver per image, and the decoding time of Pillow.

Options:
  --rounds <n>       rounds (default: 3)
  --seconds <n>      length of each measurement (default: 3)
  --concurrency <n>  clients (default: 8)
  --commit <id>      commit to record in the file
  --output <file>    writes the figures to a file instead of standard output
  --help

Environment:
  CLIPSTACK_REAL_TRITON  folder with bin/tritonserver, bin/perf_analyzer and bin/python; .ci/real-triton prints it
`;

const protocols = ["http", "grpc"] as const;
const jpegBytes = 10_000;
/** Inputs of the models, by payload format. */
const inputs = {
  fp32: `data_type: TYPE_FP32 dims: [ ${normalisedImage(publishedTower).dims.join(", ")} ]`,
  uint8: `data_type: TYPE_UINT8 dims: [ ${imagePixels(publishedTower).dims.join(", ")} ]`,
  jpeg: "data_type: TYPE_STRING dims: [ 1 ]",
} as const;
type Payload = keyof typeof inputs;
const payloads = Object.keys(inputs) as Payload[];
const coreCounts = [1, 2] as const;

interface Case {
  readonly protocol: (typeof protocols)[number];
  readonly payload: Payload;
  readonly cores: (typeof coreCounts)[number];
}

interface Reading {
  readonly msPerImage: number;
  readonly imagesPerSecond: number;
}

interface IngestOptions {
  readonly seconds: number;
  readonly concurrency: number;
  readonly signal: AbortSignal;
}

const run = promisify(execFile);
const local = (name: string) => fileURLToPath(new URL(name, import.meta.url));

await runMain(
  help,
  {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "3" },
    concurrency: { type: "string", default: "8" },
    commit: { type: "string", default: "unknown" },
    output: { type: "string" },
  },
  async (values, signal) => {
    const home = process.env.CLIPSTACK_REAL_TRITON;
    if (home === undefined) throw new UserError("CLIPSTACK_REAL_TRITON must be set");
    const rounds = numberOption("--rounds", values.rounds);
    const options: IngestOptions = {
      seconds: numberOption("--seconds", values.seconds),
      concurrency: numberOption("--concurrency", values.concurrency),
      signal,
    };
    const folder = await mkdtemp(join(tmpdir(), "clipstack-ingest-"));
    try {
      await buildModels(folder);
      const readings = new Map<Case, Reading[]>(cases().map((one) => [one, []]));
      const decoding: { bytes: number; msPerImage: number }[] = [];
      for (let round = 0; round < rounds; round++) {
        const order = round % 2 === 0 ? coreCounts : [...coreCounts].reverse();
        for (const cores of order) {
          const some = [...readings.keys()].filter((one) => one.cores === cores);
          await measure(home, folder, round % 2 === 0 ? some : some.reverse(), readings, options);
        }
        decoding.push(await decodeReading(home));
        console.error(`round ${round + 1} of ${rounds}`);
      }
      const text = `${JSON.stringify(publishedFile(readings, decoding, values.commit, options), null, 2)}\n`;
      if (values.output === undefined) process.stdout.write(text);
      else await writeFile(values.output, text);
      return true;
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);

function cases(): readonly Case[] {
  return coreCounts.flatMap((cores) =>
    protocols.flatMap((protocol) => payloads.map((payload) => ({ protocol, payload, cores }))),
  );
}

/** Builds the backend, and a model repository with one model per payload format. */
async function buildModels(folder: string): Promise<void> {
  const backend = join(folder, "backends", "discard");
  await mkdir(backend, { recursive: true });
  const library = join(backend, "libtriton_discard.so");
  await run("cc", ["-O2", "-shared", "-fPIC", "-o", library, local("discard-backend.c")]);
  for (const payload of payloads) {
    const model = join(folder, "models", payload);
    await mkdir(join(model, "1"), { recursive: true });
    await writeFile(
      join(model, "config.pbtxt"),
      `name: "${payload}"
backend: "discard"
max_batch_size: 32
input [ { name: "image" ${inputs[payload]} } ]
output [ { name: "embedding" data_type: TYPE_FP32 dims: [ ${publishedModel.embedding.width} ] } ]
instance_group [ { kind: KIND_CPU count: 4 } ]
`,
    );
  }
}

/** Adds one reading per case, of one number of cores, from one process of Triton. */
async function measure(
  home: string,
  folder: string,
  order: readonly Case[],
  readings: ReadonlyMap<Case, Reading[]>,
  { seconds, concurrency, signal }: IngestOptions,
): Promise<void> {
  // the module locates tritonserver on import
  const { startRealTriton } = await import("../../client/triton/test-real-triton.ts");
  const cores = order[0]?.cores === 1 ? "0" : "0,1";
  const triton = await startRealTriton(join(folder, "models"), {
    flags: [`--backend-directory=${join(folder, "backends")}`],
    prefix: pinned(cores),
  });
  const transport = openHttpTransport({ url: triton.url });
  const images = async (model: string) =>
    (await transport.statistics(model, { timeoutMs: 10_000 })).success.count;
  const processorMs = () =>
    parseProcessStat(readFileSync(`/proc/${triton.process.pid}/stat`, "utf8")).cpuMs;
  try {
    for (const one of order) {
      const { protocol, payload } = one;
      const [imagesBefore, msBefore] = [await images(payload), processorMs()];
      const { requestsPerSecond } = await runPerfAnalyzer(
        join(home, "bin", "perf_analyzer"),
        {
          protocol,
          address: protocol === "http" ? triton.httpTarget : triton.grpcTarget,
          model: payload,
          ...(payload === "jpeg" ? { stringBytes: jpegBytes } : {}),
        },
        { concurrency, seconds, cores: one.cores === 1 ? "1" : "0,1", signal },
      );
      const measured = (await images(payload)) - imagesBefore;
      readings.get(one)?.push({
        msPerImage: (processorMs() - msBefore) / measured,
        imagesPerSecond: requestsPerSecond,
      });
    }
  } finally {
    await transport.close();
    await triton.stop();
  }
}

async function decodeReading(home: string): Promise<{ bytes: number; msPerImage: number }> {
  const sample = local("../../model-tools/samples/mountains.jpg");
  const args = [local("measure-decode.py"), sample, "100"];
  const { stdout } = await run(join(home, "bin", "python"), args);
  return JSON.parse(stdout) as { bytes: number; msPerImage: number };
}

/** File of `lab/published` with the medians, and the values of each round. */
function publishedFile(
  readings: ReadonlyMap<Case, readonly Reading[]>,
  decoding: readonly { bytes: number; msPerImage: number }[],
  commit: string,
  { concurrency }: IngestOptions,
): object {
  const digits = (value: number) => Number(value.toPrecision(3));
  const medianOf = (values: readonly number[]) => digits(median(values) ?? Number.NaN);
  const byRound = (values: readonly number[]) => ({
    value: medianOf(values),
    rounds: values.map(digits),
  });
  return {
    schema: 1,
    id: "clipstack-ingest",
    title: "Ingest of a request by Triton, and decoding with Pillow, measured by clipstack",
    source: {
      name: `clipstack, npm run lab -- ingest at commit ${commit}`,
      seen: new Date().toISOString().slice(0, 7),
    },
    setting: {
      place: "server",
      processor: `${cpus().length} cores, ${cpus()[0]?.model}`,
      iterations: decoding.length,
    },
    missing: [
      "more than two cores",
      "work of a backend that reads its input, such as the copy to a GPU",
    ],
    figures: [
      ...[...readings].map(([{ protocol, payload, cores }, all]) => ({
        id: `${protocol}-${payload}-${cores}`,
        label: `${protocol === "http" ? "HTTP" : "gRPC"}, ${payload}, ${cores === 1 ? "1 core" : "2 cores"}`,
        quantity: "ingest",
        role: "read",
        unit: "ms",
        ...byRound(all.map(({ msPerImage }) => msPerImage)),
        cores,
        note: `${medianOf(all.map(({ imagesPerSecond }) => imagesPerSecond))} images/s through perf_analyzer, ${cores === 1 ? "on the other core" : "on the same two cores"}`,
        load: {
          endpoint: `onnx-${protocol}`,
          payload,
          serialization: "binary",
          imagesPerRequest: 1,
          concurrency,
        },
      })),
      {
        id: "pillow-decode",
        label: "decoding, resizing and normalising with Pillow, short side 384, 40 kB",
        quantity: "decode",
        role: "read",
        unit: "ms",
        ...byRound(decoding.map(({ msPerImage }) => msPerImage)),
        cores: 1,
        bytes: decoding[0]?.bytes,
      },
    ],
  };
}
