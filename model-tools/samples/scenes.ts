import { fractal, hash, mix, noise, step } from "./noise.ts";

/** Red, green and blue, 0..1; what lies outside is clipped. */
type Colour = readonly [number, number, number];

/**
 * Colour at a point of a scene. `x` runs 0..aspect from left to right, `y` 0..1 from top to bottom, so that a scene can be
 * painted at any size; `pixel` is the size of a pixel in that unit.
 */
export type Scene = (x: number, y: number, pixel: number) => Colour;

const blend = (a: Colour, b: Colour, t: number): Colour => [
  mix(a[0], b[0], t),
  mix(a[1], b[1], t),
  mix(a[2], b[2], t),
];
const lit = (colour: Colour, light: number): Colour => [
  colour[0] * light,
  colour[1] * light,
  colour[2] * light,
];

/** Ridges behind each other, fading into haze, under a sky with clouds. */
export const mountains: Scene = (x, y) => {
  const clouds = step(0.45, 0.75, fractal(x * 3, y * 7, 6, 11));
  const sky = blend([0.32, 0.55, 0.86], [0.86, 0.9, 0.95], y * 1.6);
  let colour = blend(sky, [0.97, 0.96, 0.95], clouds * 0.8);
  for (let ridge = 0; ridge < 4; ridge++) {
    const height =
      0.34 +
      ridge * 0.15 -
      (0.36 - ridge * 0.06) * (fractal(x * (1.3 + ridge * 0.5), ridge, 7, 20 + ridge) - 0.35);
    if (y < height) continue;
    const slope =
      fractal(x * 6, y * 9, 5, 40 + ridge) -
      fractal((x + 0.02) * 6, (y + 0.015) * 9, 5, 40 + ridge);
    const snow = ridge < 2 ? step(0.16, 0.02, y - height) * step(-0.02, 0.05, slope + 0.02) : 0;
    const rock: Colour = blend([0.36, 0.33, 0.31], [0.16, 0.27, 0.13], ridge / 3);
    const face = lit(rock, 0.75 + 3.2 * slope + 0.5 * (fractal(x * 60, y * 60, 3, 50) - 0.5));
    colour = blend(blend(face, [0.95, 0.97, 1], snow), [0.66, 0.74, 0.85], 0.55 - ridge * 0.18);
  }
  return colour;
};

/** A low sun over water. */
export const sunset: Scene = (x, y, pixel) => {
  const horizon = 0.56;
  const sky = (height: number): Colour => {
    const cloud = step(0.42, 0.7, fractal(x * 2.2, height * 9, 6, 61));
    const base = blend([0.2, 0.16, 0.36], [0.99, 0.55, 0.22], height / horizon);
    const glow = Math.exp(-14 * Math.hypot(x - 0.9, (height - 0.47) * 1.6));
    return blend(blend(base, [0.85, 0.32, 0.3], cloud * 0.7), [1, 0.93, 0.7], glow * 1.4);
  };
  if (y < horizon) {
    return Math.hypot(x - 0.9, y - 0.47) < 0.045 ? [1, 0.97, 0.85] : sky(y);
  }
  const depth = (y - horizon) / (1 - horizon);
  const wave = fractal(x * (26 - 20 * depth), 4 / (depth + 0.06), 4, 71) - 0.5;
  const mirrored = sky(Math.max(0, horizon - (y - horizon) * 0.9 + wave * 0.12));
  const glitter =
    step(0.62, 0.8, noise(x * 70, y * 260, 73)) * Math.exp(-9 * Math.abs(x - 0.9 - wave * 0.2));
  return blend(
    lit(mirrored, 0.55 - 0.2 * depth + wave * 0.5),
    [1, 0.85, 0.6],
    glitter * (pixel < 1 ? 0.9 : 0),
  );
};

