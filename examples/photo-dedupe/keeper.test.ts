import { expect, test } from "vitest";
import { type ComparedPhoto, suggestKeeper } from "./keeper.ts";

const photo = (id: number, properties: Partial<ComparedPhoto> = {}): ComparedPhoto => ({
  id,
  path: `/${id}.jpg`,
  bytes: 1_000,
  width: 40,
  height: 30,
  takenAt: null,
  format: "jpeg",
  sha256: String(id),
  ...properties,
});

test("suggests the photo with the most pixels", () => {
  expect(suggestKeeper([photo(1), photo(2, { width: 80, bytes: 10 })])).toEqual({
    id: 2,
    reason: "most pixels (80 × 30)",
  });
});

test("of photos with the same resolution, the one with a capture time, then the largest file", () => {
  const taken = { takenAt: "2024-05-01T12:00:00" };
  expect(
    suggestKeeper([
      photo(1, { bytes: 9_000 }),
      photo(2, taken),
      photo(3, { ...taken, bytes: 2_000 }),
    ]),
  ).toEqual({ id: 3, reason: "has the time it was taken, largest file: least compressed" });
});

test("of equal photos, the first by name", () => {
  expect(suggestKeeper([photo(2), photo(1)])).toEqual({
    id: 1,
    reason: "first by name: the files are alike",
  });
  expect(suggestKeeper([])).toBeUndefined();
});
