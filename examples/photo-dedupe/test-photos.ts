import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp, { type Sharp } from "sharp";

/** Temporary folder for tests, removed afterwards. */
export function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), "photos-"));
}

/** Small picture for tests that differs per seed, with large and small features. */
export function picture(seed: number, width = 96, height = 64): Sharp {
  const pixels = Buffer.alloc(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (let channel = 0; channel < 3; channel++) {
        const [u, v] = [x / width, y / height];
        const wave =
          Math.sin(u * (3 + (seed % 7)) + seed * 1.7 + channel) +
          Math.sin(v * (2 + (seed % 5)) * 2 + seed * 0.9) +
          Math.sin((u * (seed % 11) + v * 3) * 4 + seed * 2.3 + channel * 0.5);
        pixels[(y * width + x) * 3 + channel] = Math.round(127.5 + 42 * wave);
      }
    }
  }
  return sharp(pixels, { raw: { width, height, channels: 3 } });
}

/** Progress without output, for tests. */
export const silent = { update() {}, note() {} };
