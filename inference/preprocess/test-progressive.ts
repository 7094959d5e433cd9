/** The segment of a JPEG that begins with `marker` (ITU-T T.81, B.1.1.4). */
function segment(marker: number, body: readonly number[]): number[] {
  const length = body.length + 2;
  return [0xff, marker, length >> 8, length & 0xff, ...body];
}

/** A Huffman table with one symbol, whose code is the single bit 0. */
function oneSymbolTable(kind: number, symbol: number): number[] {
  return segment(0xc4, [kind, 1, ...new Array<number>(15).fill(0), symbol]);
}

/**
 * A grey progressive JPEG of a single colour, small but slow to decode: after the scan of DC values come pairs of scans of all AC
 * coefficients, a first one and a refinement. All of them are zero, yet a decoder visits each in every refinement. The
 * progression is consistent, so decoders report no warning.
 */
export function slowProgressiveJpeg(width: number, height: number, scans: number): Buffer {
  const blocks = Math.ceil(width / 8) * Math.ceil(height / 8);
  // bit 0 for each block: its DC value is that of the previous block
  const dc = Buffer.alloc(Math.ceil(blocks / 8));
  if (blocks % 8 > 0) dc[dc.length - 1] = 0xff >> (blocks % 8);
  const ac = zeroRuns(blocks);
  const scan = (bits: number) => Buffer.from(segment(0xda, [1, 1, 0x00, 1, 63, bits]));
  const [first, refinement] = [scan(0x01), scan(0x10)];
  return Buffer.concat([
    Buffer.from([
      ...[0xff, 0xd8],
      ...segment(0xdb, [0, ...new Array<number>(64).fill(16)]),
      ...segment(0xc2, [8, height >> 8, height & 255, width >> 8, width & 255, 1, 1, 0x11, 0]),
      ...oneSymbolTable(0x00, 0x00),
      ...oneSymbolTable(0x10, 0xe0),
      ...segment(0xda, [1, 1, 0x00, 0, 0, 0x00]),
    ]),
    dc,
    ...Array.from({ length: scans - 1 }, (_, at) =>
      Buffer.concat([at % 2 === 0 ? first : refinement, ac]),
    ),
    Buffer.from([0xff, 0xd9]),
  ]);
}

/** Entropy-coded runs of blocks without AC coefficients: code 0, then 14 bits of the length less 2^14 (ITU-T T.81, G.1.2.2). */
function zeroRuns(blocks: number): Buffer {
  let text = "";
  // the last run may be longer than the image
  for (let left = blocks; left > 0; left -= 2 ** 14) text += "0".repeat(15);
  const bytes = text.padEnd(Math.ceil(text.length / 8) * 8, "1").match(/.{8}/g)!;
  return Buffer.from(bytes.map((bits) => Number.parseInt(bits, 2)));
}
