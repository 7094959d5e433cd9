/** Seeded noise for the painted scenes, from integer hashes, so that images are the same on every machine. */

/** Returns a value in 0..1 for a point of the integer lattice. */
export function hash(x: number, y: number, seed: number): number {
  let word = Math.imul(x, 0x27d4eb2d) ^ Math.imul(y, 0x165667b1) ^ Math.imul(seed, 0x9e3779b1);
  word = Math.imul(word ^ (word >>> 15), 0x85ebca6b);
  word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35);
  return ((word ^ (word >>> 16)) >>> 0) / 0x1_0000_0000;
}

/** Smooth noise in 0..1 with features of size 1. */
export function noise(x: number, y: number, seed: number): number {
  const [left, top] = [Math.floor(x), Math.floor(y)];
  const [u, v] = [fade(x - left), fade(y - top)];
  const upper = mix(hash(left, top, seed), hash(left + 1, top, seed), u);
  const lower = mix(hash(left, top + 1, seed), hash(left + 1, top + 1, seed), u);
  return mix(upper, lower, v);
}

/** Fractal noise in 0..1: every octave has half the size and half the strength, as landscapes and clouds do. */
export function fractal(x: number, y: number, octaves: number, seed: number): number {
  let [sum, strength, total] = [0, 1, 0];
  for (let octave = 0; octave < octaves; octave++) {
    sum += strength * noise(x * 2 ** octave, y * 2 ** octave, seed + octave);
    total += strength;
    strength /= 2;
  }
  return sum / total;
}

export function mix(a: number, b: number, t: number): number {
  return a + (b - a) * t;
}

/** 0 below `from`, 1 above `to`, smooth between. */
export function step(from: number, to: number, value: number): number {
  return fade(Math.min(1, Math.max(0, (value - from) / (to - from))));
}

function fade(t: number): number {
  return t * t * (3 - 2 * t);
}
