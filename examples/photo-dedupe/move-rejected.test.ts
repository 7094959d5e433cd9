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
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { moveRejected, restore } from "./move-rejected.ts";
import { cameBack, isRejected, movedPhotosOf } from "./moved-photos.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { decide, movedPhotos, reviewGroup, reviewState, undo } from "./review-data.ts";
import { temporaryFolder } from "./test-photos.ts";

let folder: string;
let database: PhotoDatabase;

// one group of three files; what is in them is not looked at here
beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  database = openPhotoDatabase(join(folder, "../photos.db"), { missing: "create" });
  for (const [i, name] of ["sub/a.jpg", "b.jpg", "c.jpg"].entries()) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `photo ${name}`);
    const { size, mtimeMs } = lstatSync(path);
    database.run(
      `INSERT INTO photos (id, path, root, bytes, mtime_ms, state, md5, hash, format, width, height, seen)
       VALUES (?, ?, ?, ?, ?, 'present', ?, '', 'jpeg', 1, 1, 1)`,
      [i + 1, path, folder, size, mtimeMs, name],
    );
    database.run(
      "INSERT INTO group_members (photo_id, group_id, position, md5) VALUES (?, 'g', 0, ?)",
      [i + 1, name],
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
const state = (photo: number) =>
  database.get<{ readonly state: string }>("SELECT state FROM photos WHERE id = ?", [photo])?.state;

test("a photo that is another file since it was rejected is not rejected", async () => {
  reject(a);
  database.run("UPDATE photos SET md5 = 'another' WHERE id = ?", [a]);
  expect(await moveRejected(database)).toEqual({ moved: 0, problems: [] });
  expect(reviewState(database)).toMatchObject({ rejected: 0, decided: 0, photos: 2 });
  expect(reviewGroup(database, 0)).toMatchObject({ changed: 1 });
  expect(undo(database)).toEqual({ position: 0, left: 1 });
  database.run("UPDATE photos SET md5 = 'sub/a.jpg' WHERE id = ?", [a]);
  // the step was about this file, and is undone already
  expect(reviewState(database)).toMatchObject({ rejected: 1, canUndo: false });
});

test("a rejected photo that is in no group any more is not moved", async () => {
  reject(a);
  database.run("DELETE FROM group_members");
  expect(await moveRejected(database)).toEqual({ moved: 0, problems: [] });
  expect(reviewState(database).rejected).toBe(0);
});

test("shows a group of which a photo cannot be read any more", () => {
  database.run("UPDATE photos SET state = 'unreadable', md5 = NULL, format = NULL WHERE id = ?", [
    b,
  ]);
  const group = reviewGroup(database, 0);
  expect(group).toMatchObject({ changed: 1 });
  expect(group?.photos.map(({ name }) => name)).toEqual(["c.jpg", "a.jpg"]);
});

test("does not move what may be the last photo of its group", async () => {
  reject(a, b);
  rmSync(join(folder, "c.jpg"));
  const { moved, problems } = await moveRejected(database);
  expect([moved, ...problems.map(({ problem }) => problem)]).toEqual([
    0,
    "the photos of its group that are kept are not there as they were scanned: scan and group again",
    "the photos of its group that are kept are not there as they were scanned: scan and group again",
  ]);
  expect(text("b.jpg")).toBe("photo b.jpg");
});

test("does not move a photo that is the kept file under another name", async () => {
  reject(a, c);
  rmSync(join(folder, "b.jpg"));
  linkSync(join(folder, "c.jpg"), join(folder, "b.jpg"));
  const { size, mtimeMs } = lstatSync(join(folder, "b.jpg"));
  database.run("UPDATE photos SET bytes = ?, mtime_ms = ? WHERE id = ?", [size, mtimeMs, b]);
  const { moved, problems } = await moveRejected(database);
  expect({ moved, problems }).toEqual({
    moved: 1,
    problems: [
      {
        path: join(folder, "c.jpg"),
        problem: `is the same file as '${join(folder, "b.jpg")}', under two names: moving it frees nothing`,
      },
    ],
  });
});

test("takes a photo back when the kept ones go while it is moved", async () => {
  reject(a);
  rmSync(join(folder, "b.jpg"));
  const moving = moveRejected(database);
  while (movedPhotosOf(database).length === 0) await nextTurn();
  rmSync(join(folder, "c.jpg"));
  const { moved, problems } = await moving;
  expect([moved, problems[0]]).toEqual([
    0,
    {
      path: join(folder, "sub/a.jpg"),
      problem: "the photos of its group that are kept were gone when it was moved: it was put back",
    },
  ]);
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
  expect(movedPhotosOf(database)).toEqual([]);
});

test("moves all photos of a group that are all rejected", async () => {
  reject(a, b, c);
  expect(await moveRejected(database)).toEqual({ moved: 3, problems: [] });
});

test("leaves a photo that is kept while others are moved", async () => {
  reject(a, b);
  const moving = moveRejected(database);
  // the first in order of path is under way
  decide(database, [{ photo: a, decision: "keep" }]);
  expect((await moving).moved).toBe(1);
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
});

test("does not take the scanned folder, or a link to it, for the one of rejected photos", async () => {
  reject(a);
  const link = join(folder, "../link");
  symlinkSync(folder, link);
  for (const name of [folder, link]) {
    const { problems } = await moveRejected(database, { folder: name });
    expect(problems[0]?.problem).toBe(`'${name}' is the folder that was scanned: choose another`);
    expect(readdirSync(join(folder, "sub"))).toEqual(["a.jpg"]);
  }
});

test("knows where a photo lies when another file has its name", async () => {
  reject(a);
  await moveRejected(database);
  writeFileSync(join(folder, "sub/a.jpg"), "another");
  database.run("UPDATE photos SET md5 = 'another', state = 'present' WHERE id = ?", [a]);
  const lies = join(folder, "clipstack-rejected/sub/a.jpg");
  expect(movedPhotos(database, 9)).toEqual([{ id: 1, name: "sub/a.jpg", movedTo: lies }]);
  expect((await restore(database)).problems).toEqual([
    {
      path: join(folder, "sub/a.jpg"),
      problem: `there is a file of this name again; it stays at '${lies}'`,
    },
  ]);
  expect(text("sub/a.jpg")).toBe("another");
  renameSync(join(folder, "sub/a.jpg"), join(folder, "new.jpg"));
  expect(await restore(database)).toEqual({ moved: 1, problems: [] });
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
});

test("knows a moved photo wherever it lies, so that no scan takes it for a new one", async () => {
  reject(a);
  await moveRejected(database, { folder: join(folder, "bin") });
  expect(isRejected(database, join(folder, "bin/sub/a.jpg"))).toBe(true);
  expect(isRejected(database, join(folder, "b.jpg"))).toBe(false);
});

test("knows a moved photo where the folder of rejected ones was named by a link", async () => {
  reject(a);
  mkdirSync(join(folder, "bin"));
  symlinkSync(join(folder, "bin"), join(folder, "../link"));
  expect(await moveRejected(database, { folder: join(folder, "../link") })).toMatchObject({
    moved: 1,
  });
  expect(isRejected(database, join(folder, "bin/sub/a.jpg"))).toBe(true);
});

test("takes nothing for moved that a crash left where it was", async () => {
  reject(a);
  // the file had a name kept for it and was written down, and was not moved
  const target = join(folder, "clipstack-rejected/sub/a.jpg");
  await moveRejected(database);
  renameSync(target, join(folder, "sub/a.jpg"));
  writeFileSync(target, "");
  expect(await restore(database)).toEqual({ moved: 1, problems: [] });
  expect([state(a), text("sub/a.jpg")]).toEqual(["present", "photo sub/a.jpg"]);
  expect([existsSync(target), movedPhotosOf(database)]).toEqual([false, []]);
});

test("goes on where a crash ended putting back", async () => {
  reject(a);
  await moveRejected(database);
  // the empty file that kept the name
  writeFileSync(join(folder, "sub/a.jpg"), "");
  expect((await restore(database)).moved).toBe(0);
  database.run("UPDATE moves SET coming_back = 1");
  expect(await restore(database)).toEqual({ moved: 1, problems: [] });
  expect(text("sub/a.jpg")).toBe("photo sub/a.jpg");
});

test("a photo that was put back by hand is not rejected", async () => {
  reject(a);
  await moveRejected(database);
  renameSync(join(folder, "clipstack-rejected/sub/a.jpg"), join(folder, "sub/a.jpg"));
  await cameBack(database, a);
  expect([state(a), movedPhotosOf(database)]).toEqual(["present", []]);
  expect(await moveRejected(database)).toEqual({ moved: 0, problems: [] });
});

test("says where a photo should lie that is not there", async () => {
  reject(a);
  await moveRejected(database);
  const lies = join(folder, "clipstack-rejected/sub/a.jpg");
  rmSync(lies);
  expect((await restore(database)).problems[0]?.problem).toBe(`'${lies}' does not exist`);
  expect(existsSync(join(folder, "sub/a.jpg"))).toBe(false);
});

test("does not move a photo whose time has changed", async () => {
  reject(a);
  utimesSync(join(folder, "sub/a.jpg"), 1_000, 1_000);
  expect((await moveRejected(database)).problems[0]?.problem).toBe(
    "has changed since the scan: scan again",
  );
});

test("stops between two photos", async () => {
  reject(a, b);
  expect(await moveRejected(database, { signal: AbortSignal.abort() })).toEqual({
    moved: 0,
    problems: [],
  });
});
