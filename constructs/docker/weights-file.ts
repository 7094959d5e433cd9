import { openclipVitB32 } from "../../contract/model-signature.ts";
import { expression } from "../expression.ts";

/** Folder of a model repository that has the weights: version 1 of the model whose file all others share. */
export const weightsFolder = `${openclipVitB32.name}/1`;

/** The weights, in {@link weightsFolder}. */
export const weightsFile = "model.onnx";

/**
 * Precondition that the weights exist, with how to get them.
 *
 * @param repository - Model repository, as the settings name it.
 * @param exists - Terraform expression. It refers to another object, because Terraform rejects a constant condition.
 */
export function weightsCondition(repository: string, exists: string) {
  const path = `${repository}/${weightsFolder}/${weightsFile}`;
  return {
    condition: expression(exists),
    errorMessage: `There are no weights at ${path}: 'npx clipstack model pull' gets them, 'npx clipstack model generate' makes random ones.`,
  };
}
