/**
 * Returns a NumPy file of a matrix.
 *
 * @param chunks - Rows in order, row-major: float32, or the bits of half-precision values.
 */
export function npyBytes(
  chunks: readonly (Float32Array | Uint16Array)[],
  width: number,
): Uint8Array {
  const rows = chunks.reduce((sum, { length }) => sum + length / width, 0);
  const type = chunks[0] instanceof Uint16Array ? "<f2" : "<f4";
  const header = `{'descr': '${type}', 'fortran_order': False, 'shape': (${rows}, ${width}), }`;
  // magic, version and length take 10 bytes; the data begins at a multiple of 64
  const length = Math.ceil((10 + header.length + 1) / 64) * 64 - 10;
  const head = Buffer.alloc(10 + length, " ");
  head.write("\x93NUMPY\x01\x00", "latin1");
  head.writeUInt16LE(length, 8);
  head.write(header, 10, "latin1");
  head[head.length - 1] = 0x0a;
  const bytes = chunks.map(
    (chunk) => new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength),
  );
  return Buffer.concat([head, ...bytes]);
}
