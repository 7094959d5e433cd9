/** `npm run lab -- acceptance`: runs the servers on this machine's GPU, without Docker and a network, and measures them. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { runProgram } from "../../cli/shared/run-program.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { gpuUseArgs, parseGpuUse } from "../../target/readings/gpu-use.ts";
import { describeMachine } from "../../target/readings/machine.ts";
import { runMain } from "../load/run-main.ts";
import {
  type EngineName,
  largeBatchSpec,
  type Parts,
  type Server,
  startBaseline,
  startGateway,
  startTriton,
  writeEngineRepository,
} from "./acceptance-servers.ts";

const help = `Usage: npm run lab -- acceptance [options]

Starts tritonserver with the rendered configurations on this machine's GPU, the gateway in front of it and the PyTorch baseline, compares
their embeddings with the CPU, measures them, and writes records of 'clipstack bench' and acceptance.json. A step that fails is
recorded, and the others are run. lab/gpu/README.md lists what it needs.

Options:
  --cpu               run on the CPU with small loads, as the test does
  --triton <folder>   folder with bin/tritonserver, whose Python backend has NumPy 1 (default: CLIPSTACK_REAL_TRITON)
  --packages <paths>  folders of Python packages for --python and Triton's Python backend, separated by ':'
  --python <program>  Python with PyTorch, onnx, onnxruntime and the packages of the baseline (default: python3)
  --engines <names>   onnxruntime, pytorch or both (default: onnxruntime,pytorch)
  --weights <name>    full or tiny (default: full)
  --minutes <n>       steps that would start later are skipped (default: 8)
  --output <folder>   (default: acceptance)
  --help

Exit codes: 0 success, 1 a step failed or was skipped, 2 wrong usage, 130 interrupted.
`;

const project = fileURLToPath(new URL("../../", import.meta.url));

const engineNames = ["onnxruntime", "pytorch"] as const;

/** Loads of `clipstack bench`, and of the engines alone. */
const loadsOf = {
  cuda: {
    clients: "1,8,32,128",
    batchClients: "8",
    batches: "32",
    largeBatches: "256",
    timing: ["--rounds", "2", "--window", "0.4", "--windows", "2", "--warmup", "0.5"],
    engineBatch: 256,
    engineSeconds: 0.3,
  },
  cpu: {
    clients: "2",
    batchClients: "1",
    batches: "4",
    largeBatches: "64",
    timing: ["--rounds", "1", "--window", "0.3", "--windows", "2", "--warmup", "0.1"],
    engineBatch: 4,
    engineSeconds: 0.05,
  },
} as const;

/** Python program that prints the versions of its packages as JSON. */
const versions = `import importlib.metadata as found, json, sys
names = ["torch", "onnx", "onnxruntime", "onnxruntime-gpu", "numpy"]
known = {it.metadata["Name"]: it.version for it in found.distributions()}
print(json.dumps({"python": sys.version.split()[0], **{name: known[name] for name in names if name in known}}))`;

/** Outcome of one step, in `acceptance.json`. */
interface Step {
  readonly name: string;
  readonly ok: boolean;
  readonly seconds: number;
  readonly result: unknown;
}

interface Options extends Parts {
  readonly weights: "full" | "tiny";
  readonly engines: readonly EngineName[];
  readonly output: string;
  /** Temporary folder. */
  readonly folder: string;
  /** Time of `performance.now()` after which no step starts. */
  readonly endMs: number;
  readonly signal: AbortSignal;
}

