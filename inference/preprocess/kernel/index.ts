// Decoding of baseline JPEG and resampling of images, compiled to `../image-kernel.wasm` by `npm run kernel`.
// `../jpeg.mjs` and `../resample.mjs` call it.
export { defineTable, TABLE_INPUT_BYTES, tableInput } from "./entropy";
export { convertToRgb, repeatEdges, RGB_OVERSHOOT, upsample } from "./colour";
export {
  horizontal1,
  horizontal2,
  horizontal3,
  horizontal4,
  premultiply,
  vertical,
} from "./resample";
export {
  addBlock,
  clearBlocks,
  DATA_SLACK,
  decodeRow,
  isAtEnd,
  quantisersOf,
  startScan,
  unstuff,
} from "./scan";

/** Address of the first byte after the kernel's own data. */
export function heapBase(): usize {
  return __heap_base;
}
