// Types of image-kernel.mjs.

/** Compiled code of the kernel. It can be handed to other threads. */
export function compileKernel(): WebAssembly.Module;

/** An instance of the kernel with memory of its own, which grows to what the largest image needed. */
export class ImageKernel {
  constructor(module: WebAssembly.Module);
  /** The memory as it is now: it moves when it grows. */
  bytes(): Uint8Array;
  /** Lays out memory from `end` on: one part behind the other. */
  reserve(
    sizes: Readonly<Record<string, number>>,
    end?: number,
  ): { readonly at: Readonly<Record<string, number>>; readonly end: number };
}
