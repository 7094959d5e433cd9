/** Layout of a JPEG with random coefficients. */
export interface JpegShape {
  readonly width: number;
  readonly height: number;
  /** Sampling factors of each component, horizontally × 16 + vertically. One component is grey. */
  readonly sampling: readonly number[];
  /** MCUs between restarts; 0 for no restarts. */
  readonly interval: number;
  /** Maximum number of non-zero coefficients per block. */
  readonly density: number;
  readonly seed: number;
  /** Number of Huffman tables, 2 to 8: half of them for DC, half for AC. 1 is a table for DC and none for AC. */
  readonly tables?: number;
  /** Marker of the frame. */
  readonly frame?: "SOF0" | "SOF1";
}

/** Pseudo-random numbers below 2^32. */
export function randomNumbers(seed: number): () => number {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

/** Code lengths of symbols: short ones for the first, as long as they can be for most. */
function codesOf(symbols: readonly number[]): {
  readonly counts: readonly number[];
  readonly codes: ReadonlyMap<number, readonly [number, number]>;
} {
  const counts = new Array<number>(16).fill(0);
  const codes = new Map<number, readonly [number, number]>();
  let [code, length] = [0, 0];
  for (const [index, symbol] of symbols.entries()) {
    const next = index < 4 ? 4 : index < 20 ? 7 : index < 60 ? 11 : 16;
    code <<= next - length;
    length = next;
    codes.set(symbol, [code++, length]);
    counts[length - 1]! += 1;
  }
  return { counts, codes };
}

const sizes = [3, 2, 1, 4, 0, 5, 6, 7, 8, 9, 10, 11];
const runs = Array.from({ length: 16 }, (_, run) => run);
const acSymbols = [
  0,
  ...sizes.slice(0, 4).flatMap((size) => (size === 0 ? [] : runs.map((run) => run * 16 + size))),
  0xf0,
  ...[5, 6, 7, 8, 9, 10].flatMap((size) => runs.map((run) => run * 16 + size)),
];

/** Huffman table with the same symbols as the others and different codes. */
function tableOf(all: readonly number[], id: number) {
  const start = (id * 5) % all.length;
  const symbols = [...all.slice(start), ...all.slice(0, start)];
  return { symbols, ...codesOf(symbols) };
}
type Table = ReturnType<typeof tableOf>;

const dcTables = [0, 1, 2, 3].map((id) => tableOf(sizes, id));
const acTables = [0, 1, 2, 3].map((id) => tableOf(acSymbols, id));

/** Returns a baseline JPEG with random coefficients: noise of all frequencies, in any subsampling, with restarts. */
export function randomJpeg(shape: JpegShape): Buffer {
  const { width, height, interval, density } = shape;
  const random = randomNumbers(shape.seed);
  const { sampling, tables = 2, frame = "SOF0" } = shape;
  const components = [...sampling.keys()];
  // one component alone is not interleaved: an MCU is one block, whatever its factors
  const factors = sampling.length === 1 ? [0x11] : sampling;
  const across = Math.max(...factors.map((factor) => factor >> 4));
  const down = Math.max(...factors.map((factor) => factor & 15));
  const blocks = components.flatMap((component) =>
    new Array<number>((factors[component]! >> 4) * (factors[component]! & 15)).fill(component),
  );
  const [dcCount, acCount] = [Math.ceil(tables / 2), Math.floor(tables / 2)];
  /** Destination of a component's table; of four, the first is not used. */
  const idOf = (component: number, count: number) =>
    count === 4 ? component + 1 : component % Math.max(count, 1);
  const data: number[] = [];
  let [bits, free] = [0, 8];
  const byte = (value: number) => data.push(...(value === 0xff ? [0xff, 0] : [value]));
  const put = (value: number, count: number) => {
    for (let bit = count - 1; bit >= 0; bit--) {
      bits = (bits << 1) | ((value >> bit) & 1);
      if (--free > 0) continue;
      byte(bits);
      [bits, free] = [0, 8];
    }
  };
  const number = (table: Table, zeros: number, value: number) => {
    const size = 32 - Math.clz32(Math.abs(value));
    put(...table.codes.get(zeros * 16 + size)!);
    put(value < 0 ? value + (1 << size) - 1 : value, size);
  };
  const levels = [0, 0, 0];
  const block = (component: number) => {
    const dc = dcTables[idOf(component, dcCount)]!;
    const ac = acTables[idOf(component, acCount)]!;
    const level = (random() % 121) - 60;
    number(dc, 0, level - levels[component]!);
    levels[component] = level;
    let zeros = 0;
    const amount = density === 0 ? 0 : random() % (density + 1);
    for (let place = 1; place < 64; place++) {
      const value = random() % 64 < amount ? (random() % 31) - 15 : 0;
      if (value === 0) {
        zeros++;
        continue;
      }
      for (; zeros > 15; zeros -= 16) put(...ac.codes.get(0xf0)!);
      number(ac, zeros, value);
      zeros = 0;
    }
    if (zeros > 0) put(...ac.codes.get(0)!);
  };
  const flush = () => {
    while (free < 8) put(1, 1);
  };
  const mcus = Math.ceil(width / (8 * across)) * Math.ceil(height / (8 * down));
  for (let mcu = 0; mcu < mcus; mcu++) {
    if (interval > 0 && mcu > 0 && mcu % interval === 0) {
      flush();
      data.push(0xff, 0xd0 + ((mcu / interval - 1) % 8));
      levels.fill(0);
    }
    for (const component of blocks) block(component);
  }
  flush();

  const segment = (marker: number, body: readonly number[]) => [
    0xff,
    marker,
    (body.length + 2) >> 8,
    (body.length + 2) & 0xff,
    ...body,
  ];
  const quantisers = Array.from({ length: 64 }, () => 1 + (random() % 24));
  const definition = (kind: number, { counts, symbols }: Table) =>
    segment(0xc4, [kind, ...counts, ...symbols]);
  return Buffer.from([
    0xff,
    0xd8,
    ...segment(0xe0, [...Buffer.from("JFIF\0"), 1, 1, 0, 0, 1, 0, 1, 0, 0]),
    ...segment(0xdb, [0, ...quantisers]),
    ...segment(frame === "SOF0" ? 0xc0 : 0xc1, [
      ...[8, height >> 8, height & 0xff, width >> 8, width & 0xff, components.length],
      ...components.flatMap((component) => [component + 1, sampling[component]!, 0]),
    ]),
    ...dcTables.slice(0, dcCount).flatMap((table, id) => definition(id, table)),
    ...acTables.slice(0, acCount).flatMap((table, id) => definition(0x10 + id, table)),
    ...segment(0xdd, [interval >> 8, interval & 0xff]),
    ...segment(0xda, [
      components.length,
      ...components.flatMap((component) => [
        component + 1,
        idOf(component, dcCount) * 16 + idOf(component, acCount),
      ]),
      ...[0, 63, 0],
    ]),
    ...data,
    0xff,
    0xd9,
  ]);
}
