// Huffman tables and decoding of blocks (ITU-T T.81, annex F.2).
import { coefficients } from "./coefficients";

/** Maximum bits of a code, or of a code and its value, that one lookup decodes. */
const LOOKUP_BITS: i32 = 10;
const LOOKUP_ENTRIES: usize = 1 << LOOKUP_BITS;
const MAX_CODE_BITS: i32 = 16;

// Byte offsets of the parts of a table.
/** Entry of the next ten bits; 0 if their code is longer. See {@link entryOf}. */
const LOOKUP: usize = 0;
/** By length of a code: exclusive upper bound of the codes of this length, left-aligned in 16 bits. A sentinel follows. */
const LIMITS: usize = LOOKUP + LOOKUP_ENTRIES * sizeof<i32>();
/** By length of a code: index of the first symbol of this length minus the first code. */
const OFFSETS: usize = LIMITS + (MAX_CODE_BITS + 2) * sizeof<i32>();
const SYMBOLS: usize = OFFSETS + (MAX_CODE_BITS + 2) * sizeof<i32>();
const TABLE_BYTES: usize = SYMBOLS + 256;

/** Four destinations of each class (T.81, B.2.4.2): 0 to 3 for DC, 4 to 7 for AC. */
const TABLES: usize = 8;
const tables: usize = memory.data(<i32>(TABLES * TABLE_BYTES), 16);

/** Body of a DHT segment without its first byte: 16 counts, then up to 256 symbols. */
const COUNTS: i32 = 16;
export const TABLE_INPUT_BYTES: i32 = COUNTS + 256;
const input: usize = memory.data(TABLE_INPUT_BYTES);

/** Address of `TABLE_INPUT_BYTES` bytes that {@link defineTable} reads. */
export function tableInput(): usize {
  return input;
}

/** Address of the table in destination `id` of class `isAc`. */
export function tableAt(isAc: bool, id: i32): usize {
  assert(<u32>id < 4);
  return tables + <usize>((<i32>isAc << 2) + id) * TABLE_BYTES;
}

/**
 * Builds the table in destination `id` of class `isAc` from {@link tableInput}.
 *
 * @returns false if the counts do not form a code (T.81, annex C) or a symbol is too large for samples of 8 bits
 */
export function defineTable(isAc: bool, id: i32): bool {
  const table = tableAt(isAc, id);
  memory.fill(table, 0, TABLE_BYTES);
  const maxSize: u32 = isAc ? 10 : 11;
  let code: u32 = 0;
  let index: u32 = 0;
  for (let length = 1; length <= MAX_CODE_BITS; length++, code <<= 1) {
    const column = table + ((<usize>length) << 2);
    store<i32>(column + OFFSETS, index - code);
    for (let left: u32 = load<u8>(input + length - 1); left > 0; left--, code++, index++) {
      // the code of all ones is reserved
      if (index >= 256 || code + 1 >= <u32>1 << length) return false;
      const symbol: u32 = load<u8>(input + COUNTS + index);
      if ((isAc ? symbol & 15 : symbol) > maxSize) return false;
      store<u8>(table + SYMBOLS + index, symbol);
      const free = LOOKUP_BITS - length;
      if (free < 0) continue;
      const first = table + LOOKUP + (<usize>(code << free) << 2);
      for (let more: u32 = 0; more < <u32>1 << free; more++) {
        store<u32>(first + ((<usize>more) << 2), entryOf(symbol, length, free, more, isAc));
      }
    }
    store<u32>(column + LIMITS, code << (MAX_CODE_BITS - length));
  }
  store<u32>(table + LIMITS + ((<usize>MAX_CODE_BITS + 1) << 2), 0x10000);
  return true;
}

/** Flag of an entry: the bits of the value follow, and bits 16-31 are their number instead of the value. */
const VALUE_FOLLOWS: u32 = 0x80;
/** Number of zeros in an entry that ends the block. */
const END_OF_BLOCK: i32 = 112;
/** Symbol of sixteen zeros (T.81, F.1.2.2.1). */
const SIXTEEN_ZEROS: u32 = 0xf0;

/** Entry. Bits 0-4: number of bits read; 7: {@link VALUE_FOLLOWS}; 8-14: zeros before the coefficient; 16-31: value or its size. */
@inline
function packed(read: i32, follows: u32, zeros: i32, value: i32): u32 {
  return (value << 16) | (zeros << 8) | follows | read;
}

@inline
function zerosOf(symbol: u32): i32 {
  return (symbol & 15) == 0 && symbol != SIXTEEN_ZEROS ? END_OF_BLOCK : symbol >> 4;
}

/** Entry of a code of `length` bits that is followed by the `free` bits `more`. */
function entryOf(symbol: u32, length: i32, free: i32, more: u32, isAc: bool): u32 {
  const size = <i32>(symbol & 15);
  const zeros = isAc ? zerosOf(symbol) : 0;
  if (size > free) return packed(length, VALUE_FOLLOWS, zeros, size);
  return packed(length + size, 0, zeros, extended(more >> (free - size), size));
}

