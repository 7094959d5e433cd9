import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import sharp, { type Sharp } from "sharp";
import { expect, test } from "vitest";
import { openInferenceClient } from "../../client/embedding/inference-client.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { readVector } from "./compare.ts";
import { reasonOf } from "./dedupe-error.ts";
import { embed } from "./embed.ts";
import { cosine } from "./index-model.ts";
import { openPhoto } from "./open-photo.ts";
import { openPhotoDatabase } from "./photo-database.ts";
import { readPhoto } from "./read-photo.ts";
import { buildReviewApp } from "./review-server.ts";
import { scan } from "./scan.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

/** `picture(3, 480, 320)` on its side, with the rotation for display and a time, encoded by pillow-heif 1.8.1 with quality 40. */
const heicFile = fileURLToPath(new URL("test-photo.heic", import.meta.url));
const original = () => picture(3, 480, 320);

const pixelsOf = (image: Sharp) => image.flatten().resize(24, 16).raw().toBuffer();

test("decodes HEIC in the orientation for display", async () => {
  const { image, width, height } = await openPhoto(readFileSync(heicFile));
  expect([width, height]).toEqual([480, 320]);
  const [found, expected] = await Promise.all([pixelsOf(image), pixelsOf(original())]);
  expect(found.length).toBe(expected.length);
  const differences = found.map((value, i) => Math.abs(value - expected[i]!));
  expect(Math.max(...differences)).toBeLessThan(24);
});

test("reads resolution, time and hash of HEIC", async () => {
  const { hash: _, md5, ...facts } = await readPhoto(heicFile);
  expect(md5).toMatch(/^[0-9a-f]{32}$/);
  expect(facts).toEqual({
    format: "heic",
    width: 480,
    height: 320,
    takenAt: "2024-05-01T12:30:00",
  });
});

test("rejects damaged HEIC with one line", async () => {
  const file = join(temporaryFolder(), "cut.heic");
  writeFileSync(file, readFileSync(heicFile).subarray(0, 900));
  const error: unknown = await readPhoto(file).catch((problem: unknown) => problem);
  expect(reasonOf(error)).toMatch(/^Input buffer has corrupt header: .+$/);
});

test("groups, embeds and shows HEIC beside a JPEG of the same picture", async () => {
  const folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  copyFileSync(heicFile, join(folder, "IMG_0001.HEIC"));
  await original().jpeg().toFile(join(folder, "IMG_0001.jpg"));
  const database = openPhotoDatabase(join(folder, "../photos.db"), "create");
  const client = await openInferenceClient({ mode: "local", modelPath: await tinyModel() });
  const app = buildReviewApp(database);
  try {
    const scanned = await scan(database, { folder, progress: silent });
    expect(scanned).toMatchObject({ read: 2, unreadable: 0 });
    const embedded = await embed(database, {
      ...{ client, model: "openclip-vit-b32", location: "here", waitSeconds: 0 },
      ...{ replace: false, progress: silent },
    });
    expect(embedded).toMatchObject({ embedded: 2, failed: 0 });
    const ids = database.all<{ readonly id: number }>("SELECT id FROM embeddings ORDER BY id");
    const [first, second] = ids.map(({ id }) => readVector(database, id));
    expect(cosine(first!, second!)).toBeGreaterThan(0.98);
    for (const route of ["/thumbnails/1", "/photos/1"]) {
      const headers = { host: "127.0.0.1" };
      const { statusCode, rawPayload } = await app.inject({ url: route, headers });
      expect(statusCode).toBe(200);
      expect(await sharp(rawPayload).metadata()).toMatchObject({ format: "jpeg", width: 480 });
    }
  } finally {
    await app.close();
    await client.close();
    database.close();
  }
});
