import { rmSync } from "node:fs";
import { mkdtemp, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Command, Option } from "commander";
import { embedPort, standaloneTritonPorts } from "../../contract/ports.ts";
import type { ServerEnvName } from "../../contract/server-env.ts";
import { renderTritonCommand } from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import { repositoryModel } from "../../model-tools/generate.ts";
import { ensureOptimised } from "../../model-tools/optimise.ts";
import { checkoutRepository, copyModelRepository } from "../../model-tools/repository.ts";
import { modelFile } from "../model/model-option.ts";
import { wholeNumber } from "../option-values.ts";

interface ServeArguments {
  readonly role: "embed" | "triton";
  readonly model: string;
  readonly host: string;
  readonly httpPort?: number;
  readonly grpcPort?: number;
  readonly metricsPort?: number;
  readonly modelConfigName?: string;
}

const port = wholeNumber(1, 65_535);

/** `clipstack serve`: runs one server in this process until Ctrl-C. */
export function registerServe(program: Command): void {
  const { http, grpc, metrics } = standaloneTritonPorts;
  program
    .command("serve")
    .addOption(
      new Option("--role <role>", "server to start").choices(["embed", "triton"]).default("embed"),
    )
    .option(
      "--model <model>",
      "tiny (random weights, for tests), generated (full size, random weights; written if missing), " +
        "an ONNX file, or with --role triton a model repository",
      "generated",
    )
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--http-port <port>", `default: ${embedPort}, or ${http} with --role triton`, port)
    .option("--grpc-port <port>", `--role triton only; default: ${grpc}`, port)
    .option("--metrics-port <port>", `--role triton only; default: ${metrics}`, port)
    .option(
      "--model-config-name <variant>",
      "--role triton only: use <model>/configs/<variant>.pbtxt",
    )
    .addHelpText(
      "after",
      `
The other settings of the embed server are environment variables, as in its container:
BACKEND, TRITON_GRPC_URLS, MAX_QUEUE_SIZE, LOG_LEVEL, … (complete list: contract/server-env.ts).
With --role triton, MAX_QUEUE_SIZE and MAX_QUEUE_BYTES limit the queues of all models together.

Examples:
  $ npx clipstack serve --model tiny
  $ curl -F image=@photo.jpg http://127.0.0.1:${embedPort}/embed
  $ npx clipstack serve --role triton --model-config-name cpu
  $ BACKEND=triton TRITON_GRPC_URLS=127.0.0.1:${grpc} npx clipstack serve     # gateway to that Triton`,
    )
    .action(serve);
}

async function serve(args: ServeArguments): Promise<void> {
  await (args.role === "embed" ? serveEmbed(args) : serveTriton(args));
}

async function serveEmbed(args: ServeArguments): Promise<void> {
  for (const [option, value] of [
    ["--grpc-port", args.grpcPort],
    ["--metrics-port", args.metricsPort],
    ["--model-config-name", args.modelConfigName],
  ] as const) {
    if (value !== undefined) throw new UserError(`${option} is for --role triton, got '${value}'`);
  }
  const gateway = process.env.BACKEND === "triton";
  const overrides: Partial<Record<ServerEnvName, string>> = {
    HOST: args.host,
    PORT: String(args.httpPort ?? embedPort),
    ...(gateway ? {} : await servedModel(args.model)),
  };
  const { runEmbedServer } = await import("../../inference-image/embed/embed-server.ts");
  await runEmbedServer({ ...process.env, ...overrides });
}

async function serveTriton(args: ServeArguments): Promise<void> {
  const repository = await modelRepository(args.model);
  const [, ...flags] = renderTritonCommand({
    "model-repository": repository,
    "model-config-name": args.modelConfigName,
    "http-address": args.host,
    "http-port": args.httpPort ?? standaloneTritonPorts.http,
    "grpc-address": args.host,
    "grpc-port": args.grpcPort ?? standaloneTritonPorts.grpc,
    "metrics-address": args.host,
    "metrics-port": args.metricsPort ?? standaloneTritonPorts.metrics,
  });
  const { runTritonEmulator } = await import("../../inference-image/emulator/triton-emulator.ts");
  await runTritonEmulator(flags);
}

/** Returns the model settings for `--model`. Optimises the checkout's own models first, unless MODEL_PRECISION is set. */
async function servedModel(model: string): Promise<Partial<Record<ServerEnvName, string>>> {
  const MODEL_PATH = await servedFile(model);
  if (process.env.MODEL_PRECISION || !["tiny", "generated"].includes(model)) return { MODEL_PATH };
  try {
    await ensureOptimised(MODEL_PATH);
    return { MODEL_PATH, MODEL_PRECISION: "fp32-optimised" };
  } catch (error) {
    console.error(`serving ${MODEL_PATH} without optimising it: ${(error as Error).message}`);
    return { MODEL_PATH };
  }
}

function servedFile(model: string): Promise<string> {
  let isAnnounced = false;
  return modelFile(model, () => {
    if (!isAnnounced) console.error("generating the full-size model with random weights …");
    isAnnounced = true;
  });
}

/** Returns the model repository for `--model`; for a model file, a copy of the checkout's repository with that file. */
async function modelRepository(model: string): Promise<string> {
  const folder = await stat(model).catch(() => undefined);
  if (folder?.isDirectory()) return resolve(model);
  const file = await servedFile(model);
  if (file === repositoryModel) {
    await ensureOptimised(repositoryModel);
    return checkoutRepository;
  }
  const repository = await mkdtemp(join(tmpdir(), "clipstack-models-"));
  process.once("exit", () => rmSync(repository, { recursive: true, force: true }));
  await copyModelRepository(file, repository);
  return repository;
}