/** Trunks, undergrowth, and light through the leaves. */
export const forest: Scene = (x, y) => {
  const leaves = fractal(x * 9, y * 9, 6, 81);
  let colour = blend([0.1, 0.2, 0.06], [0.62, 0.78, 0.3], step(0.35, 0.75, leaves) * (1.1 - y));
  colour = blend(
    colour,
    [0.95, 0.97, 0.8],
    step(0.66, 0.8, fractal(x * 14, y * 14, 4, 82)) * step(0.7, 0.1, y),
  );
  for (let trunk = 0; trunk < 9; trunk++) {
    const middle = hash(trunk, 1, 83) * 1.1 + 0.02 * (noise(y * 3, trunk, 84) - 0.5);
    const half = 0.008 + 0.03 * hash(trunk, 2, 83);
    const across = (x - middle) / half;
    if (Math.abs(across) > 1) continue;
    const bark = fractal(x * 120, y * 14, 4, 85 + trunk);
    colour = lit([0.34, 0.25, 0.18], (0.35 + bark) * (1 - 0.7 * (across + 0.2) ** 2));
  }
  const ground = step(0.78, 0.86, y + 0.05 * noise(x * 8, 0, 90));
  return blend(colour, lit([0.36, 0.27, 0.13], 0.4 + fractal(x * 45, y * 70, 4, 91)), ground);
};

/** Towers with lit windows, mirrored in a wet street. */
export const city: Scene = (x, y) => {
  const street = 0.8;
  const mirror = y > street;
  const height = mirror
    ? street - (y - street) * 2.6 + 0.03 * (noise(x * 40, y * 90, 101) - 0.5)
    : y;
  let colour = blend([0.03, 0.04, 0.1], [0.3, 0.18, 0.22], height);
  for (let row = 0; row < 3; row++) {
    const wide = 0.16 - row * 0.03;
    const tower = Math.floor((x + row * 0.07) / wide);
    const roof = 0.12 + row * 0.14 + 0.36 * hash(tower, row, 102);
    if (height < roof || hash(tower, row, 103) < 0.15) continue;
    const [column, floor] = [
      Math.floor(x * (110 - 25 * row)),
      Math.floor(height * (80 - 18 * row)),
    ];
    const [insideX, insideY] = [x * (110 - 25 * row) - column, height * (80 - 18 * row) - floor];
    const window = insideX > 0.3 && insideY > 0.35 && hash(column, floor, 104 + row) > 0.62;
    const warm = hash(column, floor, 120);
    const wall = lit(
      [0.13, 0.14, 0.2],
      0.5 + row * 0.3 + 0.3 * fractal(x * 30, height * 30, 3, 105),
    );
    colour = window ? lit([1, 0.72 + 0.2 * warm, 0.35 + 0.5 * warm], 0.6 + 0.4 * warm) : wall;
  }
  return mirror ? lit(colour, 0.55) : colour;
};

/** Dunes with a shadow side and wind ripples. */
export const dunes: Scene = (x, y) => {
  let colour: Colour = blend([0.36, 0.6, 0.88], [0.85, 0.88, 0.88], y * 2);
  for (let dune = 0; dune < 5; dune++) {
    const crest =
      0.3 +
      dune * 0.14 +
      0.1 * Math.sin(x * (2.2 + dune * 0.7) + dune * 2.1) +
      0.05 * noise(x * 2, dune, 131);
    if (y < crest) continue;
    const side = step(
      -0.08,
      0.1,
      Math.cos(x * (2.2 + dune * 0.7) + dune * 2.1) * 0.1 - (y - crest) * 0.2,
    );
    const ripple = Math.sin(y * 210 - x * 60 + 9 * fractal(x * 5, y * 5, 4, 132)) * 0.05;
    const grain = 0.1 * (hash(Math.floor(x * 900), Math.floor(y * 900), 133) - 0.5);
    colour = lit(
      blend([0.55, 0.33, 0.18], [0.95, 0.74, 0.46], side),
      0.85 + ripple + grain + dune * 0.03,
    );
  }
  return colour;
};

