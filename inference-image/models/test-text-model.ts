import { mkdir, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { embeddingTensor, textTowerOf, tokenIds } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { configurationFile } from "../../contract/repository-files.ts";
import { kindsOf, tritonModelName } from "../../contract/triton-models.ts";
import { tinyModel, writeModel } from "../../model-tools/generate/test-model.ts";

/** Writes a text tower for tests: the sine of the token ids times a fixed matrix, so that each text has another embedding. */
export async function writeTextModel(file: string, spec: ModelSpec): Promise<void> {
  const tower = textTowerOf(spec);
  const [input, output] = [tokenIds(tower), embeddingTensor(spec, tower)];
  const [length, width] = [input.dims[0]!, output.dims[0]!];
  const weights = Float32Array.from({ length: length * width }, (_, index) => Math.sin(index));
  const node = (op: string, inputs: readonly string[], result: string, attributes = {}) => ({
    name: result,
    op,
    inputs,
    outputs: [result],
    attributes,
  });
  await writeModel(file, {
    producer: "test",
    opset: 17,
    irVersion: 8,
    graphName: "text",
    inputs: [{ name: input.name, dataType: "INT64", dims: ["batch", length] }],
    outputs: [{ name: output.name, dims: ["batch", width] }],
    nodes: [
      node("Cast", [input.name], "floats", { to: 1 }),
      node("Sin", ["floats"], "sines"),
      node("MatMul", ["sines", "weights"], output.name),
    ],
    initializers: [
      {
        name: "weights",
        dataType: "FLOAT",
        dims: [length, width],
        data: () => [new Uint8Array(weights.buffer)],
      },
    ],
  });
}

/**
 * Writes a model repository for tests: the tiny image tower of each model, and a text tower if the model has one, with their
 * configurations for Triton.
 */
export async function writeTestRepository(
  folder: string,
  specs: readonly ModelSpec[],
): Promise<void> {
  const fileOf = async (name: string) => {
    const file = join(folder, name, "1", "model.onnx");
    await mkdir(dirname(file), { recursive: true });
    return file;
  };
  for (const spec of specs) {
    const kinds = kindsOf(spec).filter((modelKind) => modelKind === "fp32" || modelKind === "text");
    for (const modelKind of kinds) {
      const { path, text } = configurationFile(spec, modelKind, "Written by a test.");
      await mkdir(join(folder, dirname(path)), { recursive: true });
      await writeFile(join(folder, path), text);
    }
    if (spec.towers.image !== undefined) {
      await symlink(await tinyModel(spec), await fileOf(tritonModelName(spec, "fp32")));
    }
    if (spec.towers.text !== undefined) {
      await writeTextModel(await fileOf(tritonModelName(spec, "text")), spec);
    }
  }
}
