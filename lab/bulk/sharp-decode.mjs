// Decodes and resizes images with sharp alone, as the ceiling of a worker whose inference costs nothing. Arguments: folder, seconds,
// threads, side of the model's input. Prints one line of JSON.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import sharp from "sharp";

const [folder, seconds, threads, side] = process.argv.slice(2);
sharp.cache(false);
sharp.concurrency(1);
const names = await readdir(folder);
let images = 0;

async function decode(until) {
  while (performance.now() < until) {
    const file = await readFile(join(folder, names[images++ % names.length]));
    await sharp(file).resize(Number(side), Number(side), { kernel: "cubic" }).raw().toBuffer();
  }
}

/** Decodes with two images per thread in flight, so that no thread waits for the event loop. */
async function decodeFor(ms) {
  images = 0;
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: 2 * threads }, () => decode(startedAt + ms)));
  return (performance.now() - startedAt) / 1000;
}

await decodeFor(500);
const elapsed = await decodeFor(seconds * 1000);
console.log(JSON.stringify({ imagesPerSecond: images / elapsed }));