/** Value of `size` bits (T.81, F.2.2.1, EXTEND): below half of the range it is negative. */
@inline
function extended(bits: i32, size: i32): i32 {
  return bits < (1 << size) >> 1 ? bits + ((-1 << size) + 1) : bits;
}

/** Entry of a code of more than {@link LOOKUP_BITS} bits; 0 if there is no such code. */
function longEntry(table: usize, bits: u64): u32 {
  const code = <u32>(bits >> 48);
  let length = LOOKUP_BITS + 1;
  while (code >= load<u32>(table + LIMITS + ((<usize>length) << 2))) length++;
  if (length > MAX_CODE_BITS) return 0;
  const offset = load<i32>(table + OFFSETS + ((<usize>length) << 2));
  const index = (code >> (MAX_CODE_BITS - length)) + offset;
  const symbol: u32 = load<u8>(table + SYMBOLS + (index & 0xff));
  return packed(length, VALUE_FOLLOWS, zerosOf(symbol), symbol & 15);
}

/** Left-aligned window of the next bits, and the number of valid ones. The others are zero or the first bits of `next`. */
let bits: u64 = 0;
let count: i32 = 0;
/** Address of the next byte. */
let next: usize = 0;

/** Starts to read at `address`. */
export function seek(address: usize): void {
  bits = 0;
  count = 0;
  next = address;
}

/** Address after the last byte of which a bit has been read. */
@inline
export function position(): usize {
  return next - <usize>(count >> 3);
}

/** Loads eight bytes, most significant first. */
@inline
function bigEndian(address: usize): u64 {
  return i64x2.extract_lane(
    v128.swizzle(
      v128.load_zero<u64>(address),
      i8x16(7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0),
    ),
    0,
  );
}

/** Number of coefficients of a block. */
const BLOCK_SIZE: i32 = 64;

/** Row-major byte offset of each coefficient in zigzag order (T.81, figure A.6). */
const zigzag: usize = memory.data<u8>([
  0, 2, 16, 32, 18, 4, 6, 20, 34, 48, 64, 50, 36, 22, 8, 10, 24, 38, 52, 66, 80, 96, 82, 68, 54, 40,
  26, 12, 14, 28, 42, 56, 70, 84, 98, 112, 114, 100, 86, 72, 58, 44, 30, 46, 60, 74, 88, 102, 116,
  118, 104, 90, 76, 62, 78, 92, 106, 120, 122, 108, 94, 110, 124, 126,
]);

/**
 * Reads a block into `coefficients`, which must be zero. Reads at most 64 × (16 + 11) bits, and loads up to 8 bytes beyond.
 *
 * @param dc, ac - addresses of its tables
 * @param predictor - address of the component's previous DC value (i32), which is updated
 * @returns index of the last coefficient that was set, in zigzag order; -1 if the data is damaged
 */
export function readBlock(dc: usize, ac: usize, predictor: usize): i32 {
  // copied to locals, because globals are loaded and stored on each use
  let window = bits;
  let valid = count;
  let from = next;

  window |= bigEndian(from) >> valid;
  from += (63 - valid) >> 3;
  valid |= 56;
  let entry = load<u32>(dc + LOOKUP + <usize>((window >> 52) & 0xffc));
  if (!entry) {
    entry = longEntry(dc, window);
    if (!entry) return -1;
  }
  window <<= <u64>entry; // a shift uses six bits, and bits 5 and 6 are not set
  valid -= entry & 31;
  let value = <i32>entry >> 16;
  if (entry & VALUE_FOLLOWS) {
    const size = value;
    value = extended(<i32>(window >> 1 >> <u64>(63 - size)), size);
    window <<= <u64>size;
    valid -= size;
  }
  value += load<i32>(predictor);
  store<i32>(predictor, value);
  store<i16>(coefficients, value);

  let index = 1;
  let last = 0;
  do {
    // independent of the refill that follows: at least 25 bits are left
    entry = load<u32>(ac + LOOKUP + <usize>((window >> 52) & 0xffc));
    window |= bigEndian(from) >> valid;
    from += (63 - valid) >> 3;
    valid |= 56;
    if (!entry) {
      entry = longEntry(ac, window);
      if (!entry) return -1;
    }
    window <<= <u64>entry;
    valid -= entry & 31;
    value = <i32>entry >> 16;
    if (entry & VALUE_FOLLOWS) {
      const size = value;
      value = extended(<i32>(window >> 1 >> <u64>(63 - size)), size);
      window <<= <u64>size;
      valid -= size;
    }
    index += (entry >> 8) & 0x7f;
    if (index >= BLOCK_SIZE) {
      if (index < END_OF_BLOCK) return -1;
      break;
    }
    store<i16>(coefficients + <usize>load<u8>(zigzag + index), value);
    last = index++;
  } while (index < BLOCK_SIZE);

  bits = window;
  count = valid;
  next = from;
  return last;
}
