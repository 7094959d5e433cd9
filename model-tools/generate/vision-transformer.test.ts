import { InferenceSession, Tensor } from "onnxruntime-node";
import { expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { randomImageTower, smallTransformer } from "./architectures.ts";
import { ensureTinyModel } from "./generate.ts";

/** Reference implementation of the tower, token by token in float64. */

const { width, heads, layers, mlpWidth, patchSide } = smallTransformer(openclipVitB32);
const [imageSide, outputs] = [224, 512];
const headWidth = width / heads;
const grid = imageSide / patchSide;

type Vector = readonly number[];

const weights = new Map(
  randomImageTower(openclipVitB32, "tiny", 1).model.initializers.map((initializer) => [
    initializer.name,
    initializer,
  ]),
);

function weight(name: string): Float32Array {
  // a piece is valid only until the next one is read
  const bytes = Buffer.concat(Array.from(weights.get(name)!.data(), (piece) => Buffer.from(piece)));
  return new Float32Array(new Uint8Array(bytes).buffer);
}

const dot = (a: Vector, b: Vector) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
const add = (a: Vector, b: ArrayLike<number>) => a.map((value, i) => value + b[i]!);

/** `x` times a `[x.length, to]` matrix, plus the bias if there is one. */
function linear(x: Vector, name: string, to: number, bias = true): Vector {
  const matrix = weight(`${name}.weight`);
  const product = Array.from({ length: to }, (_, j) =>
    x.reduce((sum, value, i) => sum + value * matrix[i * to + j]!, 0),
  );
  return bias ? add(product, weight(`${name}.bias`)) : product;
}

function layerNorm(x: Vector, name: string): Vector {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  const scaled = x.map((value) => (value - mean) / Math.sqrt(variance + 1e-5));
  const gain = weight(`${name}.weight`);
  return add(
    scaled.map((value, i) => value * gain[i]!),
    weight(`${name}.bias`),
  );
}

/** Error function by its Taylor series, exact to float64 for the few units that occur here. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; n < 120; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

const gelu = (x: number) => 0.5 * x * (1 + erf(x / Math.SQRT2));

function softmax(x: Vector): Vector {
  const powers = x.map((value) => Math.exp(value - Math.max(...x)));
  const total = powers.reduce((sum, value) => sum + value, 0);
  return powers.map((value) => value / total);
}

function attention(tokens: readonly Vector[], name: string): readonly Vector[] {
  const projected = tokens.map((token) => linear(token, `${name}.in_proj`, 3 * width));
  const part = (token: Vector, which: 0 | 1 | 2, head: number) => {
    const start = which * width + head * headWidth;
    return token.slice(start, start + headWidth);
  };
  return projected.map((token) => {
    const mixed = Array.from({ length: heads }, (_, head) => {
      const scores = projected.map(
        (other) => dot(part(token, 0, head), part(other, 1, head)) / Math.sqrt(headWidth),
      );
      const shares = softmax(scores);
      return Array.from({ length: headWidth }, (_unused, i) =>
        dot(
          shares,
          projected.map((other) => part(other, 2, head)[i]!),
        ),
      );
    });
    return linear(mixed.flat(), `${name}.out_proj`, width);
  });
}

/** The 49 patches as flat channel, row, column, each projected by the convolution. */
function patches(image: Float32Array): readonly Vector[] {
  const kernels = weight("conv1.weight");
  const size = 3 * patchSide * patchSide;
  return Array.from({ length: grid * grid }, (_, patch) => {
    const [top, left] = [Math.floor(patch / grid) * patchSide, (patch % grid) * patchSide];
    const pixels = Array.from({ length: size }, (_unused, i) => {
      const [channel, row, column] = [
        Math.floor(i / patchSide ** 2),
        Math.floor(i / patchSide) % patchSide,
        i % patchSide,
      ];
      return image[(channel * imageSide + top + row) * imageSide + left + column]!;
    });
    return Array.from({ length: width }, (_unused, out) =>
      pixels.reduce((sum, value, i) => sum + value * kernels[out * size + i]!, 0),
    );
  });
}

function reference(image: Float32Array): Vector {
  const embedding = weight("class_and_positional_embedding");
  const sequence = [Array<number>(width).fill(0), ...patches(image)];
  let tokens: readonly Vector[] = sequence.map((token, i) =>
    layerNorm(add(token, embedding.subarray(i * width, (i + 1) * width)), "ln_pre"),
  );
  for (let layer = 0; layer < layers; layer++) {
    const name = `resblocks.${layer}`;
    const attended = attention(
      tokens.map((token) => layerNorm(token, `${name}.ln_1`)),
      `${name}.attn`,
    );
    tokens = tokens.map((token, i) => {
      const residual = add(token, attended[i]!);
      const hidden = linear(layerNorm(residual, `${name}.ln_2`), `${name}.mlp.c_fc`, mlpWidth);
      return add(residual, linear(hidden.map(gelu), `${name}.mlp.c_proj`, width));
    });
  }
  const projection = weight("proj");
  const classToken = layerNorm(tokens[0]!, "ln_post");
  return Array.from({ length: outputs }, (_, j) =>
    classToken.reduce((sum, value, i) => sum + value * projection[i * outputs + j]!, 0),
  );
}

test("the graph computes the same embeddings as open_clip's image tower", async () => {
  const image = Float32Array.from(
    { length: 3 * imageSide * imageSide },
    (_, i) => ((i * 7_919) % 401) / 100 - 2,
  );
  const session = await InferenceSession.create(await ensureTinyModel(defaultModel), {
    intraOpNumThreads: 1,
  });
  const { embedding } = await session.run({
    image: new Tensor("float32", image, [1, 3, imageSide, imageSide]),
  });
  await session.release();

  const expected = reference(image);
  const largest = Math.max(...expected.map(Math.abs));
  const difference = Math.max(
    ...expected.map((value, i) => Math.abs(value - (embedding!.data[i] as number))),
  );
  expect(largest).toBeGreaterThan(0.1);
  expect(difference / largest).toBeLessThan(1e-5);
});

test("the full-size tower has the shapes of ViT-B/32", () => {
  const dims = new Map(
    randomImageTower(openclipVitB32, "full", 1).model.initializers.map((item) => [
      item.name,
      item.dims,
    ]),
  );
  expect(dims.get("conv1.weight")).toEqual([768, 3, 32, 32]);
  expect(dims.get("class_and_positional_embedding")).toEqual([50, 768]);
  expect(dims.get("resblocks.11.attn.in_proj.weight")).toEqual([768, 2304]);
  expect(dims.get("resblocks.11.mlp.c_fc.weight")).toEqual([768, 3072]);
  expect(dims.get("proj")).toEqual([768, 512]);
});