/** A blossom against leaves that are out of focus. */
export const flower: Scene = (x, y) => {
  const [dx, dy] = [x - 0.52, y - 0.48];
  const radius = Math.hypot(dx, dy);
  const angle = Math.atan2(dy, dx);
  const blur = fractal(x * 3, y * 3, 2, 141);
  let colour = blend([0.1, 0.22, 0.08], [0.5, 0.66, 0.26], step(0.25, 0.75, blur));
  for (const [petals, reach, seed] of [
    [13, 0.42, 142],
    [11, 0.33, 143],
    [8, 0.22, 144],
  ] as const) {
    const turned = angle * petals * 0.5 + seed;
    const edge = reach * (0.62 + 0.38 * Math.abs(Math.cos(turned)));
    if (radius > edge) continue;
    const vein = 0.1 * (fractal(angle * 24, radius * 5, 4, seed) - 0.5);
    const shade = 0.55 + 0.5 * (radius / edge) + vein - 0.22 * Math.abs(Math.sin(turned)) ** 6;
    colour = lit(blend([0.98, 0.86, 0.3], [0.9, 0.2, 0.42], step(0, reach, radius)), shade);
  }
  if (radius < 0.09) {
    const seedDot = noise(dx * 130, dy * 130, 145);
    colour = lit([0.5, 0.32, 0.08], 0.5 + seedDot + 0.8 * (0.09 - radius));
  }
  return colour;
};

/** Shaded fruit on a table. */
export const fruit: Scene = (x, y) => {
  const table = y > 0.58;
  const grain = fractal(x * 3, y * 60 + 3 * noise(x * 2, y * 3, 151), 4, 152);
  let colour: Colour = table
    ? lit([0.56, 0.36, 0.2], 0.6 + 0.6 * grain)
    : lit([0.42, 0.46, 0.5], 0.75 + 0.3 * fractal(x * 2, y * 2, 4, 153));
  const pieces = [
    [0.42, 0.55, 0.2, [0.86, 0.18, 0.12]],
    [0.78, 0.6, 0.17, [0.95, 0.56, 0.1]],
    [1.08, 0.55, 0.21, [0.55, 0.7, 0.16]],
    [0.62, 0.74, 0.13, [0.45, 0.12, 0.3]],
  ] as const;
  for (const [cx, cy, size, paint] of pieces) {
    const shadow = Math.hypot((x - cx - 0.06) / 1.25, (y - cy - size * 0.92) * 3.2) / size;
    if (table && shadow < 1) colour = lit(colour, 0.35 + 0.65 * step(0.4, 1, shadow));
    const [dx, dy] = [(x - cx) / size, (y - cy) / size];
    const round = dx * dx + dy * dy;
    if (round > 1) continue;
    const dz = Math.sqrt(1 - round);
    const light = Math.max(0, -0.5 * dx - 0.6 * dy + 0.62 * dz);
    const skin = 0.85 + 0.4 * (fractal(dx * 9 + cx, dy * 9, 4, 155) - 0.5);
    const shine = Math.max(0, light - 0.93) * 9;
    colour = blend(lit(paint, (0.18 + 0.95 * light) * skin), [1, 1, 1], Math.min(1, shine));
  }
  return colour;
};

/** Lights out of focus. */
export const lights: Scene = (x, y) => {
  let colour = lit([0.1, 0.08, 0.14], 0.5 + fractal(x * 2, y * 2, 4, 161));
  for (let i = 0; i < 46; i++) {
    const size = 0.02 + 0.07 * hash(i, 3, 162);
    const away = Math.hypot(x - 1.6 * hash(i, 1, 162), y - hash(i, 2, 162)) / size;
    if (away > 1) continue;
    const hue = hash(i, 4, 162);
    const paint: Colour = [0.9, 0.35 + 0.5 * hue, 0.15 + 0.7 * hash(i, 5, 162) * hue];
    colour = blend(colour, paint, (0.35 + 0.25 * step(0.75, 0.95, away)) * step(1, 0.93, away));
  }
  return colour;
};

