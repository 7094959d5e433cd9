;; Pillow's resampling of 8-bit images (ImagingResample), bit for bit, with 128-bit SIMD. `resample.mjs` lays out the memory
;; and calls it. After a change, compile it, at the root of the repository:
;;
;;   npx wat2wasm inference-image/src/engine/resample.wat -o inference-image/src/engine/resample.wasm
;;
;; A weight w has 22 fractional bits. It is split into high and low, w = high × 2^15 + low, each of 16 bits, so that one
;; `i32x4.dot_i16x8_s` multiplies and adds eight of them. The sum of the parts, put together, is the sum that Pillow
;; computes: 32-bit arithmetic is exact modulo 2^32, and Pillow's sum fits 32 bits.
(module
  (memory (export "memory") 1)

  ;; Round to 8 bits and clip: a sum of high parts and a sum of low parts in each of four lanes; 8-bit values in the first
  ;; four bytes.
  (func $rounded (param $high v128) (param $low v128) (result v128)
    (local.set $low
      (i32x4.shr_s
        (i32x4.add
          (i32x4.add (i32x4.shl (local.get $high) (i32.const 15)) (local.get $low))
          (i32x4.splat (i32.const 0x200000)))
        (i32.const 22)))
    (local.set $low (i16x8.narrow_i32x4_s (local.get $low) (local.get $low)))
    (i8x16.narrow_i16x8_u (local.get $low) (local.get $low)))

  ;; Four results of a horizontal pass, each in the form (high, high, low, low), as 8-bit values in the first four bytes.
  (func $gathered (param $a v128) (param $b v128) (param $c v128) (param $d v128) (result v128)
    (local $ab v128) (local $cd v128) (local $high v128)
    (local.set $ab (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $a) (local.get $b)))
    (local.set $cd (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $c) (local.get $d)))
    (local.set $high
      (i32x4.add
        (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $ab) (local.get $cd))
        (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $ab) (local.get $cd))))
    (local.set $ab (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $a) (local.get $b)))
    (local.set $cd (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $c) (local.get $d)))
    (call $rounded
      (local.get $high)
      (i32x4.add
        (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $ab) (local.get $cd))
        (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $ab) (local.get $cd)))))

  ;; Horizontal passes, one for each number of channels. All take
  ;;   $from, $stride, $rows: lines of interleaved samples; up to 16 bytes behind the last one are read and not used
  ;;   $taps, $columns: for each column of the result
  ;;     i32 offset in bytes of its first pixel in a line, i32 number of groups of four pixels, and of each group
  ;;     16 bytes: i16 high parts of four weights, i16 low parts
  ;;   $to, $toStride: lines of the result; up to 3 bytes behind each one are written
  ;; `dot` of a group with four samples of a channel, twice, gives the sums (high, high, low, low).

  (func (export "horizontal1")
    (param $from i32) (param $stride i32) (param $rows i32)
    (param $taps i32) (param $columns i32)
    (param $to i32) (param $toStride i32)
    (local $at i32) (local $pixel i32) (local $groups i32) (local $left i32) (local $out i32)
    (local $a v128)
    (loop $row
      (local.set $at (local.get $taps))
      (local.set $out (local.get $to))
      (local.set $left (local.get $columns))
      (loop $column
        (local.set $pixel (i32.add (local.get $from) (i32.load (local.get $at))))
        (local.set $groups (i32.load offset=4 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $a (v128.const i32x4 0 0 0 0))
        (loop $group
          (local.set $a
            (i32x4.add (local.get $a)
              (i32x4.dot_i16x8_s
                (v128.load align=4 (local.get $at))
                (i8x16.swizzle
                  (v128.load32_zero (local.get $pixel))
                  (v128.const i8x16 0 -1 1 -1 2 -1 3 -1 0 -1 1 -1 2 -1 3 -1)))))
          (local.set $pixel (i32.add (local.get $pixel) (i32.const 4)))
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br_if $group (local.tee $groups (i32.sub (local.get $groups) (i32.const 1)))))
        (v128.store8_lane 0
          (local.get $out)
          (call $gathered (local.get $a) (local.get $a) (local.get $a) (local.get $a)))
        (local.set $out (i32.add (local.get $out) (i32.const 1)))
        (br_if $column (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (local.set $from (i32.add (local.get $from) (local.get $stride)))
      (local.set $to (i32.add (local.get $to) (local.get $toStride)))
      (br_if $row (local.tee $rows (i32.sub (local.get $rows) (i32.const 1))))))

  (func (export "horizontal2")
    (param $from i32) (param $stride i32) (param $rows i32)
    (param $taps i32) (param $columns i32)
    (param $to i32) (param $toStride i32)
    (local $at i32) (local $pixel i32) (local $groups i32) (local $left i32) (local $out i32)
    (local $weights v128) (local $pixels v128) (local $a v128) (local $b v128)
    (loop $row
      (local.set $at (local.get $taps))
      (local.set $out (local.get $to))
      (local.set $left (local.get $columns))
      (loop $column
        (local.set $pixel (i32.add (local.get $from) (i32.load (local.get $at))))
        (local.set $groups (i32.load offset=4 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $a (v128.const i32x4 0 0 0 0))
        (local.set $b (v128.const i32x4 0 0 0 0))
        (loop $group
          (local.set $weights (v128.load align=4 (local.get $at)))
          (local.set $pixels (v128.load64_zero align=1 (local.get $pixel)))
          (local.set $a
            (i32x4.add (local.get $a)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 0 -1 2 -1 4 -1 6 -1 0 -1 2 -1 4 -1 6 -1)))))
          (local.set $b
            (i32x4.add (local.get $b)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 1 -1 3 -1 5 -1 7 -1 1 -1 3 -1 5 -1 7 -1)))))
          (local.set $pixel (i32.add (local.get $pixel) (i32.const 8)))
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br_if $group (local.tee $groups (i32.sub (local.get $groups) (i32.const 1)))))
        (v128.store16_lane align=1 0
          (local.get $out)
          (call $gathered (local.get $a) (local.get $b) (local.get $a) (local.get $b)))
        (local.set $out (i32.add (local.get $out) (i32.const 2)))
        (br_if $column (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (local.set $from (i32.add (local.get $from) (local.get $stride)))
      (local.set $to (i32.add (local.get $to) (local.get $toStride)))
      (br_if $row (local.tee $rows (i32.sub (local.get $rows) (i32.const 1))))))

  (func (export "horizontal3")
    (param $from i32) (param $stride i32) (param $rows i32)
    (param $taps i32) (param $columns i32)
    (param $to i32) (param $toStride i32)
    (local $at i32) (local $pixel i32) (local $groups i32) (local $left i32) (local $out i32)
    (local $weights v128) (local $pixels v128) (local $a v128) (local $b v128) (local $c v128)
    (loop $row
      (local.set $at (local.get $taps))
      (local.set $out (local.get $to))
      (local.set $left (local.get $columns))
      (loop $column
        (local.set $pixel (i32.add (local.get $from) (i32.load (local.get $at))))
        (local.set $groups (i32.load offset=4 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $a (v128.const i32x4 0 0 0 0))
        (local.set $b (v128.const i32x4 0 0 0 0))
        (local.set $c (v128.const i32x4 0 0 0 0))
        (loop $group
          (local.set $weights (v128.load align=4 (local.get $at)))
          (local.set $pixels (v128.load align=1 (local.get $pixel)))
          (local.set $a
            (i32x4.add (local.get $a)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 0 -1 3 -1 6 -1 9 -1 0 -1 3 -1 6 -1 9 -1)))))
          (local.set $b
            (i32x4.add (local.get $b)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 1 -1 4 -1 7 -1 10 -1 1 -1 4 -1 7 -1 10 -1)))))
          (local.set $c
            (i32x4.add (local.get $c)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 2 -1 5 -1 8 -1 11 -1 2 -1 5 -1 8 -1 11 -1)))))
          (local.set $pixel (i32.add (local.get $pixel) (i32.const 12)))
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br_if $group (local.tee $groups (i32.sub (local.get $groups) (i32.const 1)))))
        ;; $gathered, written out: most images have three channels, and a call costs as much as a group
        (local.set $pixels (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $a) (local.get $b)))
        (local.set $weights (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $a) (local.get $b)))
        (local.set $a
          (i32x4.add
            (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $pixels) (local.get $c))
            (i8x16.shuffle 8 9 10 11 12 13 14 15 20 21 22 23 20 21 22 23 (local.get $pixels) (local.get $c))))
        (local.set $b
          (i32x4.add
            (i8x16.shuffle 0 1 2 3 4 5 6 7 24 25 26 27 24 25 26 27 (local.get $weights) (local.get $c))
            (i8x16.shuffle 8 9 10 11 12 13 14 15 28 29 30 31 28 29 30 31 (local.get $weights) (local.get $c))))
        (local.set $a
          (i32x4.shr_s
            (i32x4.add
              (i32x4.add (i32x4.shl (local.get $a) (i32.const 15)) (local.get $b))
              (v128.const i32x4 0x200000 0x200000 0x200000 0x200000))
            (i32.const 22)))
        (local.set $a (i16x8.narrow_i32x4_s (local.get $a) (local.get $a)))
        (v128.store32_lane align=1 0
          (local.get $out)
          (i8x16.narrow_i16x8_u (local.get $a) (local.get $a)))
        (local.set $out (i32.add (local.get $out) (i32.const 3)))
        (br_if $column (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (local.set $from (i32.add (local.get $from) (local.get $stride)))
      (local.set $to (i32.add (local.get $to) (local.get $toStride)))
      (br_if $row (local.tee $rows (i32.sub (local.get $rows) (i32.const 1))))))

  (func (export "horizontal4")
    (param $from i32) (param $stride i32) (param $rows i32)
    (param $taps i32) (param $columns i32)
    (param $to i32) (param $toStride i32)
    (local $at i32) (local $pixel i32) (local $groups i32) (local $left i32) (local $out i32)
    (local $weights v128) (local $pixels v128)
    (local $a v128) (local $b v128) (local $c v128) (local $d v128)
    (loop $row
      (local.set $at (local.get $taps))
      (local.set $out (local.get $to))
      (local.set $left (local.get $columns))
      (loop $column
        (local.set $pixel (i32.add (local.get $from) (i32.load (local.get $at))))
        (local.set $groups (i32.load offset=4 (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $a (v128.const i32x4 0 0 0 0))
        (local.set $b (v128.const i32x4 0 0 0 0))
        (local.set $c (v128.const i32x4 0 0 0 0))
        (local.set $d (v128.const i32x4 0 0 0 0))
        (loop $group
          (local.set $weights (v128.load align=4 (local.get $at)))
          (local.set $pixels (v128.load align=1 (local.get $pixel)))
          (local.set $a
            (i32x4.add (local.get $a)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 0 -1 4 -1 8 -1 12 -1 0 -1 4 -1 8 -1 12 -1)))))
          (local.set $b
            (i32x4.add (local.get $b)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 1 -1 5 -1 9 -1 13 -1 1 -1 5 -1 9 -1 13 -1)))))
          (local.set $c
            (i32x4.add (local.get $c)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 2 -1 6 -1 10 -1 14 -1 2 -1 6 -1 10 -1 14 -1)))))
          (local.set $d
            (i32x4.add (local.get $d)
              (i32x4.dot_i16x8_s (local.get $weights)
                (i8x16.swizzle (local.get $pixels)
                  (v128.const i8x16 3 -1 7 -1 11 -1 15 -1 3 -1 7 -1 11 -1 15 -1)))))
          (local.set $pixel (i32.add (local.get $pixel) (i32.const 16)))
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (br_if $group (local.tee $groups (i32.sub (local.get $groups) (i32.const 1)))))
        (v128.store32_lane align=1 0
          (local.get $out)
          (call $gathered (local.get $a) (local.get $b) (local.get $c) (local.get $d)))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (br_if $column (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (local.set $from (i32.add (local.get $from) (local.get $stride)))
      (local.set $to (i32.add (local.get $to) (local.get $toStride)))
      (br_if $row (local.tee $rows (i32.sub (local.get $rows) (i32.const 1))))))

  ;; Vertical pass, for any number of channels.
  ;;   $from, $stride: lines of samples; one line and 16 bytes behind the last one are read and not used
  ;;   $bytes: samples in a line, a multiple of 16
  ;;   $taps, $rows: for each row of the result
  ;;     i32 offset in bytes of its first line, i32 number of pairs of lines, and of each pair
  ;;     8 bytes: i16 high parts of two weights, i16 low parts
  ;;   $to: lines of the result, $bytes apart
  (func (export "vertical")
    (param $from i32) (param $stride i32) (param $bytes i32)
    (param $taps i32) (param $rows i32)
    (param $to i32)
    (local $at i32) (local $line i32) (local $first i32) (local $pairs i32) (local $left i32) (local $sample i32)
    (local $x v128) (local $y v128) (local $wide v128) (local $high v128) (local $low v128)
    (local $high0 v128) (local $high1 v128) (local $high2 v128) (local $high3 v128)
    (local $low0 v128) (local $low1 v128) (local $low2 v128) (local $low3 v128)
    (loop $row
      (local.set $first (i32.add (local.get $from) (i32.load (local.get $taps))))
      (local.set $pairs (i32.load offset=4 (local.get $taps)))
      (local.set $taps (i32.add (local.get $taps) (i32.const 8)))
      (local.set $sample (i32.const 0))
      (loop $samples
        (local.set $at (local.get $taps))
        (local.set $line (i32.add (local.get $first) (local.get $sample)))
        (local.set $left (local.get $pairs))
        (local.set $high0 (v128.const i32x4 0 0 0 0))
        (local.set $high1 (v128.const i32x4 0 0 0 0))
        (local.set $high2 (v128.const i32x4 0 0 0 0))
        (local.set $high3 (v128.const i32x4 0 0 0 0))
        (local.set $low0 (v128.const i32x4 0 0 0 0))
        (local.set $low1 (v128.const i32x4 0 0 0 0))
        (local.set $low2 (v128.const i32x4 0 0 0 0))
        (local.set $low3 (v128.const i32x4 0 0 0 0))
        (loop $pair
          (local.set $x (v128.load align=1 (local.get $line)))
          (local.set $y (v128.load align=1 (i32.add (local.get $line) (local.get $stride))))
          (local.set $high (v128.load32_splat (local.get $at)))
          (local.set $low (v128.load32_splat offset=4 (local.get $at)))

          (local.set $wide
            (i8x16.shuffle 0 16 1 17 2 18 3 19 4 20 5 21 6 22 7 23 (local.get $x) (local.get $y)))
          (local.set $x
            (i8x16.shuffle 8 24 9 25 10 26 11 27 12 28 13 29 14 30 15 31 (local.get $x) (local.get $y)))
          (local.set $y (i16x8.extend_low_i8x16_u (local.get $wide)))
          (local.set $high0 (i32x4.add (local.get $high0) (i32x4.dot_i16x8_s (local.get $y) (local.get $high))))
          (local.set $low0 (i32x4.add (local.get $low0) (i32x4.dot_i16x8_s (local.get $y) (local.get $low))))
          (local.set $y (i16x8.extend_high_i8x16_u (local.get $wide)))
          (local.set $high1 (i32x4.add (local.get $high1) (i32x4.dot_i16x8_s (local.get $y) (local.get $high))))
          (local.set $low1 (i32x4.add (local.get $low1) (i32x4.dot_i16x8_s (local.get $y) (local.get $low))))
          (local.set $y (i16x8.extend_low_i8x16_u (local.get $x)))
          (local.set $high2 (i32x4.add (local.get $high2) (i32x4.dot_i16x8_s (local.get $y) (local.get $high))))
          (local.set $low2 (i32x4.add (local.get $low2) (i32x4.dot_i16x8_s (local.get $y) (local.get $low))))
          (local.set $y (i16x8.extend_high_i8x16_u (local.get $x)))
          (local.set $high3 (i32x4.add (local.get $high3) (i32x4.dot_i16x8_s (local.get $y) (local.get $high))))
          (local.set $low3 (i32x4.add (local.get $low3) (i32x4.dot_i16x8_s (local.get $y) (local.get $low))))

          (local.set $line (i32.add (local.get $line) (i32.shl (local.get $stride) (i32.const 1))))
          (local.set $at (i32.add (local.get $at) (i32.const 8)))
          (br_if $pair (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (local.set $line (i32.add (local.get $to) (local.get $sample)))
        (v128.store32_lane 0 (local.get $line) (call $rounded (local.get $high0) (local.get $low0)))
        (v128.store32_lane offset=4 0 (local.get $line) (call $rounded (local.get $high1) (local.get $low1)))
        (v128.store32_lane offset=8 0 (local.get $line) (call $rounded (local.get $high2) (local.get $low2)))
        (v128.store32_lane offset=12 0 (local.get $line) (call $rounded (local.get $high3) (local.get $low3)))
        (br_if $samples
          (i32.lt_u
            (local.tee $sample (i32.add (local.get $sample) (i32.const 16)))
            (local.get $bytes))))
      (local.set $taps (local.get $at))
      (local.set $to (i32.add (local.get $to) (local.get $bytes)))
      (br_if $row (local.tee $rows (i32.sub (local.get $rows) (i32.const 1))))))

  ;; Weigh the colours of interleaved pixels by their alpha, the last channel, in place: colour × alpha / 255, rounded as
  ;; Pillow does. `$bytes` is rounded up to 16.
  ;;   $alpha: for each of 16 bytes, where in them its pixel's alpha is
  ;;   $keep: for each of 16 bytes, all bits where it is itself an alpha, none where it is a colour
  (func (export "premultiply") (param $at i32) (param $bytes i32) (param $masks i32)
    (local $end i32) (local $where v128) (local $keep v128) (local $pixels v128) (local $alpha v128)
    (local $low v128) (local $high v128)
    (local.set $end (i32.add (local.get $at) (local.get $bytes)))
    (local.set $where (v128.load (local.get $masks)))
    (local.set $keep (v128.load offset=16 (local.get $masks)))
    (loop $next
      (local.set $pixels (v128.load align=1 (local.get $at)))
      ;; a weight of 255 leaves alpha as it is
      (local.set $alpha
        (v128.or (i8x16.swizzle (local.get $pixels) (local.get $where)) (local.get $keep)))
      (local.set $low
        (i16x8.add (i16x8.extmul_low_i8x16_u (local.get $pixels) (local.get $alpha)) (i16x8.splat (i32.const 128))))
      (local.set $high
        (i16x8.add (i16x8.extmul_high_i8x16_u (local.get $pixels) (local.get $alpha)) (i16x8.splat (i32.const 128))))
      (local.set $low
        (i16x8.shr_u (i16x8.add (local.get $low) (i16x8.shr_u (local.get $low) (i32.const 8))) (i32.const 8)))
      (local.set $high
        (i16x8.shr_u (i16x8.add (local.get $high) (i16x8.shr_u (local.get $high) (i32.const 8))) (i32.const 8)))
      (v128.store align=1 (local.get $at) (i8x16.narrow_i16x8_u (local.get $low) (local.get $high)))
      (br_if $next
        (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 16))) (local.get $end))))))
