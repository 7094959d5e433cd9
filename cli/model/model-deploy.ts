import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { type TunableKind, tunableKinds } from "../../contract/deployed-model-config.ts";
import { tensorrtFile } from "../../contract/model-config.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { kindModality } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import {
  type DeployedVersion,
  deployVersion,
} from "../../model-tools/repository/deploy-version.ts";
import { apiKeyVariable } from "../cluster/deployed-environments.ts";
import { httpAddress } from "../shared/endpoint-address.ts";
import { wholeNumber } from "../shared/option-values.ts";
import { describeProbes, type ProbeResult, startProbes } from "./deploy-probes.ts";
import { type DeployedToHost, deployToHost } from "./deploy-to-host.ts";
import { printResult } from "./model-output.ts";
import { modelArgument, namedModel } from "./named-model.ts";

interface DeployArguments {
  readonly file: string;
  readonly environment?: string;
  readonly folder?: string;
  readonly url?: string;
  readonly gateway?: string;
  readonly modelKind?: TunableKind;
  readonly timeoutSeconds: number;
  readonly json?: true;
}

/** Registers `clipstack model deploy`, which replaces the weights that a running Triton serves. */
export function registerModelDeploy(model: Command): void {
  model
    .command("deploy")
    .description(
      "add a version of a model to a deployed environment or the repository of a running Triton: it is loaded beside the served version, gateways switch to it once it is ready, and then it replaces the other, whose folder stays; meanwhile probes measure how many requests fail",
    )
    .argument("[model]", modelArgument)
    .requiredOption(
      "--file <file>",
      `ONNX file of the new version; ${tensorrtFile} if the configuration names it`,
    )
    .option(
      "--environment <name>",
      "environment on a Docker host, deployed with tritonOnnx.modelVersions",
    )
    .option(
      "--folder <folder>",
      "without --environment: model repository that the Triton server has mounted",
    )
    .option(
      "--url <url>",
      "without --environment: http://host:port of a Triton server with --model-control-mode=explicit",
      baseUrl,
    )
    .option(
      "--gateway <url>",
      "without --environment: http://host:port of a gateway, which is probed too",
      baseUrl,
    )
    .addOption(
      new Option(
        "--model-kind <kind>",
        "modelKind of the model; default: fp32, or text if the model has no image tower",
      ).choices(tunableKinds),
    )
    .option(
      "--timeout-seconds <n>",
      "maximum time until the version is served",
      wholeNumber(1, 99_999),
      600,
    )
    .option("--json", "print the result as JSON")
    .addHelpText(
      "after",
      `
Five probes per second go to each gateway (with the key in ${apiKeyVariable}, if it requires one) and directly to each Triton server,
whose releases promise different things (model_repository/README.md), from 2 s before to 2 s after the deployment.

With --url, the variable ${modelControlKeyVariable} contains the key of the model control API, if the Triton server requires one.

Examples:
  $ npx clipstack model deploy dinov2-small --file new.onnx --environment search
  $ npx clipstack model deploy openclip-vit-b32 --file new.onnx --folder /srv/models --url http://127.0.0.1:8000

Exit codes: 0 if the version is served; 2 for wrong usage, or if it is not served, and then the previous version stays in service.`,
    )
    .action(deploy);
}

async function deploy(name: string | undefined, args: DeployArguments): Promise<void> {
  const spec = namedModel(name);
  const modelKind = args.modelKind ?? (spec.towers.image === undefined ? "text" : "fp32");
  const modality = kindModality(modelKind);
  if (spec.towers[modality] === undefined) {
    throw new UserError(
      `--model-kind ${modelKind} requires a model with ${modality}, got ${spec.name}`,
    );
  }
  const options = {
    spec,
    modelKind,
    file: resolve(args.file),
    timeoutSeconds: args.timeoutSeconds,
  };
  const { environment } = args;
  if (environment !== undefined && (args.folder ?? args.url ?? args.gateway) !== undefined) {
    throw new UserError("--environment must not be given with --folder, --url or --gateway");
  }
  if (environment !== undefined && modelKind !== "fp32" && modelKind !== "text") {
    throw new UserError(`--model-kind must be fp32 or text with --environment, got ${modelKind}`);
  }
  const destination = environment === undefined ? serverOf(args) : { environment };
  const probes = await startProbes(spec, modelKind, { ...args, ...destination });
  const deployment: Promise<DeployedVersion & Partial<DeployedToHost>> =
    "environment" in destination
      ? deployToHost({ ...options, ...destination })
      : deployVersion({ ...options, ...destination, key: process.env[modelControlKeyVariable] });
  const [deployed] = await Promise.allSettled([deployment]);
  const probed = await probes.stop();
  if (deployed.status === "rejected") {
    for (const result of probed) console.error(describeProbes(result));
    const error: Error = deployed.reason;
    throw new UserError(error.message.replace(/^\[\w+\] /, ""), { cause: error });
  }
  report(args, destination, deployed.value, probed);
}

function report(
  args: DeployArguments,
  destination: { readonly environment: string } | { readonly repository: string },
  deployed: DeployedVersion & Partial<DeployedToHost>,
  probes: readonly ProbeResult[],
): void {
  const place =
    "environment" in destination ? destination : { folder: displayPath(destination.repository) };
  const { model, version, served, unchanged = [] } = deployed;
  const others = unchanged.length === 0 ? "" : `; version 1 stays in ${unchanged.join(", ")}`;
  const versions = served.length === 1 ? "" : `; versions ${served.join(", ")} are served`;
  printResult(args, { ...place, ...deployed, probes }, () => [
    `${model}: version ${version} is served after ${deployed.seconds.toFixed(1)} s${versions}${others}`,
    ...probes.map(describeProbes),
  ]);
}

/** Triton and repository of the command. */
function serverOf({ folder, url }: DeployArguments) {
  if (folder === undefined || url === undefined) {
    throw new UserError("--environment must be given, or both --folder and --url");
  }
  return { repository: resolve(folder), url };
}

const baseUrl = (text: string) => httpAddress(text, "a server");