await runMain(
  help,
  {
    cpu: { type: "boolean", default: false },
    triton: { type: "string", default: process.env.CLIPSTACK_REAL_TRITON ?? "" },
    packages: { type: "string", default: "" },
    python: { type: "string", default: "python3" },
    engines: { type: "string", default: "onnxruntime,pytorch" },
    weights: { type: "string", default: "full" },
    minutes: { type: "string", default: "8" },
    output: { type: "string", default: "acceptance" },
  },
  async (values, signal) => {
    const folder = mkdtempSync(join(tmpdir(), "clipstack-acceptance-"));
    try {
      return await accept({
        device: values.cpu ? "cpu" : "cuda",
        triton: resolve(required("--triton", values.triton)),
        packages: values.packages,
        python: values.python,
        engines: values.engines.split(",").map((name) => oneOf("--engines", name, engineNames)),
        weights: oneOf("--weights", values.weights, ["full", "tiny"] as const),
        output: resolve(values.output),
        folder,
        endMs: performance.now() + minutes(values.minutes) * 60_000,
        signal,
      });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

function required(option: string, value: string): string {
  if (value === "") throw new UserError(`${option} must be a folder with bin/tritonserver, got ''`);
  return value;
}

function oneOf<const Name extends string>(option: string, value: string, names: readonly Name[]) {
  const found = names.find((name) => name === value);
  if (found !== undefined) return found;
  throw new UserError(`${option} must be one of ${names.join(", ")}, got '${value}'`);
}

function minutes(text: string): number {
  const value = Number(text);
  if (value > 0 && value <= 120) return value;
  throw new UserError(`--minutes must be a number from above 0 to 120, got '${text}'`);
}

/** Runs all steps and writes `acceptance.json`. @returns Whether all succeeded. */
async function accept(options: Options): Promise<boolean> {
  const { output, engines, folder, signal, device, endMs } = options;
  mkdirSync(output, { recursive: true });
  writeLargeBatchModel(folder);
  const steps: Step[] = [];
  const step = async <Result>(name: string, work: () => Promise<Result>) => {
    const startedMs = performance.now();
    const add = (ok: boolean, result: unknown) => {
      const seconds = Math.round((performance.now() - startedMs) / 100) / 10;
      steps.push({ name, ok, seconds, result });
      console.log(`${ok ? "ok" : "FAILED"} ${name} (${seconds} s)${ok ? "" : `: ${result}`}`);
      writeFileSync(
        join(output, "acceptance.json"),
        `${JSON.stringify({ device, steps }, null, 2)}\n`,
      );
    };
    if (startedMs > endMs) {
      add(false, "skipped: out of time");
      return undefined;
    }
    try {
      const result = await work();
      add(true, result);
      return result;
    } catch (error) {
      signal.throwIfAborted();
      add(false, messageOf(error));
      return undefined;
    }
  };

  await step("machine", () => describe(options));
  const weights = {
    fp32: join(folder, "model.onnx"),
    u8: join(folder, "model.u8.onnx"),
    fp16: join(folder, "model.fp16.onnx"),
  };
  const made = await step("weights", () => makeWeights(options, weights));
  if (made === undefined) return false;
  await step("FP16 file", () => convertToFp16(options, weights));
  await step("engines", () => measureEngines(options, weights));
  const baseline = engines.includes("pytorch")
    ? await step("PyTorch baseline", () => open(startBaseline(weights.fp32, options, signal)))
    : undefined;
  for (const engine of engines) {
    const repository = join(folder, engine);
    await step(`${engine}: repository`, () =>
      writeEngineRepository(repository, engine, weights, options),
    );
    const triton = await step(`${engine}: tritonserver`, () =>
      open(startTriton(repository, join(output, `${engine}.log`), options, signal)),
    );
    if (triton !== undefined) {
      await step(`${engine}: GPU memory`, () => gpuProcesses(options));
      const gateway = await step(`${engine}: gateway`, () =>
        open(startGateway(triton.server, signal)),
      );
      // the baseline is measured once, beside the first engine
      const other = engine === engines[0] ? baseline?.server : undefined;
      await step(`${engine}: bench`, () =>
        bench(options, engine, weights.fp32, triton.server, gateway?.server, other),
      );
      await step(`${engine}: large batches`, () =>
        benchLarge(options, engine, weights.fp32, triton.server),
      );
      await step(`${engine}: GPU memory after the loads`, () => gpuProcesses(options));
      await gateway?.server.child.stop(10);
      await triton.server.child.stop(30);
    }
  }
  await baseline?.server.child.stop(10);
  return steps.every(({ ok }) => ok);
}

/** Server whose time to ready is the result of a step; the process is not part of the record. */
async function open(starting: Promise<Server>) {
  const server = await starting;
  return Object.defineProperty({ readyMs: Math.round(server.readyMs) }, "server", {
    value: server,
    enumerable: false,
  }) as { readonly readyMs: number; readonly server: Server };
}

async function outputOf(
  program: string,
  args: readonly string[],
  { signal, packages, endMs }: Options,
) {
  const timeoutMs = Math.max(30_000, endMs - performance.now());
  const env: Record<string, string> = packages === "" ? {} : { PYTHONPATH: packages };
  const { exitCode, stdout, stderr } = await runProgram(program, args, { timeoutMs, signal, env });
  if (exitCode === 0) return stdout;
  const lines = `${stdout}\n${stderr}`.trim().split("\n").slice(-8).join(" | ");
  throw new UserError(`${program} ${args[0]} ended with code ${exitCode}: ${lines}`);
}

async function describe(options: Options) {
  const python = JSON.parse(await outputOf(options.python, ["-c", versions], options));
  if (options.device === "cpu") return { ...describeMachine(), python };
  const nvidiaSmi = await outputOf("nvidia-smi", ["-q"], options);
  writeFileSync(join(options.output, "nvidia-smi.txt"), nvidiaSmi);
  const readings = await outputOf("nvidia-smi", gpuUseArgs, options);
  return { ...describeMachine(), python, readings, parsed: parseGpuUse(readings) };
}

type Weights = { readonly fp32: string; readonly u8: string; readonly fp16: string };

async function makeWeights(options: Options, { fp32, u8 }: Weights) {
  const profile = ["--profile", options.weights];
  await clipstack(options, "model", "generate", ...profile, "--output", fp32, "--json");
  await ensureOptimised(openclipVitB32, fp32, u8);
  return { profile: options.weights };
}

/** Writes the file that TensorRT 11 is given. Without a GPU the command installs the packages it needs. */
async function convertToFp16(options: Options, { fp32, fp16 }: Weights) {
  const convert = ["model", "convert", "--precision", "fp16", "--keep-graph", "--rounds", "1"];
  const python = options.device === "cuda" ? ["--python", options.python] : [];
  const files = ["--weights", fp32, "--output", fp16];
  const { agreement } = JSON.parse(
    await clipstack(options, ...convert, ...files, ...python, "--json"),
  );
  return { agreement };
}

async function measureEngines(options: Options, { fp32, fp16 }: Weights) {
  const { engineBatch, engineSeconds } = loadsOf[options.device];
  const script = fileURLToPath(new URL("measure-engines.py", import.meta.url));
  const limits = [String(engineBatch), String(engineSeconds)];
  const args = [fp32, fp16, options.device, ...limits, options.engines.join(",")];
  const found = JSON.parse(await outputOf(options.python, ["-B", script, ...args], options));
  const failed = found.filter(({ error }: { error?: string }) => error !== undefined);
  if (failed.length > 0) throw new UserError(JSON.stringify(found));
  return found;
}

/** GPU memory of each process in MiB. */
async function gpuProcesses(options: Options) {
  if (options.device === "cpu") return [];
  const args = [
    "--query-compute-apps=pid,process_name,used_memory",
    "--format=csv,noheader,nounits",
  ];
  const lines = (await outputOf("nvidia-smi", args, options)).trim().split("\n");
  return lines.map((line) => {
    const [pid, path = "", mib] = line.split(", ");
    return { pid: Number(pid), program: basename(path), memoryMiB: Number(mib) };
  });
}

/** Measures requests of one image with each number of clients, then requests of several images with one number of clients. */
async function bench(
  options: Options,
  engine: EngineName,
  weights: string,
  { ports }: Server,
  gateway: Server | undefined,
  baseline: Server | undefined,
) {
  const { clients, batchClients, batches, timing } = loadsOf[options.device];
  const services = { "embed-http": gateway, "pytorch-http": baseline };
  const urls = Object.entries(services).flatMap(([name, server]) =>
    server === undefined ? [] : ["--url", `${name}=http://127.0.0.1:${server.ports.http}`],
  );
  // HTTP is measured once, because it differs from gRPC in Triton and not in the engine
  const names = [
    "onnx-grpc",
    "onnx-grpc_uint8",
    ...(engine === options.engines[0] ? ["onnx-http"] : []),
  ];
  if (gateway !== undefined) names.unshift("embed-http");
  if (baseline !== undefined) names.push("pytorch-http");
  const common = [...urls, "--backend", names.join(","), ...timing];
  const single = await runBench(options, weights, ports, `${engine}.json`, [
    ...common,
    ...["--concurrency", clients, "--batch-sizes", "1"],
  ]);
  const several = await runBench(options, weights, ports, `${engine}-batches.json`, [
    ...common,
    ...["--concurrency", batchClients, "--batch-sizes", batches],
  ]);
  return { records: [single.record, several.record] };
}

/** Batches above the maximum of the shipped configuration. */
function benchLarge(options: Options, engine: EngineName, weights: string, { ports }: Server) {
  const { batchClients, largeBatches, timing } = loadsOf[options.device];
  return runBench(options, weights, ports, `${engine}-large-batches.json`, [
    ...["--model", largeBatchSpec.name, "--backend", "onnx-grpc,onnx-grpc_uint8"],
    ...["--concurrency", batchClients, "--batch-sizes", largeBatches, ...timing],
  ]);
}

async function runBench(
  options: Options,
  weights: string,
  { http, grpc, metrics }: Server["ports"],
  file: string,
  args: readonly string[],
) {
  const record = join(options.output, file);
  await clipstack(
    options,
    "bench",
    ...["--url", `onnx-http=http://127.0.0.1:${http}`, "--url", `onnx-grpc=127.0.0.1:${grpc}`],
    ...["--metrics-url", `onnx=http://127.0.0.1:${metrics}`, "--weights", weights],
    ...(options.device === "cuda" && file.startsWith("pytorch") ? ["--precision", "fp16"] : []),
    ...args,
    ...["--report", options.folder, "--output", record, "--json"],
  );
  return { record: file };
}

function clipstack(options: Options, ...args: readonly string[]) {
  return outputOf(process.execPath, [join(project, "cli/clipstack.mjs"), ...args], options);
}

/** Writes the spec of the model with larger batches as a user-defined model, and sets the environments folder of the commands. */
function writeLargeBatchModel(folder: string): void {
  const environments = join(folder, "environments");
  const { name, ...spec } = largeBatchSpec;
  mkdirSync(join(environments, "models"), { recursive: true });
  writeFileSync(join(environments, "models", `${name}.yaml`), JSON.stringify(spec));
  process.env.CLIPSTACK_ENVIRONMENTS_DIR = environments;
}
