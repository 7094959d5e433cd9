import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { hash } from "./noise.ts";

/** JPEG files for load tests, in typical sizes. */
export interface LoadImages {
  readonly width: number;
  readonly height: number;
  /** Number of different files. */
  readonly count: number;
  /** Each file has the highest quality below a target size between these two. */
  readonly bytes: { readonly min: number; readonly max: number };
}

export const loadImages = {
  /** Thumbnail of a gallery. */
  thumbnail: { width: 320, height: 240, count: 32, bytes: { min: 9_500, max: 11_000 } },
  /** Photo sent through a messenger. */
  photo: { width: 1600, height: 1200, count: 12, bytes: { min: 250_000, max: 360_000 } },
  /** Photo of a phone's camera. */
  camera: { width: 4000, height: 3000, count: 4, bytes: { min: 3_000_000, max: 4_500_000 } },
} as const satisfies Record<string, LoadImages>;

/** Painted samples that the files are derived from. */
const sources = [
  "mountains.jpg",
  "sunset.jpg",
  "dunes.jpg",
  "flower.jpg",
  "fruit.jpg",
  "city-wide.jpg",
  "forest-portrait.jpg",
  "page.jpg",
] as const;

const tileSide = 192;

/** Sensor noise, so that an enlarged scene has detail at every scale, as a photo does. */
function noiseTile(seed: number, strength: number): Buffer {
  const tile = Buffer.alloc(tileSide * tileSide * 4);
  for (let i = 0; i < tileSide * tileSide; i++) {
    const level = hash(i % tileSide, Math.floor(i / tileSide), seed) < 0.5 ? 0 : 255;
    tile.fill(level, 4 * i, 4 * i + 3);
    tile[4 * i + 3] = Math.round(strength * hash(i % tileSide, Math.floor(i / tileSide), seed + 1));
  }
  return tile;
}

/** Creates the files. The same version of libvips writes the same bytes. */
export async function makeLoadImages(kind: LoadImages): Promise<readonly Buffer[]> {
  const images: Buffer[] = [];
  for (let index = 0; index < kind.count; index++) {
    const { min, max } = kind.bytes;
    const target = min + ((max - min) * ((index * 5) % kind.count)) / Math.max(1, kind.count - 1);
    images.push(await atMost(await paintedPixels(kind, index), kind, Math.max(target, min * 1.02)));
  }
  return images;
}

async function paintedPixels({ width, height }: LoadImages, index: number): Promise<Buffer> {
  const source = fileURLToPath(new URL(sources[index % sources.length]!, import.meta.url));
  const mirroring = Math.floor(index / sources.length) % 4;
  return sharp(source)
    .flop(mirroring % 2 === 1)
    .flip(mirroring > 1)
    .resize(width, height, { fit: "cover" })
    .composite([
      {
        input: noiseTile(index, 24),
        raw: { width: tileSide, height: tileSide, channels: 4 },
        tile: true,
      },
    ])
    .removeAlpha()
    .raw()
    .toBuffer();
}

/** Encodes at the highest quality within a size. */
async function atMost(pixels: Buffer, { width, height }: LoadImages, bytes: number) {
  const encode = (quality: number) =>
    sharp(pixels, { raw: { width, height, channels: 3 } })
      .jpeg({ quality })
      .toBuffer();
  let [low, high] = [10, 97];
  let best = await encode(low);
  while (low < high) {
    const quality = Math.ceil((low + high) / 2);
    const file = await encode(quality);
    if (file.length <= bytes) {
      best = file;
      low = quality;
    } else {
      high = quality - 1;
    }
  }
  return best;
}
