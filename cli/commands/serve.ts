import { type Command, Option } from "commander";
import { defaultModel } from "../../contract/models/index.ts";
import { embedPort, standaloneTritonPorts } from "../../contract/ports.ts";
import { modelsArgument } from "../../contract/server/model-list.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { renderTritonCommand } from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import { embedSettings, gatewaySettings, tritonRepository } from "../model/served-models.ts";
import { wholeNumber } from "../shared/option-values.ts";

interface ServeArguments {
  readonly role: "embed" | "triton";
  readonly model?: readonly string[];
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
    .addOption(
      new Option(
        "--model <model>",
        "model of the catalogue or of environments/models (random weights if it has no files), <model>:image or <model>:text for one tower, " +
          "<model>=<ONNX file>, an ONNX file, tiny (random weights, for tests), " +
          "or with --role triton a model repository; repeat it for several models, the first is the default",
      )
        .default(undefined, defaultModel.name)
        .argParser((value: string, values: readonly string[] = []) => [...values, value]),
    )
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--http-port <port>", `default: ${embedPort}, or ${http} with --role triton`, port)
    .option("--grpc-port <port>", `--role triton only; default: ${grpc}`, port)
    .option("--metrics-port <port>", `--role triton only; default: ${metrics}`, port)
    .option("--model-config-name <name>", "--role triton only: use <model>/configs/<name>.pbtxt")
    .addHelpText(
      "after",
      `
The other settings of the embed server are environment variables, as in its container:
BACKEND, TRITON_GRPC_URLS, MAX_QUEUE_SIZE, LOG_LEVEL, … (complete list: docs/server-variables.md).
With --role triton, MAX_QUEUE_SIZE and MAX_QUEUE_BYTES limit the queues of all models together.

Examples:
  $ npx clipstack serve --model tiny
  $ npx clipstack serve --model openclip-vit-b32 --model dinov2-small
  $ curl -F image=@photo.jpg http://127.0.0.1:${embedPort}/embed
  $ npx clipstack serve --role triton
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
  const { MODELS_FILE: _file, ...env } = process.env;
  const overrides: Partial<Record<ServerEnvName, string>> = {
    HOST: args.host,
    PORT: String(args.httpPort ?? embedPort),
    ...(gateway
      ? gatewaySettings(args.model ?? [])
      : await embedSettings(args.model ?? (await listedModels(process.env)) ?? ["generated"])),
  };
  const { runEmbedServer } = await import("../../inference-image/server/embed-server.ts");
  await runEmbedServer({ ...(overrides.MODELS === undefined ? process.env : env), ...overrides });
}

/** Values of `--model` for MODELS or MODELS_FILE; undefined if neither is set. */
async function listedModels(env: NodeJS.ProcessEnv): Promise<readonly string[] | undefined> {
  const { MODELS, MODELS_FILE } = env;
  if (!MODELS && !MODELS_FILE) return undefined;
  const { readSettings } = await import("../../inference-image/server/settings.ts");
  const settings = readSettings({ MODELS, MODELS_FILE, ALLOW_ANONYMOUS: "true" });
  return modelsArgument(settings.MODELS).split(",");
}

async function serveTriton(args: ServeArguments): Promise<void> {
  const repository = await tritonRepository(args.model ?? ["generated"]);
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
  const { runTritonEmulator } = await import("../../emulator/triton-emulator.ts");
  await runTritonEmulator(flags);
}
