import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { pixelBudget } from "./decode-photo.ts";
import { photoToSend } from "./photo-to-send.ts";
import { readPhoto } from "./read-photo.ts";
import { picture, temporaryFolder } from "./test-photos.ts";
import { openThumbnails } from "./thumbnails.ts";

test("no more pixels are decoded at once than there are, in order; a larger photo is by itself", async () => {
  const budget = pixelBudget(10);
  let running: readonly number[] = [];
  const seen: (readonly number[])[] = [];
  const decode = (pixels: number) =>
    budget.run(pixels, async () => {
      running = [...running, pixels];
      seen.push(running);
      await sleep(1);
      running = running.filter((other) => other !== pixels);
    });
  await Promise.all([4, 6, 3, 12, 5].map(decode));
  expect(seen.map((pixels) => [...pixels].at(-1))).toEqual([4, 6, 3, 12, 5]);
  const sum = (pixels: readonly number[]) => pixels.reduce((all, one) => all + one, 0);
  expect(seen.every((pixels) => sum(pixels) <= 10 || pixels.length === 1)).toBe(true);
  expect(seen[1]).toEqual([4, 6]);
});

test("a photo that cannot be decoded gives its pixels back", async () => {
  const budget = pixelBudget(10);
  await expect(budget.run(10, () => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
  expect(await budget.run(10, async () => "read")).toBe("read");
});

test("refuses a photo of too many pixels in one line, before it is decoded", async () => {
  const path = join(temporaryFolder(), "bomb.jpg");
  const file = await picture(1).jpeg().toBuffer();
  // a header of 30 000 × 30 000 pixels
  const size = file.indexOf(Buffer.from([0xff, 0xc0])) + 5;
  file.writeUInt16BE(30_000, size);
  file.writeUInt16BE(30_000, size + 2);
  writeFileSync(path, file);
  const problem = "is too large: 30000 × 30000, of at most 268000000 pixels";
  await expect(readPhoto(path, file.length)).rejects.toThrow(problem);
  await expect(openThumbnails().get("key", path, 480)).rejects.toThrow(problem);
  const md5 = createHash("md5").update(file).digest("hex");
  await expect(
    photoToSend({ id: 1, path, md5, format: "jpeg", width: 30_000, height: 30_000 }),
  ).rejects.toThrow(problem);
});
