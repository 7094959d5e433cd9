/**
 * Makes the sample images: `npx tsx bench/samples/make.ts`. Painted by functions, so that nobody's photos are in here, with
 * the frequency content of photos: fractal detail, edges, smooth skies, sensor noise.
 */
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import sharp, { type Sharp } from "sharp";
import { hash } from "./noise.ts";
import * as scenes from "./scenes.ts";

interface Sample {
  readonly file: string;
  readonly what: string;
  /** Pixels as shown: after the EXIF orientation is applied. */
  readonly width: number;
  readonly height: number;
  /** EXIF orientation, where it is not 1. */
  readonly orientation?: number;
  /** Another sample that shows the same: a photo finder should group the two. */
  readonly nearDuplicateOf?: string;
  readonly image: Sharp;
}

const folder = fileURLToPath(new URL("./", import.meta.url));

/** Paint a scene, with a little sensor noise. */
function paint(scene: scenes.Scene, width: number, height: number): Sharp {
  const pixels = Buffer.alloc(width * height * 3);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const colour = scene((column + 0.5) / height, (row + 0.5) / height, 1 / height);
      const grain = 5 * (hash(column, row, 7) - 0.5);
      for (let channel = 0; channel < 3; channel++) {
        const value = Math.round(255 * colour[channel]! + grain);
        pixels[(row * width + column) * 3 + channel] = Math.min(255, Math.max(0, value));
      }
    }
  }
  return sharp(pixels, { raw: { width, height, channels: 3 } });
}

const jpeg = (image: Sharp, quality: number) => image.jpeg({ quality, mozjpeg: false });

/** Encode, decode and encode again: what a messenger does to a photo. */
async function recompressed(image: Sharp, quality: number): Promise<Sharp> {
  return jpeg(sharp(await image.toBuffer()), quality);
}

/**
 * Store a scene turned, as a camera held upright does, with the EXIF orientation that turns it back.
 *
 * @param stored - Clockwise turn of what is stored, in degrees: the viewer turns it back.
 */
async function turned(image: Sharp, stored: 90 | 180 | 270, orientation: number, quality: number) {
  const pixels = await image.clone().png().toBuffer();
  return jpeg(sharp(pixels).rotate(stored), quality).withMetadata({ orientation });
}

async function withAlpha(size: number): Promise<Sharp> {
  const mask = Buffer.alloc(size * size);
  for (let i = 0; i < mask.length; i++) {
    const [x, y] = [((i % size) + 0.5) / size, (Math.floor(i / size) + 0.5) / size];
    mask[i] = Math.round(255 * scenes.shellCoverage(x, y));
  }
  const colour = await paint(scenes.shell, size, size).raw().toBuffer();
  return sharp(colour, { raw: { width: size, height: size, channels: 3 } })
    .joinChannel(mask, { raw: { width: size, height: size, channels: 1 } })
    .png({ compressionLevel: 9, palette: false });
}

