import { expression } from "../expression.ts";

/** File name of the weights in version 1 of a model. */
const weightsFile = "model.onnx";

/** Path of the weights of `model` in a model repository. */
export function weightsPath(repository: string, model: string): string {
  return `${repository}/${model}/1/${weightsFile}`;
}

/**
 * Precondition that the weights exist.
 *
 * @param path - Path of the weights, for the error message.
 * @param exists - Terraform expression. It must refer to another object, because Terraform rejects a constant condition.
 */
export function weightsCondition(path: string, exists: string) {
  return {
    condition: expression(exists),
    errorMessage: `There are no weights at ${path}: 'npx clipstack model pull' downloads them, 'npx clipstack model generate' generates random ones.`,
  };
}
