import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { moveRejected, restore } from "./move-rejected.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { decide, movedPhotos, reviewState } from "./review-data.ts";
import { temporaryFolder } from "./test-photos.ts";

let folder: string;
let database: PhotoDatabase;

// one group of three files, which are not decoded here
beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  database = openPhotoDatabase(join(folder, "../index"), "create");
  for (const [i, name] of ["sub/a.jpg", "b.jpg", "c.jpg"].entries()) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `photo ${name}`);
    const { size, mtimeMs } = lstatSync(path);
    database.run(
      `INSERT INTO photos (id, path, root, bytes, mtime_ms, state, sha256, hash, format, width, height, seen, position)
       VALUES (?, ?, ?, ?, ?, 'present', ?, '', 'jpeg', 1, 1, 1, 0)`,
      i + 1,
      path,
      folder,
      size,
      mtimeMs,
      name,
    );
  }
});

afterEach(() => database.close());

const [a, b, c] = [1, 2, 3];
const reject = (...photos: readonly number[]) =>
  decide(
    database,
    photos.map((photo) => ({ photo, decision: "reject" as const })),
  );
const text = (name: string) => readFileSync(join(folder, name), "utf8");
const moved = () => movedPhotos(database, 9).map(({ name }) => name);
const problemsOf = ({ problems }: Awaited<ReturnType<typeof moveRejected>>) =>
  problems.map(({ problem }) => problem);

test("moves rejected photos and restores them", async () => {
  reject(a, b);
  expect(await moveRejected(database)).toEqual({ moved: 2, problems: [] });
  expect(text("clipstack-rejected/sub/a.jpg")).toBe("photo sub/a.jpg");
  expect(moved()).toEqual(["b.jpg", "sub/a.jpg"]);
  expect(await restore(database, { only: a })).toEqual({ moved: 1, problems: [] });
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
  expect(moved()).toEqual(["b.jpg"]);
  // restoring a photo withdraws its rejection
  expect(reviewState(database)).toMatchObject({ rejected: 0, decided: 1 });
});

test("does not move a rejected photo that is no longer in a group", async () => {
  reject(a);
  database.run("UPDATE photos SET position = NULL");
  expect(await moveRejected(database)).toEqual({ moved: 0, problems: [] });
  expect(reviewState(database).rejected).toBe(0);
});

test("does not move a photo that has changed since the scan", async () => {
  reject(a, b);
  utimesSync(join(folder, "sub/a.jpg"), 1_000, 1_000);
  writeFileSync(join(folder, "b.jpg"), "another");
  const changed = "has changed since the scan: scan again";
  expect(problemsOf(await moveRejected(database))).toEqual([changed, changed]);
  expect(existsSync(join(folder, "clipstack-rejected"))).toBe(false);
});

test("does not move a photo that may be the last of its group", async () => {
  reject(a, b);
  rmSync(join(folder, "c.jpg"));
  const problem =
    "the photos of its group that are kept are not on the disk as scanned: scan and group again";
  expect(problemsOf(await moveRejected(database))).toEqual([problem, problem]);
  expect(text("b.jpg")).toBe("photo b.jpg");
});

test("does not move a photo whose kept copy is the same file under another name", async () => {
  reject(a, c);
  rmSync(join(folder, "b.jpg"));
  linkSync(join(folder, "sub/a.jpg"), join(folder, "b.jpg"));
  const { size, mtimeMs } = lstatSync(join(folder, "b.jpg"));
  database.run("UPDATE photos SET bytes = ?, mtime_ms = ? WHERE id = ?", size, mtimeMs, b);
  expect(await moveRejected(database)).toMatchObject({ moved: 1, problems: [{}] });
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
});

test("does not move a photo whose rejection was withdrawn meanwhile", async () => {
  reject(a, b);
  const moving = moveRejected(database);
  decide(database, [{ photo: a, decision: "keep" }]);
  expect(problemsOf(await moving)).toEqual(["is no longer rejected"]);
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
});

test("moves all photos of a group that are all rejected", async () => {
  reject(a, b, c);
  expect(await moveRejected(database)).toEqual({ moved: 3, problems: [] });
});

test("never overwrites a file of the same name", async () => {
  mkdirSync(join(folder, "clipstack-rejected/sub"), { recursive: true });
  writeFileSync(join(folder, "clipstack-rejected/sub/a.jpg"), "older");
  reject(a);
  await moveRejected(database);
  expect(readdirSync(join(folder, "clipstack-rejected/sub")).sort()).toEqual([
    "a (2).jpg",
    "a.jpg",
  ]);
  writeFileSync(join(folder, "sub/a.jpg"), "another photo came");
  const lies = join(folder, "clipstack-rejected/sub/a (2).jpg");
  expect(problemsOf(await restore(database))).toEqual([
    `there is another file of this name; the photo stays at '${lies}'`,
  ]);
  expect(text("sub/a.jpg")).toBe("another photo came");
  renameSync(join(folder, "sub/a.jpg"), join(folder, "new.jpg"));
  // a dangling link
  symlinkSync("nowhere", join(folder, "sub/a.jpg"));
  expect(problemsOf(await restore(database))).toHaveLength(1);
  rmSync(join(folder, "sub/a.jpg"));
  expect(await restore(database)).toEqual({ moved: 1, problems: [] });
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
});

test("restores a photo that a crash left in place or that was moved back manually", async () => {
  reject(a);
  await moveRejected(database);
  renameSync(join(folder, "clipstack-rejected/sub/a.jpg"), join(folder, "sub/a.jpg"));
  expect(await restore(database)).toEqual({ moved: 1, problems: [] });
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
  expect(moved()).toEqual([]);
});

test("reports a moved photo that exists at neither path", async () => {
  reject(a);
  await moveRejected(database);
  const lies = join(folder, "clipstack-rejected/sub/a.jpg");
  rmSync(lies);
  expect(problemsOf(await restore(database))).toEqual([`'${lies}' does not exist`]);
  expect(existsSync(join(folder, "sub/a.jpg"))).toBe(false);
});

test("leaves a photo in place if the folder of rejected ones cannot be written", async () => {
  writeFileSync(join(folder, "clipstack-rejected"), "a file");
  reject(a);
  expect(problemsOf(await moveRejected(database))).toHaveLength(1);
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
  expect(reviewState(database)).toMatchObject({ rejected: 1, moved: 0 });
});

test("stops between two photos", async () => {
  reject(a, b);
  expect(await moveRejected(database, AbortSignal.abort())).toEqual({ moved: 0, problems: [] });
});
