import { type Command, Option } from "commander";
import { modelName } from "../model/model-option.ts";
import { modalityOption } from "../model/named-model.ts";
import { addRunOptions } from "../prepare/run-options.ts";
import { runVerify } from "../prepare/run-verify.ts";
import { verifyTargets } from "../prepare/verify-environments.ts";
import { endpointAddress } from "../shared/endpoint-address.ts";
import { repeated } from "../shared/option-values.ts";
import { protocolOption } from "../shared/protocol-option.ts";
import { addAuthorityOption } from "../shared/trusted-authority.ts";

/** Registers `clipstack verify`. */
export function registerVerify(program: Command): void {
  addAuthorityOption(
    addRunOptions(program.command("verify"))
      .argument("[environment...]", "names of environments, such as single-gpu (default: all)")
      .addOption(
        new Option(
          "--target <target>",
          "simulation: local processes; deployed: the deployed containers or pods",
        )
          .choices(verifyTargets)
          .default("simulation"),
      )
      .option(
        "--url <address>",
        "check an embedding server of any kind (http://host:port), or one environment that Terraform did not deploy: embed-http=http://host:port, onnx-grpc=host:port, with TLS https://host:port; repeatable",
        repeated(endpointAddress),
      )
      .addOption(protocolOption())
      .option(
        "--model <name>",
        "with --url of a server: model of the catalogue or of environments/models",
        modelName,
      )
      .addOption(modalityOption(" of the model; default: all"))
      .option(
        "--no-synth",
        "use the existing output in cdktf.out, as --target deployed always does",
      ),
  )
    .addHelpText(
      "after",
      `
A deployed environment is reached through its own ports, through an ssh tunnel if they are on the loopback interface of its
host, or through the API server of its cluster. Its containers or Kubernetes objects are compared with cdk.tf.json. Nothing is
stopped or changed. If an embed server requires an API key, set INFERENCE_API_KEY.

Examples:
  $ npx clipstack verify single-gpu
  $ npx clipstack verify single-gpu multi-gpu-4x kind-local --port-offset 10000
  $ npx clipstack verify kind-local --weights tiny --seconds 1
  $ npx clipstack verify single-gpu --no-synth --json > record.json
  $ npx clipstack verify single-gpu --target deployed
  $ npx clipstack verify --url http://localhost:7997 --model openclip-vit-b32 --modality image
  $ npx clipstack verify marketplace --url embed-http=http://203.0.113.7:40123

Exit codes: 0 success, 1 a check failed, 2 usage or settings error.`,
    )
    .action(runVerify);
}