/** A wall of bricks in raking light. */
export const bricks: Scene = (x, y) => {
  const row = Math.floor(y * 13);
  const across = x * 6 + (row % 2) * 0.5;
  const column = Math.floor(across);
  const [u, v] = [across - column, y * 13 - row];
  const rough = fractal(x * 40, y * 40, 4, 171);
  const joint =
    Math.min(u, 1 - u) * 2.1 < 0.12 + 0.06 * rough || Math.min(v, 1 - v) < 0.09 + 0.04 * rough;
  if (joint) return lit([0.66, 0.63, 0.58], 0.6 + 0.5 * rough);
  const tone = 0.65 + 0.5 * hash(column, row, 172);
  return lit([0.62, 0.28, 0.2], tone * (0.55 + 0.8 * rough) * (1.1 - 0.2 * v));
};

/** A plank with rings and a knot. */
export const wood: Scene = (x, y) => {
  const knot = Math.exp(-30 * ((x - 0.6) ** 2 + 3 * (y - 0.45) ** 2));
  const ring = x * 3 + y * 22 + 5 * knot + 2.2 * fractal(x * 1.5, y * 5, 4, 181);
  const line = 0.5 + 0.5 * Math.sin(ring * 5);
  const fibre = fractal(x * 8, y * 220, 3, 182);
  return lit(
    blend([0.72, 0.5, 0.29], [0.46, 0.27, 0.13], line * 0.6 + knot * 0.6),
    0.72 + 0.5 * fibre,
  );
};

/** Land from above, lit from the north-west. */
export const terrain: Scene = (x, y) => {
  const at = (px: number, py: number) => fractal(px * 4, py * 4, 8, 191);
  const height = at(x, y);
  const light = 0.72 + 26 * (at(x + 0.004, y + 0.004) - height);
  if (height < 0.42) return lit([0.1, 0.28, 0.42], 0.7 + height + 0.1 * noise(x * 60, y * 60, 192));
  const paint = blend([0.32, 0.45, 0.2], [0.62, 0.56, 0.44], step(0.5, 0.66, height));
  return lit(paint, light);
};

/** Clouds from above the horizon, no ground. */
export const clouds: Scene = (x, y) => {
  const bend = fractal(x * 2, y * 2, 4, 201);
  const cover = step(0.38, 0.68, fractal(x * 2.4 + bend, y * 3.6 + bend, 7, 202));
  const base = fractal(x * 2.4 + bend + 0.05, y * 3.6 + bend + 0.1, 5, 202);
  return blend(
    blend([0.16, 0.38, 0.76], [0.55, 0.75, 0.94], y),
    lit([1, 0.99, 0.98], 1.25 - 0.6 * base),
    cover,
  );
};

/** Woven cloth. */
export const tartan: Scene = (x, y) => {
  const bands = (t: number): Colour => {
    const phase = ((t % 0.34) + 0.34) % 0.34;
    if (phase < 0.1) return [0.62, 0.09, 0.11];
    if (phase < 0.13) return [0.95, 0.85, 0.3];
    return phase < 0.24 ? [0.9, 0.88, 0.8] : [0.09, 0.12, 0.34];
  };
  const fold = 0.03 * Math.sin(y * 9 + 3 * noise(x * 2, y * 2, 211));
  const thread = Math.sin((x + y) * 520) > 0;
  const shade = 0.75 + 5 * fold + 0.3 * (fractal(x * 90, y * 90, 2, 212) - 0.5);
  return lit(blend(bands(x + fold), bands(y), thread ? 0.65 : 0.35), shade);
};

/** A printed page, seen at a slight angle. */
export const page: Scene = (x, y) => {
  const [u, v] = [x + 0.04 * y, y - 0.03 * x];
  const paper = lit([0.96, 0.94, 0.89], 0.86 + 0.12 * fractal(x * 2, y * 2, 4, 221) + 0.05 * y);
  if (u < 0.12 || v < 0.08 || v > 0.9 || u > 0.66) return paper;
  const line = Math.floor(v * 32);
  const inLine = v * 32 - line;
  const word = Math.floor(u * 34 + hash(line, 0, 222));
  if (line % 7 === 6 || hash(word, line, 223) < 0.12 || inLine < 0.3 || inLine > 0.78) return paper;
  const stroke = noise(u * 210, inLine * 3 + line * 9, 224);
  return blend(paper, [0.13, 0.12, 0.14], step(0.45, 0.6, stroke));
};
