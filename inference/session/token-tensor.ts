import { tokenIds } from "../../contract/model-shapes.ts";
import type { TextTower } from "../../contract/model-spec.ts";
import { elementArrays, type Tensor } from "../../contract/tensor.ts";
import type { EncodedTexts } from "../text/tokenizer.ts";

/** Token ids of one text: `[contextLength]`. */
export type TokenRow = EncodedTexts["ids"];

/** Returns the token ids of each text as a view. */
export function tokenRows({ ids, shape: [count, length] }: EncodedTexts): readonly TokenRow[] {
  return Array.from({ length: count }, (_, row) => ids.subarray(row * length, (row + 1) * length));
}

/** Returns token ids as the input of a text tower: `[B, contextLength]` INT64 or INT32, in new memory. */
export function tokenTensor(tower: TextTower, rows: readonly TokenRow[]): Tensor {
  const { name, dataType, dims } = tokenIds(tower);
  const length = dims[0]!;
  const data = new elementArrays[dataType as "INT64" | "INT32"](rows.length * length);
  // all rows have the tower's type
  for (const [row, ids] of rows.entries())
    (data as Int32Array).set(ids as Int32Array, row * length);
  return { name, dataType, shape: [rows.length, ...dims], data } as Tensor;
}
