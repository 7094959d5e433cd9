// Removes the chunks of a PNG or WebP file that do not determine its pixels: libvips reads them too, the frames of an animation in quadratic
// time, and decompresses texts of any length. Plain JavaScript, for preprocess-worker.mjs.

/** Maximum number of chunks of a file. */
const maxChunks = 50_000;

/** Chunks of a PNG beside the critical ones, whose names begin with an upper-case letter. */
const pngChunks = ["tRNS"];
const webpChunks = ["VP8 ", "VP8L", "VP8X", "ALPH", "ANIM"];

/**
 * @param {Uint8Array} bytes - PNG or WebP file
 * @param {"png" | "webp"} type
 * @returns {Uint8Array} file with the pixels of the first frame; `bytes` if there is nothing else in it
 * @throws {Error} if it has too many chunks
 */
export function pixelChunks(bytes, type) {
  const isPng = type === "png";
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [first, nameAt, overhead] = isPng ? [8, 4, 12] : [12, 0, 8];
  const kept = [file.subarray(0, first)];
  let hasFrame = false;
  let at = first;
  for (let count = 1; at + 8 <= file.length; count++) {
    if (count > maxChunks) throw new Error(`it has more than ${maxChunks} chunks`);
    const name = file.latin1Slice(at + nameAt, at + nameAt + 4);
    const size = isPng ? file.readUInt32BE(at) : file.readUInt32LE(at + 4);
    const end = at + overhead + size + (isPng ? 0 : size % 2);
    const isFirstFrame = name === "ANMF" && !hasFrame;
    hasFrame ||= isFirstFrame;
    const isKept = isPng
      ? /^[A-Z]/.test(name) || pngChunks.includes(name)
      : isFirstFrame || webpChunks.includes(name);
    if (isKept) kept.push(file.subarray(at, end));
    at = end;
  }
  kept.push(file.subarray(at));
  const length = kept.reduce((sum, part) => sum + part.length, 0);
  if (length === file.length) return bytes;
  const result = Buffer.concat(kept, length);
  if (!isPng) result.writeUInt32LE(result.length - 8, 4);
  return result;
}
