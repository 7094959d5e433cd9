import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { scan } from "./scan.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

let folder: string;
let database: PhotoDatabase;

beforeEach(() => {
  // JavaScript and SQLite count the length of this name differently
  folder = join(temporaryFolder(), "photos 🐱");
  mkdirSync(folder);
  database = openPhotoDatabase(join(folder, "../index"), "create");
});

afterEach(() => database.close());

const notes: string[] = [];
const scanFolder = () => {
  notes.length = 0;
  return scan(database, {
    folder,
    progress: { ...silent, note: (text) => notes.push(text.replace(`${folder}/`, "")) },
  });
};

const rows = () =>
  database.all<Record<string, unknown>>(
    "SELECT substr(path, length(root) + 2) AS path, state, sha256 FROM photos ORDER BY path",
  );

test("reads JPEG, PNG and WebP in all folders, ignoring the case of file extensions", async () => {
  mkdirSync(join(folder, "2024/May"), { recursive: true });
  await picture(1).jpeg().toFile(join(folder, "2024/May/a.JPG"));
  await picture(2).png().toFile(join(folder, "2024/b.png"));
  await picture(3).webp().toFile(join(folder, "c.webp"));
  writeFileSync(join(folder, "notes.txt"), "not a photo");
  expect(await scanFolder()).toMatchObject({ read: 3, unchanged: 0, unreadable: 0 });
  expect(rows().map(({ path }) => path)).toEqual(["2024/May/a.JPG", "2024/b.png", "c.webp"]);
});

test("does not read a photo again if its size and time are unchanged", async () => {
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  expect(await scanFolder()).toMatchObject({ read: 0, unchanged: 1 });
});

test("reads a photo again if its content or only its time has changed", async () => {
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  const before = rows()[0]?.sha256;
  await picture(2).jpeg().toFile(join(folder, "a.jpg"));
  expect(await scanFolder()).toMatchObject({ read: 1, unchanged: 0 });
  expect(rows()[0]?.sha256).not.toBe(before);
  utimesSync(join(folder, "a.jpg"), 1_000, 1_000);
  expect(await scanFolder()).toMatchObject({ read: 1, unchanged: 0 });
});

test("marks a missing photo, and unmarks it when it exists again", async () => {
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  renameSync(join(folder, "a.jpg"), join(folder, "../a.jpg"));
  expect(await scanFolder()).toMatchObject({ gone: 1 });
  expect(rows()[0]?.state).toBe("gone");
  renameSync(join(folder, "../a.jpg"), join(folder, "a.jpg"));
  expect(await scanFolder()).toMatchObject({ read: 0, unchanged: 1, gone: 0 });
  expect(rows()[0]?.state).toBe("present");
});

test("does not change photos of other folders", async () => {
  const other = temporaryFolder();
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  await picture(2).jpeg().toFile(join(other, "b.jpg"));
  expect(await scan(database, { folder: other, progress: silent })).toMatchObject({ gone: 0 });
});

// macOS and Windows do not allow such names
test.skipIf(process.platform !== "linux")(
  "reports a photo and a folder whose names are not UTF-8",
  async () => {
    const odd = (end: string) =>
      Buffer.concat([Buffer.from(`${folder}/f`), Buffer.from([0xfc]), Buffer.from(end)]);
    writeFileSync(odd(".jpg"), "");
    mkdirSync(odd("older"));
    expect(await scanFolder()).toMatchObject({ unreadable: 1, closedFolders: 1 });
    expect(notes).toHaveLength(2);
  },
);

test("scans a folder that is named like a photo", async () => {
  mkdirSync(join(folder, "x.jpg"));
  await picture(1).jpeg().toFile(join(folder, "x.jpg/inside.jpg"));
  expect(await scanFolder()).toMatchObject({ read: 1, unreadable: 0 });
});

test("does not follow links, cyclic or to a scanned photo", async () => {
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  symlinkSync(folder, join(folder, "loop"));
  symlinkSync(join(folder, "a.jpg"), join(folder, "again.jpg"));
  symlinkSync("itself.jpg", join(folder, "itself.jpg"));
  expect(await scanFolder()).toMatchObject({ read: 1, unreadable: 0 });
});

test.skipIf(process.getuid?.() === 0)(
  "keeps what it knows of photos in a folder that cannot be listed (root can list every folder)",
  async () => {
    const closed = join(folder, "closed");
    mkdirSync(closed);
    await picture(1).jpeg().toFile(join(closed, "a.jpg"));
    await scanFolder();
    chmodSync(closed, 0o000);
    try {
      expect(await scanFolder()).toMatchObject({ closedFolders: 1, gone: 0 });
    } finally {
      chmodSync(closed, 0o700);
    }
    expect(notes).toEqual(["closed: cannot be listed: permission denied"]);
    expect(rows()[0]?.state).toBe("present");
  },
);

test("skips the folder of rejected photos", async () => {
  mkdirSync(join(folder, "clipstack-rejected"));
  await picture(1).jpeg().toFile(join(folder, "clipstack-rejected/a.jpg"));
  expect(await scanFolder()).toMatchObject({ read: 0 });
});

test("removes a changed photo from its group and deletes its decision", async () => {
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  const state = () => database.get("SELECT position, decision FROM photos");
  database.run("UPDATE photos SET position = 0, decision = 'reject'");
  utimesSync(join(folder, "a.jpg"), 1_000, 1_000);
  await scanFolder();
  expect(state()).toEqual({ position: 0, decision: "reject" });
  await picture(2).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  expect(state()).toEqual({ position: null, decision: null });
});

test("skips a file with the name of a moved photo, and accepts that photo when it is moved back manually", async () => {
  await picture(1).jpeg().toFile(join(folder, "a.jpg"));
  await scanFolder();
  const away = join(folder, "../away.jpg");
  renameSync(join(folder, "a.jpg"), away);
  database.run("UPDATE photos SET state = 'moved', decision = 'reject', moved_to = ?", away);
  await picture(2).jpeg().toFile(join(folder, "a.jpg"));
  expect(await scanFolder()).toMatchObject({ read: 0, unreadable: 1, gone: 0 });
  expect(notes).toEqual([
    `a.jpg: cannot be read: a photo of this name was moved to '${away}': rename this one`,
  ]);
  renameSync(away, join(folder, "a.jpg"));
  expect(await scanFolder()).toMatchObject({ unchanged: 1 });
  expect(database.all("SELECT state, decision, moved_to FROM photos")).toEqual([
    { state: "present", decision: null, moved_to: null },
  ]);
});

test("fails with one line if the folder does not exist", async () => {
  await expect(scan(database, { folder: "/nowhere/at all", progress: silent })).rejects.toThrow(
    "folder '/nowhere/at all': no such file or directory",
  );
});

test("a killed scan leaves a database that the next scan uses", async () => {
  const png = await picture(1, 900, 600).png({ compressionLevel: 0 }).toBuffer();
  for (let i = 0; i < 40; i++) writeFileSync(join(folder, `${i}.png`), png);
  const file = join(folder, "../killed");
  const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
  const child = spawn(process.execPath, [program, "scan", folder, "--index", file], {
    stdio: "ignore",
  });
  const ended = once(child, "exit");
  await expect.poll(() => existsSync(join(file, "photos.db-wal")), { interval: 5 }).toBe(true);
  child.kill("SIGKILL");
  await ended;
  const again = openPhotoDatabase(file, "create");
  try {
    const { read, unchanged } = await scan(again, { folder, progress: silent });
    expect(read + unchanged).toBe(40);
  } finally {
    again.close();
    rmSync(file, { recursive: true });
  }
});
