// Loads the WebAssembly kernel that decodes JPEGs and resamples images: `inference/preprocess/kernel/`, compiled by
// `npm run kernel`. Plain JavaScript, for preprocess-worker.mjs.
import { readFileSync } from "node:fs";

/** Padding after each region, because SIMD reads and writes whole registers. */
const registerBytes = 16;

/**
 * Compiles the kernel. The module can be posted to other threads.
 *
 * @returns {WebAssembly.Module}
 */
export function compileKernel() {
  return new WebAssembly.Module(readFileSync(new URL("./image-kernel.wasm", import.meta.url)));
}

/** Instance of the kernel. Its memory grows to the needs of the largest image. */
export class ImageKernel {
  /** Exported functions, documented in `inference/preprocess/kernel/`. */
  code;
  #free;

  /** @param {WebAssembly.Module} module - from {@link compileKernel} */
  constructor(module) {
    this.code = new WebAssembly.Instance(module).exports;
    this.#free = roundUp(this.code.heapBase());
  }

  /** Current memory; invalid after it has grown. */
  bytes() {
    return new Uint8Array(this.code.memory.buffer);
  }

  /**
   * Lays out memory regions one after the other, outside the kernel's own data.
   *
   * @param {Record<string, number>} sizes - in bytes
   * @param {number} [end] - address of the first region: `end` of an earlier call, or by default the first free address
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
