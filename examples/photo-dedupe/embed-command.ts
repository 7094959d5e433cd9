import { type Command, Option } from "commander";
import { clientOptionsFromEnv } from "../../inference-image/src/client/client-env.ts";
import {
  type ClientBackend,
  type ClientMode,
  clientBackends,
  clientModes,
  type InferenceClientOptions,
  openInferenceClient,
} from "../../inference-image/src/client/inference-client.ts";
import { databaseOption, integerOf, untilInterrupt, withDatabase } from "./command-options.ts";
import { DedupeError } from "./dedupe-error.ts";
import { type EmbedResult, embed } from "./embed.ts";
import { durationText, openProgress } from "./progress.ts";
import { shownJson } from "./shown-name.ts";

interface EmbedArguments {
  readonly db: string;
  readonly backend?: ClientBackend;
  readonly mode?: ClientMode;
  readonly url?: string;
  readonly grpcUrl?: string;
  readonly tritonModel?: string;
  readonly modelFile?: string;
  readonly concurrency: number;
  readonly wait: number;
  readonly replace: boolean;
  readonly json: boolean;
}

/** `clipstack-dedupe embed` */
export function registerEmbed(program: Command): void {
  program
    .command("embed")
    .description("embed the photos that have no embedding yet, on this machine or with a service")
    .addOption(databaseOption())
    .addOption(
      new Option("--backend <backend>", "what the service is; default: embed").choices(
        clientBackends,
      ),
    )
    .addOption(
      new Option(
        "--mode <mode>",
        "where: on this machine, with the service, or (default: auto) on this machine when the service cannot be reached",
      ).choices(clientModes),
    )
    .option("--url <url>", "http://host:port of the service")
    .option("--grpc-url <host:port>", "of a Triton, for triton_grpc")
    .option("--triton-model <name>", "model that a Triton is asked for")
    .option("--model-file <file>", "ONNX file of the model on this machine")
    .option("--concurrency <n>", "requests in flight, of 32 images each", integerOf(1, 64), 2)
    .option(
      "--wait <seconds>",
      "how long a service that is away is waited for",
      integerOf(0, 86_400),
      600,
    )
    .option("--replace", "embed photos again that were embedded with another model", false)
    .option("--json", "print the result as JSON", false)
    .addHelpText(
      "after",
      `
Without an option its environment variable holds: INFERENCE_BACKEND, INFERENCE_MODE, INFERENCE_SERVICE_URL,
TRITON_GRPC_URL, TRITON_MODEL, INFERENCE_API_KEY. A run that was stopped or killed goes on where it was.

Examples:
  $ npx clipstack-dedupe embed --mode local
  $ npx clipstack-dedupe embed --mode remote --url http://gpu-host:8002
  $ npx clipstack-dedupe embed --backend triton_grpc --url http://gpu-host:8010 --mode remote`,
    )
    .action(embedCommand);
}

async function embedCommand(args: EmbedArguments): Promise<void> {
  const progress = openProgress();
  const options = clientOptions(args);
  const result = await untilInterrupt((signal) =>
    withDatabase(args.db, async (database) => {
      const client = await openInferenceClient({
        ...options,
        onFallback: (reason) => progress.note(`${reason}: using the model on this machine`),
      });
      try {
        return await embed(database, {
          client,
          where: whereOf(options),
          concurrency: args.concurrency,
          waitSeconds: args.wait,
          otherModel: args.replace ? "replace" : "refuse",
          progress,
          onSkipped: ({ path, problem }) => progress.note(`${path}: ${problem}`),
          signal,
        });
      } finally {
        await client.close();
      }
    }),
  );
  if (args.json) {
    const { model, ...counts } = result;
    console.log(shownJson({ ...counts, weights: model.weights }));
  } else for (const line of embedText(result)) console.log(line);
  if (result.stopped) {
    throw new DedupeError("failed", "stopped: run the same command again to go on");
  }
}

function clientOptions(args: EmbedArguments): InferenceClientOptions {
  const fromEnv = clientOptionsFromEnv(process.env);
  return {
    ...fromEnv,
    backend: args.backend ?? fromEnv.backend,
    mode: args.mode ?? fromEnv.mode,
    serviceUrl: args.url ?? fromEnv.serviceUrl,
    tritonGrpcUrl: args.grpcUrl ?? fromEnv.tritonGrpcUrl,
    model: args.tritonModel ?? fromEnv.model,
    modelPath: args.modelFile,
  };
}

function whereOf({ mode, backend, serviceUrl }: InferenceClientOptions): string {
  if (mode === "local") return "this machine";
  return serviceUrl === undefined ? `the ${backend} service` : `${backend} at ${serviceUrl}`;
}

/** What was embedded, for people. */
export function embedText(result: EmbedResult): readonly string[] {
  const { embedded, copied, failed, remaining, model, imagesPerSecond } = result;
  const rate = embedded > 0 ? ` (${imagesPerSecond.toFixed(1)} images/s` : "";
  const took = embedded > 0 ? `, ${durationText(embedded / imagesPerSecond)})` : "";
  const lines = [
    `${embedded} photos embedded${rate}${took}, ${copied} are copies of embedded ones, ` +
      `${failed} cannot be embedded, ${remaining} remain`,
  ];
  if (model.weights === "random") lines.push(randomWeightsText);
  return lines;
}

/** Said wherever figures of such a model are shown. */
export const randomWeightsText =
  "the model has random weights: its groups show that everything works, not how well photos are told apart";
