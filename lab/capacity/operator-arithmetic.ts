import { publishedModel } from "../../bench/capacity/service-times.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { architectureOf } from "../../model-tools/generate/architectures.ts";

/** Multiply-accumulates per image by ONNX operator, from the layers of the published model. */
export function arithmeticByOperator(): { readonly [operator: string]: number } {
  const { sizes } = architectureOf(publishedModel, "full");
  if (sizes === undefined) throw new Error(`${publishedModel.name} must be a vision transformer`);
  const { width, layers, mlpWidth, patchSide } = sizes;
  const { input } = imageTowerOf(publishedModel);
  const patches = (input.size.width * input.size.height) / patchSide ** 2;
  const tokens = patches + 1; // the class token
  return {
    Conv: patches * 3 * patchSide ** 2 * width,
    // the projection after the attention is exported as Gemm, all other products as MatMul
    Gemm: layers * tokens * width * width,
    MatMul:
      layers *
        (tokens * width * 3 * width + 2 * tokens * tokens * width + 2 * tokens * width * mlpWidth) +
      width * publishedModel.embedding.width,
  };
}

/** Share of an operator in the arithmetic, in per cent. */
export function arithmeticShare(operator: string): number {
  const all = arithmeticByOperator();
  const sum = Object.values(all).reduce((a, b) => a + b, 0);
  return (100 * (all[operator] ?? 0)) / sum;
}
