import sharp from "sharp";

/** Returns a photo-like JPEG, PNG or WebP of the given size; each `seed` is another picture. */
export function picture(
  format: "jpeg" | "png" | "webp" = "jpeg",
  { width = 320, height = 240, seed = 1 } = {},
): Promise<Buffer> {
  const pixels = Buffer.alloc(width * height * 3);
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (let channel = 0; channel < 3; channel++, at++) {
        pixels[at] = 128 + 90 * Math.sin((x * (channel + 1) + y * seed) / (9 + seed)) + (at % 7);
      }
    }
  }
  return sharp(pixels, { raw: { width, height, channels: 3 } })
    .toFormat(format)
    .toBuffer();
}
