// Loads the WebAssembly kernel that decodes JPEGs and resamples images: `inference/preprocess/kernel/`, compiled by
// `npm run kernel`. Plain JavaScript, for preprocess-worker.mjs.
import { readFileSync } from "node:fs";

/** Bytes behind each reserved part, since SIMD reads and writes whole registers. */
const registerBytes = 16;

/**
 * Compiled code of the kernel. It can be handed to other threads.
 *
 * @returns {WebAssembly.Module}
 */
export function compileKernel() {
  return new WebAssembly.Module(readFileSync(new URL("./image-kernel.wasm", import.meta.url)));
}

/** An instance of the kernel with memory of its own, which grows to what the largest image needed. */
export class ImageKernel {
  /** Exported functions; they are described in `inference/preprocess/kernel/`. */
  code;
  #free;

  /** @param {WebAssembly.Module} module - {@link compileKernel}'s */
  constructor(module) {
    this.code = new WebAssembly.Instance(module).exports;
    this.#free = roundUp(this.code.heapBase());
  }

  /** The memory as it is now: it moves when it grows. */
  bytes() {
    return new Uint8Array(this.code.memory.buffer);
  }

  /**
   * Lays out memory: one part behind the other, so that none overlaps another or what the kernel itself uses.
   *
   * @param {Record<string, number>} sizes - in bytes
   * @param {number} [end] - address that the first part begins at: `end` of an earlier call; by default all memory is free
   */
  reserve(sizes, end = this.#free) {
    /** @type {Record<string, number>} */
    const at = {};
    for (const [name, size] of Object.entries(sizes)) {
      at[name] = end;
      end += roundUp(size) + registerBytes;
    }
    const missing = end - this.code.memory.buffer.byteLength;
    if (missing > 0) this.code.memory.grow(Math.ceil(missing / 65_536));
    return { at, end };
  }
}

/** @param {number} bytes */
export function roundUp(bytes) {
  return Math.ceil(bytes / registerBytes) * registerBytes;
}
