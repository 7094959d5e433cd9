import { mkdir, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import sharp, { type Exif, type Sharp } from "sharp";
import { labelsFile, type PhotoLabel } from "../../examples/photo-dedupe/evaluate.ts";
import { CommandError } from "../../examples/search/report.ts";
import { hash } from "../../model-tools/samples/noise.ts";
import * as scenes from "../../model-tools/samples/scenes.ts";

/**
 * Generates labelled photos: painted scenes, typical edits of them, and similar views that are not duplicates. The output is
 * deterministic.
 */

const width = 480;
const height = 320;

interface View {
  readonly name: string;
  readonly scene: scenes.Scene;
  /** Position of the left edge, in heights of the picture. */
  readonly left: number;
  /** Visible part of the scene; a smaller value is a closer view. */
  readonly zoom: number;
}

const view = (name: string, scene: scenes.Scene, left = 0, zoom = 1): View => ({
  name: left === 0 ? name : `${name}-${left}`,
  scene,
  left,
  zoom,
});

/** Views with near-duplicates. */
const repeated: readonly View[] = [
  view("mountains", scenes.mountains),
  view("mountains", scenes.mountains, 5),
  view("sunset", scenes.sunset),
  view("forest", scenes.forest),
  view("city", scenes.city),
  view("city", scenes.city, 7),
  view("dunes", scenes.dunes),
  view("flower", scenes.flower),
  view("fruit", scenes.fruit),
  view("lights", scenes.lights),
  view("wood", scenes.wood),
  view("terrain", scenes.terrain),
  view("clouds", scenes.clouds),
  view("page", scenes.page),
];

/** Views without near-duplicates: different places of the same kind. */
const single: readonly View[] = [
  view("mountains", scenes.mountains, 11),
  view("mountains", scenes.mountains, 17),
  view("sunset", scenes.sunset, 4),
  view("city", scenes.city, 13),
  view("city", scenes.city, 19),
  view("dunes", scenes.dunes, 3),
  view("dunes", scenes.dunes, 8),
  view("bricks", scenes.bricks),
  view("bricks", scenes.bricks, 9),
  view("wood", scenes.wood, 6),
  view("terrain", scenes.terrain, 5),
  view("terrain", scenes.terrain, 10),
  view("clouds", scenes.clouds, 6),
  view("clouds", scenes.clouds, 12),
  view("tartan", scenes.tartan),
  view("page", scenes.page, 0.5, 0.5),
  view("flower-near", scenes.flower, 0, 0.45),
  view("fruit-near", scenes.fruit, 0, 0.4),
];

type Change = (photo: Sharp) => Sharp;

/** Edits of a photo. Like many programs, they drop the EXIF time. */
const changes: Readonly<Record<string, Change>> = {
  recompressed: (pixels) => pixels.jpeg({ quality: 30 }),
  smaller: (pixels) => pixels.resize(width / 2).jpeg({ quality: 82 }),
  cropped: (pixels) =>
    pixels.extract({ left: 29, top: 10, width: 432, height: 288 }).jpeg({ quality: 88 }),
  recoloured: (pixels) =>
    pixels.modulate({ brightness: 1.1, saturation: 1.35, hue: 8 }).jpeg({ quality: 88 }),
  grey: (pixels) => pixels.greyscale().jpeg({ quality: 85 }),
  webp: (pixels) => pixels.webp({ quality: 70 }),
  straightened: (pixels) =>
    pixels.rotate(3).extract({ left: 34, top: 29, width: 422, height: 275 }).jpeg({ quality: 88 }),
  // displayed unchanged: the EXIF orientation reverses the rotation of the pixels
  "exif-turned": (pixels) =>
    pixels.rotate(90).jpeg({ quality: 90 }).withMetadata({ orientation: 8 }),
  turned: (pixels) => pixels.rotate(90).jpeg({ quality: 90 }),
};

function paint({ scene, left, zoom }: View): Sharp {
  const pixels = Buffer.alloc(width * height * 3);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const x = left + (zoom * (column + 0.5)) / height;
      const colour = scene(x, (zoom * (row + 0.5)) / height, zoom / height);
      const grain = 5 * (hash(column, row, 7) - 0.5);
      for (let channel = 0; channel < 3; channel++) {
        const value = Math.round(255 * colour[channel]! + grain);
        pixels[(row * width + column) * 3 + channel] = Math.min(255, Math.max(0, value));
      }
    }
  }
  return sharp(pixels, { raw: { width, height, channels: 3 } });
}

/** EXIF data with a time that advances by some hours per photo. */
function exifOf(index: number): Exif {
  const time = new Date(Date.UTC(2024, 4, 1, 9) + index * 17_300_000).toISOString();
  const text = time.slice(0, 19).replace("T", " ").replace(/-/g, ":");
  return { IFD0: { Make: "clipstack", Model: "painted" }, IFD2: { DateTimeOriginal: text } };
}

/**
 * Writes the photos and `labels.json` into a folder, which is created.
 *
 * @throws {CommandError} if the folder is not empty
 */
export async function makePhotos(folder: string): Promise<readonly PhotoLabel[]> {
  const existing = await readdir(folder).catch(() => []);
  if (existing.length > 0) {
    throw new CommandError("usage", `folder '${folder}' is not empty: choose a new one`);
  }
  const labels: PhotoLabel[] = [];
  const write = async (label: PhotoLabel, data: Buffer) => {
    await mkdir(dirname(join(folder, label.file)), { recursive: true });
    await writeFile(join(folder, label.file), data);
    labels.push(label);
  };
  const views = [...repeated, ...single];
  for (const [index, view] of views.entries()) {
    const png = await paint(view).png({ compressionLevel: 1 }).toBuffer();
    const { name } = view;
    const exif = exifOf(index);
    const original = await sharp(png).withExif(exif).jpeg({ quality: 92 }).toBuffer();
    await write({ file: `camera/${name}.jpg`, original: name }, original);
    if (index < repeated.length) {
      await write({ file: `backup/${name}.jpg`, original: name }, original);
      for (const [change, apply] of Object.entries(changes)) {
        const file = `${change}/${name}.${change === "webp" ? "webp" : "jpg"}`;
        // each edit reads the file, like a program
        const data = await apply(sharp(original)).toBuffer();
        await write({ file, original: name }, data);
      }
    }
  }
  labels.sort((a, b) => (a.file < b.file ? -1 : 1));
  await writeFile(join(folder, labelsFile), `${JSON.stringify(labels, null, 2)}\n`);
  return labels;
}
