import { type OnnxFile, readOnnx } from "./onnx-reader.ts";
import type { OnnxModel } from "./onnx-writer.ts";
import { withPixelInput } from "./pixel-input.ts";
import { recogniseTower } from "./recognise-tower.ts";
import { type TowerGraphOptions, towerGraph } from "./tower-graph.ts";

/** Bumped when the same file would give another form: forms that were kept are made anew. */
export const rewriterVersion = 4;

/** What is different from the file that a form was made of. */
export const formParts = [
  /** The input is UINT8 [N, 224, 224, 3]. */
  "uint8-input",
  /** The normalisation of the pixels is in the weights of the first layer. */
  "folded-normalisation",
  /** The last block computes the class token only. */
  "class-token-last",
  /** Operators that only ONNX Runtime has. */
  "fused-operators",
  /** The matrices are 8-bit integers. */
  "int8",
] as const;
export type FormPart = (typeof formParts)[number];

/** One way to compute what a model file computes. */
export interface ModelForm {
  readonly model: OnnxModel;
  readonly parts: readonly FormPart[];
}

export type FormOptions = Pick<TowerGraphOptions, "operators" | "precision">;

/**
 * The forms that a model file can have, the fastest first. The first ones believe things of the file that only a comparison
 * with it shows to be true; the last, with another input and nothing else, is exact for any graph.
 *
 * @returns `unlike` says why the file was not recognised as an image tower.
 * @throws {Error} one line, when the file is not ONNX, is cut short, or cannot be copied.
 */
export function* modelForms(path: string, options: FormOptions): Generator<ModelForm> {
  const file = readOnnx(path);
  const found = recogniseTower(file);
  // the graph that is built does not divide by the length
  if ("tower" in found && !found.tower.unitLength) {
    const extra: FormPart[] = [];
    if (options.operators === "onnxruntime") extra.push("fused-operators");
    if (options.precision === "int8") extra.push("int8");
    for (const heads of found.tower.heads) {
      yield {
        model: towerGraph(found.tower, { ...options, heads }),
        parts: ["uint8-input", "folded-normalisation", "class-token-last", ...extra],
      };
    }
  }
  if (options.precision === "fp32") yield pixelForm(file);
}

function pixelForm(file: OnnxFile): ModelForm {
  const { model, normalisation } = withPixelInput(file);
  return {
    model,
    parts: normalisation === "folded" ? ["uint8-input", "folded-normalisation"] : ["uint8-input"],
  };
}
