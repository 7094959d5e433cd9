import { basename, dirname, join, relative, resolve } from "node:path";
import { stringify } from "yaml";
import type { Scenario } from "../../bench/capacity/scenario.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { UserError } from "../../contract/user-error.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import { environmentNameError } from "../../stacks/settings/environment-files.ts";
import { loadModels, modelFolder } from "../../stacks/settings/model-files.ts";
import { parseEnvironment } from "../../stacks/settings/settings.ts";
import { writeNewFile } from "../shared/write-output.ts";
import { scenarioLine } from "./capacity-text.ts";

/** Writes the environment that a prediction is of, with everything else at its default. Never overwrites a file. */
export function writeEnvironment(path: string, scenario: Scenario, model = defaultModel.name) {
  const file = resolve(path);
  const name = basename(file, ".yaml");
  if (basename(file) === name) throw new UserError(`--write must end in .yaml, got '${path}'`);
  const nameError = environmentNameError(name);
  if (nameError !== undefined) throw new UserError(`--write: ${nameError}`);
  if (scenario.payload === "uint8") {
    throw new UserError("--write requires --payload jpeg, fp32 or json: no stack serves uint8");
  }
  const settings = settingsOf(scenario, model);
  const schema = join(packageFolder, "stacks/schemas", `${settings.stack}.schema.json`);
  const text = [
    `# yaml-language-server: $schema=${relative(dirname(file), schema)}`,
    "#",
    `# Plan of 'clipstack capacity': ${scenarioLine(scenario)}`,
    "# All other settings have their defaults: docs/settings.md.",
    "",
    stringify(settings),
  ].join("\n");
  parseEnvironment(name, file, text, loadModels(modelFolder(dirname(file))));
  writeNewFile(file, text, `--write ${path}`);
}

/** Only the backend of the plan is deployed: another Triton server would share its GPUs. */
function settingsOf({ device, gpus, cores, topology, backend }: Scenario, model: string) {
  const common = {
    models: [{ name: model, modalities: ["image"] }],
    host: { gpu: device.name, count: gpus, ...(cores !== undefined && { cores }) },
  };
  if (gpus > 1 && topology === "per-gpu") {
    return { stack: "multi-gpu", topology, ...common, perGpu: { backend } };
  }
  const isTensorRt = backend === "tensorrt";
  const upstream = isTensorRt ? "triton-trt" : "triton-onnx";
  const tritons = { [isTensorRt ? "tritonOnnx" : "tritonTrt"]: { enabled: false } };
  return gpus > 1
    ? { stack: "multi-gpu", topology, ...common, embed: { upstream }, ...tritons }
    : { stack: "single-gpu", ...common, embed: { backend: "triton", upstream }, ...tritons };
}
