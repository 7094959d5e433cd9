import { dirname } from "node:path";
import type { ModelSpec, ModelTower } from "../../contract/model-spec.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { UserError } from "../../contract/user-error.ts";
import { nodeProgram } from "../../model-tools/files/folders.ts";
import { modelInfo } from "../../model-tools/files/model-info.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import type { ReferenceModel } from "../../target/reference/reference.ts";
import type { VerifyEvent } from "../../verify/check-run.ts";
import { tokenizerProblem, towerFile } from "../model/model-option.ts";

/** Command that starts the server: program, arguments, server file last. */
export const simulationServer: readonly string[] = [
  process.execPath,
  ...nodeProgram("inference-image/main"),
];

export function requireOneTower({ name, towers }: ModelSpec, weights: string): void {
  if (weights === "tiny" || weights === "generated") return;
  if (towers.image === undefined || towers.text === undefined) return;
  throw new UserError(
    `--weights must be tiny or generated, because a file contains one tower and ${name} has two, got '${weights}'`,
  );
}

type OnPhase = (event: VerifyEvent & { readonly kind: "phase" }) => void;

/**
 * Returns the ONNX file that `--weights` selects for a tower, generated if missing, and its description for the record.
 *
 * @param own - Model file of the environment, used for `generated`; absent if it is not on this machine.
 */
export async function chooseModel(
  { spec, modality }: ModelTower,
  weights: string,
  onEvent: OnPhase,
  own?: string,
): Promise<ReferenceModel> {
  const isOwn =
    weights === "generated" && own !== undefined && own !== modelFile(spec, fp32Kinds[modality]);
  const file = isOwn ? own : await writtenFile({ spec, modality }, weights, onEvent);
  const problem = modality === "text" && (await tokenizerProblem(spec, dirname(file)));
  if (problem) throw new UserError(`${spec.name} cannot embed texts: ${problem}`);
  const { sha256, source, architecture, seed, ...info } = await modelInfo(file);
  const name = !isOwn && (weights === "tiny" || weights === "generated") ? weights : file;
  return {
    spec,
    modality,
    file,
    subject: {
      name,
      spec: spec.name,
      modality,
      sha256,
      source,
      weights: info.weights,
      architecture,
      seed,
      precision: info.precision,
      derivedFromSha256: info.derivedFrom,
      toolVersions: info.versions,
    },
  };
}

function writtenFile(tower: ModelTower, weights: string, onEvent: OnPhase): Promise<string> {
  const { spec } = tower;
  return towerFile(tower, weights, (percent) =>
    onEvent({ kind: "phase", text: `generate ${spec.name}, ${percent} %` }),
  );
}
