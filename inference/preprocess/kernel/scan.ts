// The single scan of a sequential JPEG whose components are all interleaved (ITU-T T.81, annex A.2.3).
import { clearCoefficients } from "./coefficients";
import { position, readBlock, seek, tableAt } from "./entropy";
import { flatBlock, inverseDct, reducedBlock } from "./idct";

const MARKER_EOI: i32 = 0xd9;
const MARKER_RST0: i32 = 0xd0;

/** Blocks per MCU with 4:2:0, the largest supported. */
const MAX_BLOCKS: i32 = 6;
const MAX_COMPONENTS: u32 = 3;
/** Bytes of the quantisers of a component. */
const QUANTISER_BYTES: usize = 64 * sizeof<u16>();

/** Bytes after the entropy-coded data: more than an MCU can read, so that one check per MCU suffices. */
export const DATA_SLACK: i32 = 2_048;

/** One block of an MCU. */
@unmanaged
class Block {
  /** Addresses of the tables, of the component's previous DC value (i32), and of the quantisers. */
  dc: usize;
  ac: usize;
  predictor: usize;
  quantisers: usize;
  /** Address of its first sample in the first required MCU, and bytes from one line of samples to the next. */
  samples: usize;
  stride: usize;
  /** End of the memory for its component. */
  end: usize;
  /** Bytes from one MCU to the next. */
  step: usize;
  /** Samples per side: 8, or 4, 2 or 1 if the image is reduced. */
  side: i32;
}

const blocks: usize = memory.data(MAX_BLOCKS * 36, 16);
const predictors: usize = memory.data(<i32>(MAX_COMPONENTS * sizeof<i32>()), 4);
const quantisers: usize = memory.data(<i32>(<usize>MAX_COMPONENTS * QUANTISER_BYTES), 16);
let blockCount: i32 = 0;

@inline
function blockAt(index: i32): Block {
  return changetype<Block>(blocks + <usize>index * offsetof<Block>());
}

/** Address of the 64 quantisers (u16, row-major) of a component, to be written by the caller. */
export function quantisersOf(component: i32): usize {
  assert(<u32>component < MAX_COMPONENTS);
  return quantisers + <usize>component * QUANTISER_BYTES;
}

/** Removes the blocks of the previous image. */
export function clearBlocks(): void {
  assert(offsetof<Block>() == 36);
  blockCount = 0;
}

/**
 * Adds a block to the MCU.
 *
 * @param dc, ac - destinations of its tables, 0 to 3
 * @param samples - address of its first sample in the first required MCU
 * @param end - end of the memory for its component
 * @param step - bytes from one MCU to the next
 * @param side - samples per side: 8, 4, 2 or 1
 */
export function addBlock(
  component: i32,
  dc: i32,
  ac: i32,
  samples: usize,
  stride: usize,
  end: usize,
  step: usize,
  side: i32,
): void {
  assert(<u32>component < MAX_COMPONENTS && blockCount < MAX_BLOCKS);
  assert(side == 8 || side == 4 || side == 2 || side == 1);
  const block = blockAt(blockCount++);
  block.dc = tableAt(false, dc);
  block.ac = tableAt(true, ac);
  block.predictor = predictors + ((<usize>component) << 2);
  block.quantisers = quantisersOf(component);
  block.samples = samples;
  block.stride = stride;
  block.end = end;
  block.step = step;
  block.side = side;
}

/**
 * Copies entropy-coded data up to the end of the image without its stuffed zeros (T.81, B.1.1.5) and restart markers.
 *
 * @param from, end - the file from the first byte of the scan's data; up to 16 bytes after it are read
 * @param to - address of as many bytes and `DATA_SLACK` more
 * @param ends - receives the address of the end of each restart interval (u32)
 * @param intervals - expected number of restart intervals
 * @returns false if their number differs, or if anything but restart markers separates them
 */
