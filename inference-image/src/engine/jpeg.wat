;; Decodes the entropy-coded data of a baseline JPEG, with the arithmetic of libjpeg(-turbo)'s defaults, bit for bit: "islow"
;; inverse DCT, "fancy" upsampling, integer colour conversion. `jpeg.mjs` reads the header, lays out the memory, which is the
;; resampling kernel's, and calls it row by row. Where the data is not what it should be, it says so and gives up: libjpeg
;; decides what becomes of such a file. After a change, compile it, at the root of the repository:
;;
;;   npx wat2wasm inference-image/src/engine/jpeg.wat -o inference-image/src/engine/jpeg.wasm
;;
;; At fixed places: 64: 64 i16 coefficients of the current block, all zero between blocks; 192: for each place in zigzag
;; order, the offset in bytes of its coefficient.
;;
;; A Huffman table is
;;   1024 × i32, by the next ten bits: 0 where the code is longer; else bits 0-4: how many bits are done with it; bit 7: the
;;     bits of a value follow, and bits 16-31 are their number; otherwise bits 16-31 are the value itself; bits 8-14: zeros
;;     before the value, 112 at the end of a block
;;   at 4096: 18 × i32, by length: all codes of this length are below it, their 16 bits aligned to the left
;;   at 4168: 18 × i32, by length: where its codes' symbols are, less the first code
;;   at 4240: the symbols
(module
  (import "kernel" "memory" (memory 1))
  (data (i32.const 192) "\00\02\10\20\12\04\06\14\22\30\40\32\24\16\08\0a\18\26\34\42\50\60\52\44\36\28\1a\0c\0e\1c\2a\38\46\54\62\70\72\64\56\48\3a\2c\1e\2e\3c\4a\58\66\74\76\68\5a\4c\3e\4e\5c\6a\78\7a\6c\5e\6e\7c\7e")

  ;; The next bits, left-aligned; how many of them count; where the bytes come from.
  (global $bits (mut i64) (i64.const 0))
  (global $count (mut i32) (i32.const 0))
  (global $next (mut i32) (i32.const 0))

  ;; Copy entropy-coded data without its stuffing, up to the end of the image.
  ;;   $to: has room for 16 bytes more than there are
  ;;   $segments: gets where each restart interval ends, i32, $most of them
  ;; Returns the number of intervals; 0 where there are more, or anything but a restart is between them.
  (func (export "unstuff")
    (param $from i32) (param $end i32) (param $to i32) (param $segments i32) (param $most i32) (result i32)
    (local $byte i32) (local $restarts i32) (local $data v128) (local $found i32)
    (block $bad
      (loop $more
        (br_if $bad (i32.ge_u (local.get $from) (local.get $end)))
        (local.set $data (v128.load align=1 (local.get $from)))
        (v128.store align=1 (local.get $to) (local.get $data))
        (local.set $found
          (i8x16.bitmask (i8x16.eq (local.get $data) (v128.const i32x4 -1 -1 -1 -1))))
        (if (i32.eqz (local.get $found))
          (then
            (local.set $from (i32.add (local.get $from) (i32.const 16)))
            (local.set $to (i32.add (local.get $to) (i32.const 16)))
            (br $more)))
        (local.set $found (i32.ctz (local.get $found)))
        (local.set $from (i32.add (local.get $from) (local.get $found)))
        (local.set $to (i32.add (local.get $to) (local.get $found)))
        (local.set $byte (i32.load8_u offset=1 (local.get $from)))
        (local.set $from (i32.add (local.get $from) (i32.const 2)))
        (if (i32.eqz (local.get $byte))
          (then
            (i32.store8 (local.get $to) (i32.const 0xff))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))
            (br $more)))
        ;; a marker ends an interval
        (br_if $bad (i32.ge_u (local.get $restarts) (local.get $most)))
        (i32.store (i32.add (local.get $segments) (i32.shl (local.get $restarts) (i32.const 2))) (local.get $to))
        (if (i32.eq (local.get $byte) (i32.const 0xd9))
          (then
            (br_if $bad (i32.gt_u (local.get $from) (local.get $end)))
            (return (i32.add (local.get $restarts) (i32.const 1)))))
        (br_if $bad
          (i32.ne (local.get $byte) (i32.add (i32.const 0xd0) (i32.and (local.get $restarts) (i32.const 7)))))
        (local.set $restarts (i32.add (local.get $restarts) (i32.const 1)))
        (br $more)))
    (i32.const 0))

  ;; Begin with the data at $at. Damaged data may have left coefficients behind.
  (func (export "start") (param $at i32)
    (call $clear)
    (global.set $bits (i64.const 0))
    (global.set $count (i32.const 0))
    (global.set $next (local.get $at)))

  ;; What the table has no entry for: a code of more than ten bits. Returns the entry for it, whose value always follows; 0
  ;; where there is no such code.
  (func $long (param $table i32) (param $bits i64) (result i32)
    (local $code i32) (local $length i32) (local $limit i32) (local $symbol i32)
    (local.set $code (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 48))))
    (local.set $length (i32.const 10))
    (loop $longer
      (local.set $length (i32.add (local.get $length) (i32.const 1)))
      (local.set $limit (i32.add (local.get $table) (i32.shl (local.get $length) (i32.const 2))))
      (br_if $longer (i32.ge_u (local.get $code) (i32.load offset=4096 (local.get $limit)))))
    (if (i32.gt_u (local.get $length) (i32.const 16)) (then (return (i32.const 0))))
    (local.set $symbol
      (i32.load8_u offset=4240
        (i32.add (local.get $table)
          (i32.add
            (i32.shr_u (local.get $code) (i32.sub (i32.const 16) (local.get $length)))
            (i32.load offset=4168 (local.get $limit))))))
    (i32.or
      (i32.or (local.get $length) (i32.const 0x80))
      (i32.or
        (i32.shl (i32.and (local.get $symbol) (i32.const 15)) (i32.const 16))
        (i32.shl
          (select
            (i32.const 112)
            (i32.shr_u (local.get $symbol) (i32.const 4))
            ;; no value and not sixteen zeros
            (i32.and
              (i32.eqz (i32.and (local.get $symbol) (i32.const 15)))
              (i32.ne (local.get $symbol) (i32.const 0xf0))))
          (i32.const 8)))))

  ;; Read a block into the coefficients. Returns the last place that was set, in zigzag order; -1 where the data is bad.
  (func $block (param $dc i32) (param $ac i32) (param $level i32) (result i32)
    (local $bits i64) (local $count i32) (local $next i32)
    (local $entry i32) (local $place i32) (local $last i32) (local $value i32) (local $size i32)
    (local.set $bits (global.get $bits))
    (local.set $count (global.get $count))
    (local.set $next (global.get $next))
    (local.set $bits
      (i64.or (local.get $bits)
        (i64.shr_u
          (i64x2.extract_lane 0
            (i8x16.swizzle (v128.load64_zero align=1 (local.get $next))
              (v128.const i8x16 7 6 5 4 3 2 1 0 7 6 5 4 3 2 1 0)))
          (i64.extend_i32_u (local.get $count)))))
    (local.set $next
      (i32.add (local.get $next) (i32.shr_u (i32.sub (i32.const 63) (local.get $count)) (i32.const 3))))
    (local.set $count (i32.or (local.get $count) (i32.const 56)))
    (local.set $entry
      (i32.load
        (i32.add (local.get $dc) (i32.and (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 52))) (i32.const 0xffc)))))
    (if (i32.eqz (local.get $entry))
      (then
        (local.set $entry (call $long (local.get $dc) (local.get $bits)))
        (if (i32.eqz (local.get $entry)) (then (return (i32.const -1))))))
    ;; a shift takes six bits of what it is told
    (local.set $bits (i64.shl (local.get $bits) (i64.extend_i32_u (local.get $entry))))
    (local.set $count (i32.sub (local.get $count) (i32.and (local.get $entry) (i32.const 31))))
    (local.set $value (i32.shr_s (local.get $entry) (i32.const 16)))
    (if (i32.and (local.get $entry) (i32.const 0x80))
      (then
        (local.set $size (local.get $value))
        (local.set $value
          (i32.wrap_i64
            (i64.shr_u
              (i64.shr_u (local.get $bits) (i64.const 1))
              (i64.extend_i32_u (i32.sub (i32.const 63) (local.get $size))))))
        (if (i32.lt_u (local.get $value) (i32.shr_u (i32.shl (i32.const 1) (local.get $size)) (i32.const 1)))
          (then
            (local.set $value
              (i32.add (local.get $value) (i32.add (i32.shl (i32.const -1) (local.get $size)) (i32.const 1))))))
        (local.set $bits (i64.shl (local.get $bits) (i64.extend_i32_u (local.get $size))))
        (local.set $count (i32.sub (local.get $count) (local.get $size)))))
    (local.set $value (i32.add (i32.load (local.get $level)) (local.get $value)))
    (i32.store (local.get $level) (local.get $value))
    (i32.store16 offset=64 (i32.const 0) (local.get $value))
    (local.set $place (i32.const 1))
    (block $end
      (loop $more
        ;; Before more bits are there: at least 25 are left, and neither waits for the other.
        (local.set $entry
          (i32.load
            (i32.add (local.get $ac) (i32.and (i32.wrap_i64 (i64.shr_u (local.get $bits) (i64.const 52))) (i32.const 0xffc)))))
        (local.set $bits
          (i64.or (local.get $bits)
            (i64.shr_u
              (i64x2.extract_lane 0
                (i8x16.swizzle (v128.load64_zero align=1 (local.get $next))
                  (v128.const i8x16 7 6 5 4 3 2 1 0 7 6 5 4 3 2 1 0)))
              (i64.extend_i32_u (local.get $count)))))
        (local.set $next
          (i32.add (local.get $next) (i32.shr_u (i32.sub (i32.const 63) (local.get $count)) (i32.const 3))))
        (local.set $count (i32.or (local.get $count) (i32.const 56)))
        (if (i32.eqz (local.get $entry))
          (then
            (local.set $entry (call $long (local.get $ac) (local.get $bits)))
            (if (i32.eqz (local.get $entry)) (then (return (i32.const -1))))))
        (local.set $bits (i64.shl (local.get $bits) (i64.extend_i32_u (local.get $entry))))
        (local.set $count (i32.sub (local.get $count) (i32.and (local.get $entry) (i32.const 31))))
        (local.set $value (i32.shr_s (local.get $entry) (i32.const 16)))
        (if (i32.and (local.get $entry) (i32.const 0x80))
          (then
            (local.set $size (local.get $value))
            (local.set $value
              (i32.wrap_i64
                (i64.shr_u
                  (i64.shr_u (local.get $bits) (i64.const 1))
                  (i64.extend_i32_u (i32.sub (i32.const 63) (local.get $size))))))
            (if (i32.lt_u (local.get $value) (i32.shr_u (i32.shl (i32.const 1) (local.get $size)) (i32.const 1)))
              (then
                (local.set $value
                  (i32.add (local.get $value) (i32.add (i32.shl (i32.const -1) (local.get $size)) (i32.const 1))))))
            (local.set $bits (i64.shl (local.get $bits) (i64.extend_i32_u (local.get $size))))
            (local.set $count (i32.sub (local.get $count) (local.get $size)))))
        (local.set $place
          (i32.add (local.get $place) (i32.and (i32.shr_u (local.get $entry) (i32.const 8)) (i32.const 0x7f))))
        (br_if $end (i32.gt_u (local.get $place) (i32.const 63)))
        (i32.store16 offset=64 (i32.load8_u offset=192 (local.get $place)) (local.get $value))
        (local.set $last (local.get $place))
        (local.set $place (i32.add (local.get $place) (i32.const 1)))
        (br_if $more (i32.le_u (local.get $place) (i32.const 63)))))
    (global.set $bits (local.get $bits))
    (global.set $count (local.get $count))
    (global.set $next (local.get $next))
    ;; zeros that go beyond the block
    (if (i32.and (i32.gt_u (local.get $place) (i32.const 64)) (i32.lt_u (local.get $place) (i32.const 112)))
      (then (return (i32.const -1))))
    (local.get $last))


  ;; One pass of the inverse DCT is over the columns, the other over the rows: between them and after them the block is
  ;; turned. Coefficients are zero afterwards.
  (func $inverse (param $quantisers i32) (param $to i32) (param $stride i32)
    (local $shift i32) (local $half v128)
    (local $r0 v128) (local $r1 v128) (local $r2 v128) (local $r3 v128) (local $r4 v128) (local $r5 v128) (local $r6 v128) (local $r7 v128) (local $s0 v128) (local $s1 v128) (local $s2 v128) (local $s3 v128) (local $s4 v128) (local $s5 v128) (local $s6 v128) (local $s7 v128) (local $l0 v128) (local $l1 v128) (local $l2 v128) (local $l3 v128) (local $l4 v128) (local $l5 v128) (local $l6 v128) (local $l7 v128) (local $e0 v128) (local $e1 v128) (local $e2 v128) (local $e3 v128) (local $f0 v128) (local $f1 v128) (local $f2 v128) (local $f3 v128) (local $t v128) (local $u v128) (local $v v128) (local $z3 v128) (local $z4 v128)
    (local.set $r0 (i16x8.mul (v128.load offset=64 (i32.const 0)) (v128.load offset=0 (local.get $quantisers))))
    (local.set $r1 (i16x8.mul (v128.load offset=80 (i32.const 0)) (v128.load offset=16 (local.get $quantisers))))
    (local.set $r2 (i16x8.mul (v128.load offset=96 (i32.const 0)) (v128.load offset=32 (local.get $quantisers))))
    (local.set $r3 (i16x8.mul (v128.load offset=112 (i32.const 0)) (v128.load offset=48 (local.get $quantisers))))
    (local.set $r4 (i16x8.mul (v128.load offset=128 (i32.const 0)) (v128.load offset=64 (local.get $quantisers))))
    (local.set $r5 (i16x8.mul (v128.load offset=144 (i32.const 0)) (v128.load offset=80 (local.get $quantisers))))
    (local.set $r6 (i16x8.mul (v128.load offset=160 (i32.const 0)) (v128.load offset=96 (local.get $quantisers))))
    (local.set $r7 (i16x8.mul (v128.load offset=176 (i32.const 0)) (v128.load offset=112 (local.get $quantisers))))
    (v128.store offset=64 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=80 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=96 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=112 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=128 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=144 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=160 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=176 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (local.set $shift (i32.const 11))
    (loop $pass
      (local.set $half (i32x4.shr_u (i32x4.shl (i32x4.splat (i32.const 1)) (local.get $shift)) (i32.const 1)))
      (local.set $z3 (i16x8.add (local.get $r7) (local.get $r3)))
      (local.set $z4 (i16x8.add (local.get $r5) (local.get $r1)))
      (local.set $s0 (i16x8.add (local.get $r0) (local.get $r4)))
      (local.set $s1 (i16x8.sub (local.get $r0) (local.get $r4)))
      ;; the lower four
      (local.set $t (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r2) (local.get $r6)))
      (local.set $e2 (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 4433 -10704 4433 -10704 4433 -10704 4433 -10704)))
      (local.set $e3 (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 10703 4433 10703 4433 10703 4433 10703 4433)))
      (local.set $e0 (i32x4.shl (i32x4.extend_low_i16x8_s (local.get $s0)) (i32.const 13)))
      (local.set $e1 (i32x4.shl (i32x4.extend_low_i16x8_s (local.get $s1)) (i32.const 13)))
      (local.set $e0 (i32x4.add (local.get $e0) (local.get $half)))
      (local.set $e1 (i32x4.add (local.get $e1) (local.get $half)))
      (local.set $t (i32x4.add (local.get $e0) (local.get $e3)))
      (local.set $e3 (i32x4.sub (local.get $e0) (local.get $e3)))
      (local.set $e0 (local.get $t))
      (local.set $t (i32x4.add (local.get $e1) (local.get $e2)))
      (local.set $e2 (i32x4.sub (local.get $e1) (local.get $e2)))
      (local.set $e1 (local.get $t))
      (local.set $t (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $z3) (local.get $z4)))
      (local.set $u (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -6436 9633 -6436 9633 -6436 9633 -6436 9633)))
      (local.set $v (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 9633 6437 9633 6437 9633 6437 9633 6437)))
      (local.set $t (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r7) (local.get $r1)))
      (local.set $f0 (i32x4.add (local.get $u) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -4927 -7373 -4927 -7373 -4927 -7373 -4927 -7373))))
      (local.set $f3 (i32x4.add (local.get $v) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -7373 4926 -7373 4926 -7373 4926 -7373 4926))))
      (local.set $t (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r5) (local.get $r3)))
      (local.set $f1 (i32x4.add (local.get $v) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -4176 -20995 -4176 -20995 -4176 -20995 -4176 -20995))))
      (local.set $f2 (i32x4.add (local.get $u) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -20995 4177 -20995 4177 -20995 4177 -20995 4177))))
      (local.set $l0 (i32x4.shr_s (i32x4.add (local.get $e0) (local.get $f3)) (local.get $shift)))
      (local.set $l1 (i32x4.shr_s (i32x4.add (local.get $e1) (local.get $f2)) (local.get $shift)))
      (local.set $l2 (i32x4.shr_s (i32x4.add (local.get $e2) (local.get $f1)) (local.get $shift)))
      (local.set $l3 (i32x4.shr_s (i32x4.add (local.get $e3) (local.get $f0)) (local.get $shift)))
      (local.set $l4 (i32x4.shr_s (i32x4.sub (local.get $e3) (local.get $f0)) (local.get $shift)))
      (local.set $l5 (i32x4.shr_s (i32x4.sub (local.get $e2) (local.get $f1)) (local.get $shift)))
      (local.set $l6 (i32x4.shr_s (i32x4.sub (local.get $e1) (local.get $f2)) (local.get $shift)))
      (local.set $l7 (i32x4.shr_s (i32x4.sub (local.get $e0) (local.get $f3)) (local.get $shift)))
      ;; the upper four
      (local.set $t (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r2) (local.get $r6)))
      (local.set $e2 (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 4433 -10704 4433 -10704 4433 -10704 4433 -10704)))
      (local.set $e3 (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 10703 4433 10703 4433 10703 4433 10703 4433)))
      (local.set $e0 (i32x4.shl (i32x4.extend_high_i16x8_s (local.get $s0)) (i32.const 13)))
      (local.set $e1 (i32x4.shl (i32x4.extend_high_i16x8_s (local.get $s1)) (i32.const 13)))
      (local.set $e0 (i32x4.add (local.get $e0) (local.get $half)))
      (local.set $e1 (i32x4.add (local.get $e1) (local.get $half)))
      (local.set $t (i32x4.add (local.get $e0) (local.get $e3)))
      (local.set $e3 (i32x4.sub (local.get $e0) (local.get $e3)))
      (local.set $e0 (local.get $t))
      (local.set $t (i32x4.add (local.get $e1) (local.get $e2)))
      (local.set $e2 (i32x4.sub (local.get $e1) (local.get $e2)))
      (local.set $e1 (local.get $t))
      (local.set $t (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $z3) (local.get $z4)))
      (local.set $u (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -6436 9633 -6436 9633 -6436 9633 -6436 9633)))
      (local.set $v (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 9633 6437 9633 6437 9633 6437 9633 6437)))
      (local.set $t (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r7) (local.get $r1)))
      (local.set $f0 (i32x4.add (local.get $u) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -4927 -7373 -4927 -7373 -4927 -7373 -4927 -7373))))
      (local.set $f3 (i32x4.add (local.get $v) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -7373 4926 -7373 4926 -7373 4926 -7373 4926))))
      (local.set $t (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r5) (local.get $r3)))
      (local.set $f1 (i32x4.add (local.get $v) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -4176 -20995 -4176 -20995 -4176 -20995 -4176 -20995))))
      (local.set $f2 (i32x4.add (local.get $u) (i32x4.dot_i16x8_s (local.get $t) (v128.const i16x8 -20995 4177 -20995 4177 -20995 4177 -20995 4177))))
      (local.set $r0 (i16x8.narrow_i32x4_s (local.get $l0) (i32x4.shr_s (i32x4.add (local.get $e0) (local.get $f3)) (local.get $shift))))
      (local.set $r1 (i16x8.narrow_i32x4_s (local.get $l1) (i32x4.shr_s (i32x4.add (local.get $e1) (local.get $f2)) (local.get $shift))))
      (local.set $r2 (i16x8.narrow_i32x4_s (local.get $l2) (i32x4.shr_s (i32x4.add (local.get $e2) (local.get $f1)) (local.get $shift))))
      (local.set $r3 (i16x8.narrow_i32x4_s (local.get $l3) (i32x4.shr_s (i32x4.add (local.get $e3) (local.get $f0)) (local.get $shift))))
      (local.set $r4 (i16x8.narrow_i32x4_s (local.get $l4) (i32x4.shr_s (i32x4.sub (local.get $e3) (local.get $f0)) (local.get $shift))))
      (local.set $r5 (i16x8.narrow_i32x4_s (local.get $l5) (i32x4.shr_s (i32x4.sub (local.get $e2) (local.get $f1)) (local.get $shift))))
      (local.set $r6 (i16x8.narrow_i32x4_s (local.get $l6) (i32x4.shr_s (i32x4.sub (local.get $e1) (local.get $f2)) (local.get $shift))))
      (local.set $r7 (i16x8.narrow_i32x4_s (local.get $l7) (i32x4.shr_s (i32x4.sub (local.get $e0) (local.get $f3)) (local.get $shift))))
      ;; turn
      (local.set $s0 (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r0) (local.get $r1)))
      (local.set $s1 (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r0) (local.get $r1)))
      (local.set $s2 (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r2) (local.get $r3)))
      (local.set $s3 (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r2) (local.get $r3)))
      (local.set $s4 (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r4) (local.get $r5)))
      (local.set $s5 (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r4) (local.get $r5)))
      (local.set $s6 (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $r6) (local.get $r7)))
      (local.set $s7 (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $r6) (local.get $r7)))
      (local.set $l0 (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $s0) (local.get $s2)))
      (local.set $l1 (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $s0) (local.get $s2)))
      (local.set $l2 (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $s4) (local.get $s6)))
      (local.set $l3 (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $s4) (local.get $s6)))
      (local.set $l4 (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $s1) (local.get $s3)))
      (local.set $l5 (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $s1) (local.get $s3)))
      (local.set $l6 (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $s5) (local.get $s7)))
      (local.set $l7 (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $s5) (local.get $s7)))
      (local.set $r0 (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $l0) (local.get $l2)))
      (local.set $r1 (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $l0) (local.get $l2)))
      (local.set $r2 (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $l1) (local.get $l3)))
      (local.set $r3 (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $l1) (local.get $l3)))
      (local.set $r4 (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $l4) (local.get $l6)))
      (local.set $r5 (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $l4) (local.get $l6)))
      (local.set $r6 (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $l5) (local.get $l7)))
      (local.set $r7 (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $l5) (local.get $l7)))
      (local.set $shift (i32.add (local.get $shift) (i32.const 7)))
      (br_if $pass (i32.eq (local.get $shift) (i32.const 18))))
    (local.set $t (v128.xor (i8x16.narrow_i16x8_s (local.get $r0) (local.get $r1)) (i8x16.splat (i32.const 0x80))))
    (v128.store64_lane align=1 0 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store64_lane align=1 1 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (local.set $t (v128.xor (i8x16.narrow_i16x8_s (local.get $r2) (local.get $r3)) (i8x16.splat (i32.const 0x80))))
    (v128.store64_lane align=1 0 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store64_lane align=1 1 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (local.set $t (v128.xor (i8x16.narrow_i16x8_s (local.get $r4) (local.get $r5)) (i8x16.splat (i32.const 0x80))))
    (v128.store64_lane align=1 0 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store64_lane align=1 1 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (local.set $t (v128.xor (i8x16.narrow_i16x8_s (local.get $r6) (local.get $r7)) (i8x16.splat (i32.const 0x80))))
    (v128.store64_lane align=1 0 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store64_lane align=1 1 (local.get $to) (local.get $t)))

  ;; A block of one value, as $inverse makes it of a first coefficient alone.
  (func $flat (param $quantisers i32) (param $to i32) (param $stride i32)
    (local $row i32) (local $value v128)
    (local.set $value
      (i16x8.splat
        (i32.shr_s
          (i32.add
            (i32.mul (i32.load16_s offset=64 (i32.const 0)) (i32.load16_u (local.get $quantisers)))
            (i32.const 4))
          (i32.const 3))))
    (local.set $value
      (v128.xor (i8x16.narrow_i16x8_s (local.get $value) (local.get $value)) (i8x16.splat (i32.const 0x80))))
    (i32.store16 offset=64 (i32.const 0) (i32.const 0))
    (local.set $row (i32.const 8))
    (loop $more
      (v128.store64_lane align=1 0 (local.get $to) (local.get $value))
      (local.set $to (i32.add (local.get $to) (local.get $stride)))
      (br_if $more (local.tee $row (i32.sub (local.get $row) (i32.const 1))))))

  ;; All coefficients to zero. `memory.fill` leaves the compiled code, which takes longer than a block.
  (func $clear
    (v128.store offset=64 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=80 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=96 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=112 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=128 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=144 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=160 (i32.const 0) (v128.const i32x4 0 0 0 0))
    (v128.store offset=176 (i32.const 0) (v128.const i32x4 0 0 0 0)))

  ;; A block at half of its size: the inverse DCT of its four lowest frequencies each way.
  (func $half (param $quantisers i32) (param $to i32) (param $stride i32)
    (local $turns i32) (local $r0 v128) (local $r1 v128) (local $r2 v128) (local $r3 v128)
    (local $t v128) (local $u v128) (local $v v128) (local $w v128)
    (local.set $r0 (f32x4.convert_i32x4_s (i32x4.extmul_low_i16x8_s (v128.load64_zero offset=64 (i32.const 0)) (v128.load64_zero offset=0 (local.get $quantisers)))))
    (local.set $r1 (f32x4.convert_i32x4_s (i32x4.extmul_low_i16x8_s (v128.load64_zero offset=80 (i32.const 0)) (v128.load64_zero offset=16 (local.get $quantisers)))))
    (local.set $r2 (f32x4.convert_i32x4_s (i32x4.extmul_low_i16x8_s (v128.load64_zero offset=96 (i32.const 0)) (v128.load64_zero offset=32 (local.get $quantisers)))))
    (local.set $r3 (f32x4.convert_i32x4_s (i32x4.extmul_low_i16x8_s (v128.load64_zero offset=112 (i32.const 0)) (v128.load64_zero offset=48 (local.get $quantisers)))))
    (local.set $turns (i32.const 2))
    (loop $pass
      (local.set $t (f32x4.mul (f32x4.add (local.get $r0) (local.get $r2)) (f32x4.splat (f32.const 0.35355339))))
      (local.set $u (f32x4.mul (f32x4.sub (local.get $r0) (local.get $r2)) (f32x4.splat (f32.const 0.35355339))))
      (local.set $v (f32x4.add (f32x4.mul (local.get $r1) (f32x4.splat (f32.const 0.46193977))) (f32x4.mul (local.get $r3) (f32x4.splat (f32.const 0.19134172)))))
      (local.set $w (f32x4.sub (f32x4.mul (local.get $r1) (f32x4.splat (f32.const 0.19134172))) (f32x4.mul (local.get $r3) (f32x4.splat (f32.const 0.46193977)))))
      (local.set $r0 (f32x4.add (local.get $t) (local.get $v)))
      (local.set $r1 (f32x4.add (local.get $u) (local.get $w)))
      (local.set $r2 (f32x4.sub (local.get $u) (local.get $w)))
      (local.set $r3 (f32x4.sub (local.get $t) (local.get $v)))
      ;; turn
      (local.set $t (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $r0) (local.get $r1)))
      (local.set $u (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $r0) (local.get $r1)))
      (local.set $v (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $r2) (local.get $r3)))
      (local.set $w (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $r2) (local.get $r3)))
      (local.set $r0 (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $t) (local.get $v)))
      (local.set $r1 (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $t) (local.get $v)))
      (local.set $r2 (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $u) (local.get $w)))
      (local.set $r3 (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $u) (local.get $w)))
      (br_if $pass (local.tee $turns (i32.sub (local.get $turns) (i32.const 1)))))
    (local.set $t
      (i16x8.narrow_i32x4_s (call $level (local.get $r0)) (call $level (local.get $r1))))
    (local.set $u
      (i16x8.narrow_i32x4_s (call $level (local.get $r2)) (call $level (local.get $r3))))
    (local.set $t (i8x16.narrow_i16x8_u (local.get $t) (local.get $u)))
    (v128.store32_lane align=1 0 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store32_lane align=1 1 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store32_lane align=1 2 (local.get $to) (local.get $t))
    (local.set $to (i32.add (local.get $to) (local.get $stride)))
    (v128.store32_lane align=1 3 (local.get $to) (local.get $t)))

  (func $level (param $values v128) (result v128)
    (i32x4.trunc_sat_f32x4_s (f32x4.add (local.get $values) (f32x4.splat (f32.const 128.5)))))

  ;; A coefficient without its quantiser.
  (func $coefficient (param $quantisers i32) (param $at i32) (result i32)
    (i32.mul
      (i32.load16_s offset=64 (local.get $at))
      (i32.load16_u (i32.add (local.get $quantisers) (local.get $at)))))

  ;; An eighth, rounded, as a level.
  (func $put (param $to i32) (param $value i32)
    (local.set $value
      (i32.add (i32.shr_s (i32.add (local.get $value) (i32.const 4)) (i32.const 3)) (i32.const 128)))
    (local.set $value (select (local.get $value) (i32.const 0) (i32.gt_s (local.get $value) (i32.const 0))))
    (i32.store8 (local.get $to)
      (select (local.get $value) (i32.const 255) (i32.lt_s (local.get $value) (i32.const 255)))))

  ;; A block of 4 × 4, 2 × 2 or one sample. Coefficients are zero afterwards.
  (func $smaller (param $side i32) (param $quantisers i32) (param $to i32) (param $stride i32)
    (local $mean i32) (local $across i32) (local $down i32) (local $both i32)
    (if (i32.eq (local.get $side) (i32.const 4))
      (then (call $half (local.get $quantisers) (local.get $to) (local.get $stride)))
      (else
        (local.set $mean (call $coefficient (local.get $quantisers) (i32.const 0)))
        (if (i32.eq (local.get $side) (i32.const 1))
          (then (call $put (local.get $to) (local.get $mean)))
          (else
            (local.set $across (call $coefficient (local.get $quantisers) (i32.const 2)))
            (local.set $down (call $coefficient (local.get $quantisers) (i32.const 16)))
            (local.set $both (call $coefficient (local.get $quantisers) (i32.const 18)))
            (call $put (local.get $to)
              (i32.add (i32.add (local.get $mean) (local.get $across)) (i32.add (local.get $down) (local.get $both))))
            (call $put (i32.add (local.get $to) (i32.const 1))
              (i32.sub (i32.sub (local.get $mean) (local.get $across)) (i32.sub (local.get $both) (local.get $down))))
            (local.set $to (i32.add (local.get $to) (local.get $stride)))
            (call $put (local.get $to)
              (i32.sub (i32.add (local.get $mean) (local.get $across)) (i32.add (local.get $down) (local.get $both))))
            (call $put (i32.add (local.get $to) (i32.const 1))
              (i32.sub (i32.sub (local.get $mean) (local.get $across)) (i32.sub (local.get $down) (local.get $both))))))))
    (call $clear))

  ;; Decode a row of MCUs. Returns 0 where the data is bad.
  ;;   $row: i32 MCUs in a row, first and end of those that are needed, MCUs in a restart interval, MCUs left in the current
  ;;     one, where the end of the current one is written, number of blocks in an MCU; from 32 on, for each block:
  ;;     i32 DC table, AC table, level, quantisers, place of the first block, stride, bytes from one MCU to the next, samples on
  ;;     a side of a decoded block
  (func (export "row") (param $row i32) (result i32)
    (local $mcu i32) (local $from i32) (local $end i32) (local $block i32) (local $blocks i32) (local $last i32) (local $to i32)
    (local $left i32) (local $segment i32)
    (local.set $from (i32.load offset=4 (local.get $row)))
    (local.set $end (i32.load offset=8 (local.get $row)))
    (local.set $blocks
      (i32.add (local.get $row) (i32.shl (i32.load offset=24 (local.get $row)) (i32.const 5))))
    (local.set $left (i32.load offset=16 (local.get $row)))
    (local.set $segment (i32.load offset=20 (local.get $row)))
    (loop $more
      (if (i32.eqz (local.get $left))
        (then
          (if (i32.eqz (call $atEnd (i32.load (local.get $segment)))) (then (return (i32.const 0))))
          (global.set $next (i32.load (local.get $segment)))
          (global.set $count (i32.const 0))
          (global.set $bits (i64.const 0))
          (local.set $segment (i32.add (local.get $segment) (i32.const 4)))
          (local.set $left (i32.load offset=12 (local.get $row)))
          (local.set $block (local.get $row))
          (loop $levels
            (i32.store (i32.load offset=40 (local.get $block)) (i32.const 0))
            (br_if $levels
              (i32.lt_u (local.tee $block (i32.add (local.get $block) (i32.const 32))) (local.get $blocks))))))
      (local.set $block (local.get $row))
      (loop $nextBlock
        (local.set $last
          (call $block
            (i32.load offset=32 (local.get $block))
            (i32.load offset=36 (local.get $block))
            (i32.load offset=40 (local.get $block))))
        (if (i32.lt_s (local.get $last) (i32.const 0)) (then (return (i32.const 0))))
        (if (i32.and (i32.ge_u (local.get $mcu) (local.get $from)) (i32.lt_u (local.get $mcu) (local.get $end)))
          (then
            (local.set $to
              (i32.add
                (i32.load offset=48 (local.get $block))
                (i32.mul (i32.sub (local.get $mcu) (local.get $from)) (i32.load offset=56 (local.get $block)))))
            (if (i32.ne (i32.load offset=60 (local.get $block)) (i32.const 8))
              (then
                (call $smaller
                  (i32.load offset=60 (local.get $block))
                  (i32.load offset=44 (local.get $block)) (local.get $to) (i32.load offset=52 (local.get $block))))
              (else
                (if (local.get $last)
                  (then
                    (call $inverse
                      (i32.load offset=44 (local.get $block)) (local.get $to) (i32.load offset=52 (local.get $block))))
                  (else
                    (call $flat
                      (i32.load offset=44 (local.get $block)) (local.get $to) (i32.load offset=52 (local.get $block))))))))
          (else (call $clear)))
        (br_if $nextBlock
          (i32.lt_u (local.tee $block (i32.add (local.get $block) (i32.const 32))) (local.get $blocks))))
      ;; no further than the end of the data, which zeros follow
      (if (i32.gt_u (global.get $next) (i32.add (i32.load (local.get $segment)) (i32.const 8)))
        (then (return (i32.const 0))))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (local.set $mcu (i32.add (local.get $mcu) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $mcu) (i32.load (local.get $row)))))
    (i32.store offset=16 (local.get $row) (local.get $left))
    (i32.store offset=20 (local.get $row) (local.get $segment))
    (i32.const 1))

  ;; Whether all bytes up to here have been read, and none beyond.
  (func $atEnd (export "atEnd") (param $end i32) (result i32)
    (i32.eq
      (i32.sub (global.get $next) (i32.shr_u (global.get $count) (i32.const 3)))
      (local.get $end)))

  ;; Repeat the outermost samples of lines: one before the first, one behind the last.
  (func (export "edges") (param $at i32) (param $stride i32) (param $lines i32) (param $samples i32)
    (local $end i32)
    (loop $more
      (local.set $end (i32.add (local.get $at) (local.get $samples)))
      (i32.store8 (i32.sub (local.get $at) (i32.const 1)) (i32.load8_u (local.get $at)))
      (i32.store8 (local.get $end) (i32.load8_u (i32.sub (local.get $end) (i32.const 1))))
      (local.set $at (i32.add (local.get $at) (local.get $stride)))
      (br_if $more (local.tee $lines (i32.sub (local.get $lines) (i32.const 1))))))

  ;; Twice as many samples in a line: each is three parts of the nearest and one of the next nearest.
  ;;   $near, $far: the same of the lines, where these are upsampled too; else the same line twice
  ;;   $samples: of $near; rounded up to 8
  ;;   $even, $odd: what is added for rounding, before four bits are cut off
  (func (export "upsample")
    (param $near i32) (param $far i32) (param $samples i32) (param $even i32) (param $odd i32) (param $to i32)
    (local $end i32) (local $before v128) (local $here v128) (local $behind v128) (local $evens v128) (local $odds v128)
    (local.set $end (i32.add (local.get $near) (local.get $samples)))
    (local.set $evens (i16x8.splat (local.get $even)))
    (local.set $odds (i16x8.splat (local.get $odd)))
    (loop $more
      (local.set $here (v128.load8x8_u align=1 (local.get $near)))
      (local.set $here
        (i16x8.add
          (i16x8.add (i16x8.shl (local.get $here) (i32.const 1)) (local.get $here))
          (v128.load8x8_u align=1 (local.get $far))))
      (local.set $before (v128.load8x8_u align=1 (i32.sub (local.get $near) (i32.const 1))))
      (local.set $before
        (i16x8.add
          (i16x8.add (i16x8.shl (local.get $before) (i32.const 1)) (local.get $before))
          (v128.load8x8_u align=1 (i32.sub (local.get $far) (i32.const 1)))))
      (local.set $behind (v128.load8x8_u offset=1 align=1 (local.get $near)))
      (local.set $behind
        (i16x8.add
          (i16x8.add (i16x8.shl (local.get $behind) (i32.const 1)) (local.get $behind))
          (v128.load8x8_u offset=1 align=1 (local.get $far))))
      (local.set $here (i16x8.add (i16x8.shl (local.get $here) (i32.const 1)) (local.get $here)))
      (local.set $before
        (i16x8.shr_u (i16x8.add (i16x8.add (local.get $here) (local.get $before)) (local.get $evens)) (i32.const 4)))
      (local.set $behind
        (i16x8.shr_u (i16x8.add (i16x8.add (local.get $here) (local.get $behind)) (local.get $odds)) (i32.const 4)))
      ;; each fits a byte
      (v128.store align=1 (local.get $to)
        (v128.or (local.get $before) (i16x8.shl (local.get $behind) (i32.const 8))))
      (local.set $to (i32.add (local.get $to) (i32.const 16)))
      (local.set $far (i32.add (local.get $far) (i32.const 8)))
      (br_if $more
        (i32.lt_u (local.tee $near (i32.add (local.get $near) (i32.const 8))) (local.get $end)))))

  ;; A line of YCbCr to interleaved RGB. Up to 52 bytes more than it has are written.
  (func (export "colour") (param $y i32) (param $cb i32) (param $cr i32) (param $samples i32) (param $to i32)
    (local $end i32) (local $blue v128) (local $red v128) (local $green v128)
    (local $y0 v128) (local $y1 v128) (local $cb0 v128) (local $cb1 v128) (local $cr0 v128) (local $cr1 v128)
    (local $sum v128)
    (local.set $end (i32.add (local.get $y) (local.get $samples)))
    (loop $more
      (local.set $y0 (v128.load8x8_u align=1 (local.get $y)))
      (local.set $y1 (v128.load8x8_u offset=8 align=1 (local.get $y)))
      (local.set $cb0 (i16x8.sub (v128.load8x8_u align=1 (local.get $cb)) (i16x8.splat (i32.const 128))))
      (local.set $cb1 (i16x8.sub (v128.load8x8_u offset=8 align=1 (local.get $cb)) (i16x8.splat (i32.const 128))))
      (local.set $cr0 (i16x8.sub (v128.load8x8_u align=1 (local.get $cr)) (i16x8.splat (i32.const 128))))
      (local.set $cr1 (i16x8.sub (v128.load8x8_u offset=8 align=1 (local.get $cr)) (i16x8.splat (i32.const 128))))
      ;; red: Y + 1.402 Cr
      (local.set $red
        (i8x16.narrow_i16x8_u
          (i16x8.add (i16x8.add (local.get $y0) (local.get $cr0))
            (i16x8.q15mulr_sat_s (local.get $cr0) (i16x8.splat (i32.const 13173))))
          (i16x8.add (i16x8.add (local.get $y1) (local.get $cr1))
            (i16x8.q15mulr_sat_s (local.get $cr1) (i16x8.splat (i32.const 13173))))))
      ;; blue: Y + 2 Cb - 0.228 Cb
      (local.set $blue
        (i8x16.narrow_i16x8_u
          (i16x8.add (i16x8.add (local.get $y0) (i16x8.shl (local.get $cb0) (i32.const 1)))
            (i16x8.q15mulr_sat_s (local.get $cb0) (i16x8.splat (i32.const -7471))))
          (i16x8.add (i16x8.add (local.get $y1) (i16x8.shl (local.get $cb1) (i32.const 1)))
            (i16x8.q15mulr_sat_s (local.get $cb1) (i16x8.splat (i32.const -7471))))))
      ;; green: Y - Cr + (0.28586 Cr - 0.34414 Cb)
      (local.set $sum (i32x4.shr_s (i32x4.add (i32x4.dot_i16x8_s (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $cb0) (local.get $cr0)) (v128.const i16x8 -22554 18734 -22554 18734 -22554 18734 -22554 18734)) (i32x4.splat (i32.const 0x8000))) (i32.const 16)))
      (local.set $sum (i16x8.narrow_i32x4_s (local.get $sum) (i32x4.shr_s (i32x4.add (i32x4.dot_i16x8_s (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $cb0) (local.get $cr0)) (v128.const i16x8 -22554 18734 -22554 18734 -22554 18734 -22554 18734)) (i32x4.splat (i32.const 0x8000))) (i32.const 16))))
      (local.set $y0 (i16x8.add (i16x8.sub (local.get $y0) (local.get $cr0)) (local.get $sum)))
      (local.set $sum (i32x4.shr_s (i32x4.add (i32x4.dot_i16x8_s (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $cb1) (local.get $cr1)) (v128.const i16x8 -22554 18734 -22554 18734 -22554 18734 -22554 18734)) (i32x4.splat (i32.const 0x8000))) (i32.const 16)))
      (local.set $sum (i16x8.narrow_i32x4_s (local.get $sum) (i32x4.shr_s (i32x4.add (i32x4.dot_i16x8_s (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $cb1) (local.get $cr1)) (v128.const i16x8 -22554 18734 -22554 18734 -22554 18734 -22554 18734)) (i32x4.splat (i32.const 0x8000))) (i32.const 16))))
      (local.set $y1 (i16x8.add (i16x8.sub (local.get $y1) (local.get $cr1)) (local.get $sum)))
      (local.set $green (i8x16.narrow_i16x8_u (local.get $y0) (local.get $y1)))
      ;; red, green, blue, nothing; then three bytes of each four
      (local.set $y0 (i8x16.shuffle 0 16 1 17 2 18 3 19 4 20 5 21 6 22 7 23 (local.get $red) (local.get $green)))
      (local.set $y1 (i8x16.shuffle 8 24 9 25 10 26 11 27 12 28 13 29 14 30 15 31 (local.get $red) (local.get $green)))
      (local.set $cb0 (i16x8.extend_low_i8x16_u (local.get $blue)))
      (local.set $cb1 (i16x8.extend_high_i8x16_u (local.get $blue)))
      (v128.store offset=0 align=1 (local.get $to) (i8x16.swizzle (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $y0) (local.get $cb0)) (v128.const i8x16 0 1 2 4 5 6 8 9 10 12 13 14 -1 -1 -1 -1)))
      (v128.store offset=12 align=1 (local.get $to) (i8x16.swizzle (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $y0) (local.get $cb0)) (v128.const i8x16 0 1 2 4 5 6 8 9 10 12 13 14 -1 -1 -1 -1)))
      (v128.store offset=24 align=1 (local.get $to) (i8x16.swizzle (i8x16.shuffle 0 1 16 17 2 3 18 19 4 5 20 21 6 7 22 23 (local.get $y1) (local.get $cb1)) (v128.const i8x16 0 1 2 4 5 6 8 9 10 12 13 14 -1 -1 -1 -1)))
      (v128.store offset=36 align=1 (local.get $to) (i8x16.swizzle (i8x16.shuffle 8 9 24 25 10 11 26 27 12 13 28 29 14 15 30 31 (local.get $y1) (local.get $cb1)) (v128.const i8x16 0 1 2 4 5 6 8 9 10 12 13 14 -1 -1 -1 -1)))
      (local.set $to (i32.add (local.get $to) (i32.const 48)))
      (local.set $cb (i32.add (local.get $cb) (i32.const 16)))
      (local.set $cr (i32.add (local.get $cr) (i32.const 16)))
      (br_if $more
        (i32.lt_u (local.tee $y (i32.add (local.get $y) (i32.const 16))) (local.get $end))))))
