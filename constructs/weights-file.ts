import { openclipVitB32 } from "../inference-image/src/contract/model-signature.ts";
import { expression } from "./expression.ts";

/** Folder of a model repository that has the weights: version 1 of the model whose file all others share. */
export const weightsFolder = `${openclipVitB32.name}/1`;

/** The weights, in {@link weightsFolder}. */
export const weightsFile = "model.onnx";

/**
 * That there are weights: what to do is said when a plan is made.
 *
 * @param repository - As the settings name it.
 * @param root - What it is relative to, as Terraform is told.
 */
export function weightsCondition(repository: string, root: string) {
  const path = `${repository}/${weightsFolder}/${weightsFile}`;
  return {
    condition: expression(`fileexists("${repository.startsWith("/") ? path : `${root}/${path}`}")`),
    errorMessage: `There are no weights at ${path}: 'npx clipstack model pull' gets them, 'npx clipstack model generate' makes random ones.`,
  };
}