export function unstuff(from: usize, end: usize, to: usize, ends: usize, intervals: i32): bool {
  let found = 0;
  while (from < end) {
    const data = v128.load(from);
    v128.store(to, data);
    const mask = i8x16.bitmask(i8x16.eq(data, i8x16.splat(-1)));
    if (!mask) {
      from += 16;
      to += 16;
      continue;
    }
    const before = <usize>ctz(mask);
    const byte: i32 = load<u8>(from + before + 1);
    from += before + 2;
    to += before;
    if (byte == 0) {
      store<u8>(to++, 0xff);
      continue;
    }
    // a marker ends an interval
    if (found >= intervals) return false;
    store<u32>(ends + ((<usize>found) << 2), to);
    if (byte == MARKER_EOI) {
      memory.fill(to, 0, DATA_SLACK);
      return from <= end && found + 1 == intervals;
    }
    if (byte != MARKER_RST0 + (found & 7)) return false;
    found++;
  }
  return false;
}

/** Addresses of the end of the current restart interval in `ends`, and of the end of `ends`. */
let intervalEnd: usize = 0;
let intervalEnds: usize = 0;
let mcusPerInterval: i32 = 0;
let mcusLeft: i32 = 0;

/**
 * Starts to decode the data that {@link unstuff} has copied.
 *
 * @param data - its `to`
 * @param ends, intervals - its arguments of that name
 * @param mcus - MCUs per restart interval
 */
export function startScan(data: usize, ends: usize, intervals: i32, mcus: i32): void {
  clearCoefficients(); // the previous image may have been damaged
  memory.fill(predictors, 0, MAX_COMPONENTS * sizeof<i32>());
  intervalEnd = ends;
  intervalEnds = ends + ((<usize>intervals) << 2);
  mcusPerInterval = mcus;
  mcusLeft = mcus;
  seek(data);
}

/** Returns whether exactly the data of the current interval has been read. */
export function isAtEnd(): bool {
  return position() == load<u32>(intervalEnd);
}

/** Starts the next restart interval (T.81, E.2.4); returns false if there is none or the current one is incomplete. */
function restart(): bool {
  if (!isAtEnd()) return false;
  const next = load<u32>(intervalEnd);
  intervalEnd += sizeof<u32>();
  if (intervalEnd >= intervalEnds) return false;
  memory.fill(predictors, 0, MAX_COMPONENTS * sizeof<i32>());
  mcusLeft = mcusPerInterval;
  seek(next);
  return true;
}

/**
 * Decodes a row of MCUs.
 *
 * @param mcus - MCUs per row
 * @param from, end - range of required MCUs; the samples of others are not computed
 * @returns false if the data is damaged
 */
export function decodeRow(mcus: i32, from: i32, end: i32): bool {
  assert(from >= 0 && end <= mcus);
  for (let index = 0; from < end && index < blockCount; index++) {
    const block = blockAt(index);
    const last = block.samples + <usize>(end - from - 1) * block.step;
    assert(last + <usize>(block.side - 1) * block.stride + <usize>block.side <= block.end);
  }
  for (let mcu = 0; mcu < mcus; mcu++) {
    if (mcusLeft == 0 && !restart()) return false;
    const isNeeded = mcu >= from && mcu < end;
    for (let index = 0; index < blockCount; index++) {
      const block = blockAt(index);
      const last = readBlock(block.dc, block.ac, block.predictor);
      if (last < 0) return false;
      if (isNeeded) {
        const samples = block.samples + <usize>(mcu - from) * block.step;
        if (block.side != 8) reducedBlock(block.side, block.quantisers, samples, block.stride);
        else if (last > 0) inverseDct(block.quantisers, samples, block.stride);
        else flatBlock(block.quantisers, samples, block.stride);
      } else {
        clearCoefficients();
      }
    }
    if (position() > load<u32>(intervalEnd)) return false;
    mcusLeft--;
  }
  return true;
}
