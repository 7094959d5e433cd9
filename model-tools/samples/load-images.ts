import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { hash } from "./noise.ts";

/** JPEG files for a load, at the sizes that people have. */
export interface LoadImages {
  readonly width: number;
  readonly height: number;
  /** How many different ones. */
  readonly count: number;
  /** Each file is as large as it can be below a size between these two, its quality chosen for it. */
  readonly bytes: { readonly min: number; readonly max: number };
}

export const loadImages = {
  /** A thumbnail of a gallery. */
  thumbnail: { width: 320, height: 240, count: 32, bytes: { min: 9_500, max: 11_000 } },
  /** A photo that was sent through a messenger. */
  photo: { width: 1600, height: 1200, count: 12, bytes: { min: 250_000, max: 360_000 } },
  /** A photo as a phone's camera writes it. */
  camera: { width: 4000, height: 3000, count: 4, bytes: { min: 3_000_000, max: 4_500_000 } },
} as const satisfies Record<string, LoadImages>;

/** The painted samples that the files are made of. */
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

/** Sensor noise, so that a scene that is enlarged has detail at every scale, as a photo has. */
function noiseTile(seed: number, strength: number): Buffer {
  const tile = Buffer.alloc(tileSide * tileSide * 4);
  for (let i = 0; i < tileSide * tileSide; i++) {
    const level = hash(i % tileSide, Math.floor(i / tileSide), seed) < 0.5 ? 0 : 255;
    tile.fill(level, 4 * i, 4 * i + 3);
    tile[4 * i + 3] = Math.round(strength * hash(i % tileSide, Math.floor(i / tileSide), seed + 1));
  }
  return tile;
}

/** Make the files of a load: the same bytes every time, with the same libvips. */
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
  const turn = Math.floor(index / sources.length) % 4;
  return sharp(source)
    .flop(turn % 2 === 1)
    .flip(turn > 1)
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

/** Encode at the highest quality that stays below a size. */
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
