import { readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  type ClientBackend,
  type ClientMode,
  clientBackends,
  clientModes,
  clientOptionsFromEnv,
  type InferenceClient,
  modelCatalogue,
  openInferenceClient,
} from "@clipstack/client";
import { type Command, Option } from "commander";
import { CommandError } from "./report.ts";

/** Options of the commands that embed queries. */
export interface QueryOptions {
  readonly backend?: ClientBackend;
  readonly mode?: ClientMode;
  readonly url?: string;
  readonly modelFile?: string;
  readonly textModelFile?: string;
}

export function addQueryOptions(command: Command): Command {
  return command
    .addOption(new Option("--backend <backend>", "kind of service").choices(clientBackends))
    .addOption(
      new Option(
        "--mode <mode>",
        "on this machine, with the service, or (default: auto) on this machine if the service is unavailable",
      ).choices(clientModes),
    )
    .option("--url <url>", "http://host:port of the service")
    .option("--model-file <file>", "ONNX file of the model on this machine")
    .option("--text-model-file <file>", "ONNX file of the model's text tower on this machine");
}

/** Explains the defaults of {@link addQueryOptions}. */
export const queryHelp = `Defaults come from the environment: INFERENCE_BACKEND, INFERENCE_MODE, INFERENCE_SERVICE_URL, TRITON_GRPC_URL, TRITON_MODEL,
INFERENCE_API_KEY, INFERENCE_TEXT_MODEL_PATH.`;

/**
 * Opens the client that options and environment select. The files on this machine are by default those of `clipstack model`.
 *
 * @param note - Receives the reason for which the model on this machine is used instead of a service.
 */
export async function openQueryClient(
  model: string,
  options: QueryOptions,
  note: (text: string) => void,
): Promise<InferenceClient> {
  const fromEnv = clientOptionsFromEnv(process.env);
  const isKnown = modelCatalogue.has(model);
  const file = (tower?: "_text") => (isKnown ? modelFile(model, tower) : undefined);
  return await openInferenceClient({
    ...fromEnv,
    backend: options.backend ?? fromEnv.backend,
    mode: options.mode ?? fromEnv.mode,
    serviceUrl: options.url ?? fromEnv.serviceUrl,
    model,
    modelPath: options.modelFile ?? fromEnv.modelPath ?? file(),
    textModelPath: options.textModelFile ?? fromEnv.textModelPath ?? file("_text"),
    onFallback: (reason) => note(`${reason}: using the model on this machine`),
  });
}

/** Path of a tower in the model repository of the working directory, where `clipstack model` writes it. */
export function modelFile(model: string, tower: "" | "_text" = ""): string {
  return join("model_repository", `${model.replaceAll("-", "_")}${tower}`, "1", "model.onnx");
}

/** Minimum cosine of two embeddings of an image by the same weights. Precisions differ by less, other weights by more. */
const sameWeightsCosine = 0.97;

/**
 * Embeds an image of a table again.
 *
 * @param what - Table and model, for the message.
 * @throws {CommandError} if the client has other weights
 */
export async function requireSameWeights(
  client: InferenceClient,
  image: { readonly path: string; readonly vector: Float32Array },
  what: string,
): Promise<void> {
  const [again] = await client.embed([await readFile(image.path)]);
  const known = image.vector;
  if (again!.length === known.length && cosine(again!, known) >= sameWeightsCosine) return;
  throw new CommandError(
    "failed",
    `${what}: the model of the service or file has other weights than that of the table`,
  );
}

/** Dot product: the cosine of two unit vectors. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