async function samples(): Promise<readonly Sample[]> {
  const mountains = paint(scenes.mountains, 1920, 1280);
  const sunset = paint(scenes.sunset, 640, 427);
  const dunes = paint(scenes.dunes, 600, 400);
  const flower = paint(scenes.flower, 420, 420);
  const fruit = paint(scenes.fruit, 560, 400);
  const mountainPixels = await mountains.clone().png().toBuffer();
  return [
    {
      file: "mountains.jpg",
      what: "landscape, the size of a photo from a phone that was sent on",
      width: 1920,
      height: 1280,
      image: jpeg(mountains, 89),
    },
    {
      file: "mountains-crop.jpg",
      what: "the middle 84 % of mountains.jpg, smaller",
      width: 480,
      height: 320,
      nearDuplicateOf: "mountains.jpg",
      image: jpeg(
        sharp(mountainPixels)
          .extract({ left: 154, top: 103, width: 1613, height: 1075 })
          .resize(480, 320, { fit: "fill" }),
        76,
      ),
    },
    {
      file: "sunset.jpg",
      what: "sea at sunset, 3:2",
      width: 640,
      height: 427,
      image: jpeg(sunset, 82),
    },
    {
      file: "sunset-recompressed.jpg",
      what: "sunset.jpg saved again at quality 30",
      width: 640,
      height: 427,
      nearDuplicateOf: "sunset.jpg",
      image: await recompressed(jpeg(sunset, 82), 30),
    },
    {
      file: "dunes.jpg",
      what: "desert",
      width: 600,
      height: 400,
      image: jpeg(dunes, 68),
    },
    {
      file: "dunes-exif-3.jpg",
      what: "dunes.jpg stored upside down, EXIF orientation 3",
      width: 600,
      height: 400,
      orientation: 3,
      nearDuplicateOf: "dunes.jpg",
      image: await turned(dunes, 180, 3, 60),
    },
    {
      file: "flower.jpg",
      what: "square, background out of focus",
      width: 420,
      height: 420,
      image: jpeg(flower, 80),
    },
    {
      file: "flower-exif-6.jpg",
      what: "the upper four fifths of flower.jpg, stored turned left, EXIF orientation 6",
      width: 420,
      height: 336,
      orientation: 6,
      nearDuplicateOf: "flower.jpg",
      image: await turned(
        sharp(await flower.clone().png().toBuffer()).extract({
          left: 0,
          top: 42,
          width: 420,
          height: 336,
        }),
        270,
        6,
        78,
      ),
    },
    { file: "fruit.jpg", what: "still life", width: 560, height: 400, image: jpeg(fruit, 82) },
    {
      file: "fruit-exif-8.jpg",
      what: "fruit.jpg stored turned right, EXIF orientation 8",
      width: 560,
      height: 400,
      orientation: 8,
      nearDuplicateOf: "fruit.jpg",
      image: await turned(fruit, 90, 8, 74),
    },
    {
      file: "forest-portrait.jpg",
      what: "upright, 2:3, much fine detail",
      width: 300,
      height: 450,
      image: jpeg(paint(scenes.forest, 300, 450), 62),
    },
    {
      file: "city-wide.jpg",
      what: "16:9, night, hard edges",
      width: 640,
      height: 360,
      image: jpeg(paint(scenes.city, 640, 360), 70),
    },
    {
      file: "lights-progressive.jpg",
      what: "out of focus, progressive JPEG without chroma subsampling",
      width: 400,
      height: 300,
      image: paint(scenes.lights, 400, 300).jpeg({
        quality: 80,
        progressive: true,
        chromaSubsampling: "4:4:4",
      }),
    },
    {
      file: "terrain-grey.jpg",
      what: "one channel",
      width: 384,
      height: 384,
      image: jpeg(paint(scenes.terrain, 384, 384).greyscale().toColourspace("b-w"), 62),
    },
    {
      file: "tartan-cmyk.jpg",
      what: "four channels, cyan, magenta, yellow and black, as printers want it",
      width: 240,
      height: 240,
      image: jpeg(paint(scenes.tartan, 240, 240).toColourspace("cmyk"), 60),
    },
    {
      file: "shell-alpha.png",
      what: "PNG with a transparent background",
      width: 160,
      height: 160,
      image: await withAlpha(160),
    },
    {
      file: "clouds.webp",
      what: "WebP",
      width: 512,
      height: 384,
      image: paint(scenes.clouds, 512, 384).webp({ quality: 78 }),
    },
    {
      file: "bricks-tall.jpg",
      what: "1:6, so that the crop keeps a sixth of it",
      width: 120,
      height: 720,
      image: jpeg(paint(scenes.bricks, 120, 720), 58),
    },
    {
      file: "panorama.jpg",
      what: "7:1, so that the crop keeps a seventh of it",
      width: 1120,
      height: 160,
      image: jpeg(paint(scenes.terrain, 1120, 160), 66),
    },
    {
      file: "wood-thumbnail.jpg",
      what: "48 × 36 pixels: smaller than what the model sees",
      width: 48,
      height: 36,
      image: jpeg(paint(scenes.wood, 48, 36), 88),
    },
    {
      file: "page.jpg",
      what: "a printed page, upright",
      width: 360,
      height: 480,
      image: jpeg(paint(scenes.page, 360, 480), 52),
    },
  ];
}

for (const name of readdirSync(folder)) {
  if (/\.(jpg|png|webp)$/.test(name)) rmSync(join(folder, name));
}
const images = [];
for (const { image, ...sample } of await samples()) {
  const data = await image.toBuffer();
  writeFileSync(join(folder, sample.file), data);
  images.push({ ...sample, bytes: data.length });
}
writeFileSync(join(folder, "samples.json"), `${JSON.stringify({ schema: 1, images }, null, 2)}\n`);
const total = images.reduce((sum, { bytes }) => sum + bytes, 0);
console.log(`${images.length} images, ${total} bytes`);
