import { closeSync, openSync, readSync, statSync } from "node:fs";
import { z } from "zod";

const header = z.record(
  z.string(),
  z.looseObject({
    dtype: z.string(),
    shape: z.array(z.int().min(0)),
    data_offsets: z.tuple([z.int().min(0), z.int().min(0)]),
  }),
);

/** Largest accepted header in bytes, the limit of the format's own reader. */
const maxHeaderBytes = 100_000_000;

/** File of the safetensors format: https://huggingface.co/docs/safetensors. Tensors are read when they are requested. */
export class Safetensors {
  readonly #path: string;
  readonly #tensors: z.infer<typeof header>;
  /** Position of the first value in the file. */
  readonly #start: number;

  /** @throws {Error} with one line if the file is not complete */
  constructor(path: string) {
    this.#path = path;
    const { size } = statSync(path);
    const length = size < 8 ? 0 : Number(bytesOf(path, 0, 8).readBigUInt64LE());
    const invalid = (cause?: unknown) =>
      new Error(`${path}: must be a complete safetensors file`, { cause });
    if (length < 2 || length > maxHeaderBytes || 8 + length > size) throw invalid();
    try {
      const { __metadata__: _metadata, ...tensors } = JSON.parse(
        bytesOf(path, 8, length).toString("utf8"),
      ) as Record<string, unknown>;
      this.#tensors = header.parse(tensors);
    } catch (cause) {
      throw invalid(cause);
    }
    this.#start = 8 + length;
    const ends = Object.values(this.#tensors).map(({ data_offsets: [, end] }) => end);
    if (Math.max(0, ...ends) + this.#start > size) throw invalid();
  }

  /** Shape of a tensor; undefined if there is none. */
  shape(name: string): readonly number[] | undefined {
    return this.#tensors[name]?.shape;
  }

  /**
   * Values of a float32 tensor, row-major.
   *
   * @throws {Error} with one line if it is missing, or has another shape or type
   */
  floats(name: string, dims: readonly number[]): Float32Array {
    const found = this.#tensors[name];
    const expected = `${this.#path}: '${name}' must be F32 [${dims.join(", ")}]`;
    if (found === undefined) throw new Error(`${expected}, got none`);
    const { dtype, shape, data_offsets: offsets } = found;
    const bytes = dims.reduce((product, dim) => product * dim, 4);
    if (dtype !== "F32" || shape.join() !== dims.join() || offsets[1] - offsets[0] !== bytes) {
      throw new Error(`${expected}, got ${dtype} [${shape.join(", ")}]`);
    }
    const content = bytesOf(this.#path, this.#start + offsets[0], bytes);
    return new Float32Array(Uint8Array.from(content).buffer);
  }
}

function bytesOf(path: string, position: number, length: number): Buffer {
  const handle = openSync(path, "r");
  try {
    const buffer = Buffer.alloc(length);
    readSync(handle, buffer, 0, length, position);
    return buffer;
  } finally {
    closeSync(handle);
  }
}
