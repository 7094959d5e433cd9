import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openPhotoDatabase } from "./photo-database.ts";
import { dedupeProgram } from "./program.ts";
import { temporaryFolder } from "./test-photos.ts";

let folder: string;
let file: string;
const printed: string[] = [];

beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder, "photos.db");
  const database = openPhotoDatabase(file, { missing: "create" });
  mkdirSync(join(folder, "rejected"));
  for (const [i, name] of ["a.jpg", "b\n.jpg"].entries()) {
    const [path, lies] = [join(folder, name), join(folder, "rejected", name)];
    writeFileSync(lies, name);
    database.run(
      `INSERT INTO photos (id, path, root, bytes, mtime_ms, state, md5, seen)
       VALUES (?, ?, ?, 5, 1, 'moved', 'm', 1)`,
      [i + 1, path, folder],
    );
    database.run(
      "INSERT INTO moves (photo_id, path, root, moved_to, bytes, mtime_ms) VALUES (?, ?, ?, ?, 5, 1)",
      [i + 1, path, folder, lies],
    );
  }
  database.close();
  printed.length = 0;
  for (const stream of ["log", "error"] as const) {
    vi.spyOn(console, stream).mockImplementation((line: string) => printed.push(line));
  }
});

afterEach(() => vi.restoreAllMocks());

const run = async (...args: readonly string[]) =>
  (await dedupeProgram("restore")).parseAsync(["node", "x", "restore", "--db", file, ...args]);

test("lists where photos were and where they lie, one line each", async () => {
  await run("--list");
  expect(printed).toEqual([
    `${folder}/a.jpg: lies at ${folder}/rejected/a.jpg`,
    `${folder}/b\\n.jpg: lies at ${folder}/rejected/b\\n.jpg`,
  ]);
  expect(readdirSync(join(folder, "rejected"))).toHaveLength(2);
});

test("puts one photo back by its name, then the others", async () => {
  await run(join(folder, "a.jpg"));
  expect(readdirSync(join(folder, "rejected"))).toEqual(["b\n.jpg"]);
  await run();
  expect(readdirSync(join(folder, "rejected"))).toEqual([]);
  expect(readdirSync(folder)).toEqual(expect.arrayContaining(["a.jpg", "b\n.jpg"]));
  expect(printed).toEqual(Array(2).fill("1 photos put back, 0 stay where they lie"));
});

test("fails when a photo could not be put back, and says where it lies", async () => {
  writeFileSync(join(folder, "a.jpg"), "another");
  await expect(run()).rejects.toThrow("1 photos could not be put back");
  expect(printed[0]).toBe(
    `${folder}/a.jpg: there is a file of this name again; it stays at '${folder}/rejected/a.jpg'`,
  );
});

test("fails when a photo is named that was not moved", async () => {
  await expect(run("/nowhere.jpg")).rejects.toThrow("'/nowhere.jpg' was not moved: see --list");
});
