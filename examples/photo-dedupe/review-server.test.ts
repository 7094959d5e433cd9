import { execFileSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, renameSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance } from "fastify";
import sharp from "sharp";
import { afterEach, beforeEach, expect, test } from "vitest";

import { buildReviewApp, serveReview } from "./review-server.ts";
import { scan } from "./scan.ts";
import { silent } from "./test-photos.ts";
import { type ReviewSet, reviewSet } from "./test-review.ts";

let set: ReviewSet;
let app: FastifyInstance;

beforeEach(async () => {
  set = await reviewSet();
  app = buildReviewApp(set.database);
});

afterEach(async () => {
  await app.close();
  set.database.close();
});

const host = "127.0.0.1:8000";
const get = (url: string, headers: Record<string, string> = {}) =>
  app.inject({ url, headers: { host, ...headers } });
const post = (url: string, body: unknown = {}, headers: Record<string, string> = {}) =>
  app.inject({
    method: "POST",
    url,
    headers: { host, origin: `http://${host}`, "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
const decide = (path: string, decision: "keep" | "reject" | null) =>
  post("/api/decisions", { decisions: [{ photo: set.id(path), decision }] });
const decisions = () =>
  set.database.all("SELECT id, decision FROM photos WHERE decision IS NOT NULL ORDER BY id");

test("returns a group with the suggested photo", async () => {
  const group = (await get("/api/groups/0")).json();
  expect(group.photos.map(({ name }: { name: string }) => name)).toEqual([
    "one.jpg",
    "three.webp",
    "two.jpg",
  ]);
  expect(group).toMatchObject({ page: 0, pages: 1, first: 1, count: 3 });
  expect(group.keeper).toMatchObject({
    id: set.id("a/one.jpg"),
    reason: "most pixels (480 × 320), has the time it was taken",
  });
  expect((await get("/api/groups/2")).statusCode).toBe(404);
});

test("returns the similarity of each pair, of embeddings if the photos were grouped by them", async () => {
  const { photos, pairs } = (await get("/api/groups/0")).json();
  expect(pairs.map(({ length }: { length: number }) => length)).toEqual([0, 1, 2]);
  expect(photos[0].toKeeper).toEqual({ cosine: null, bits: 0 });
  expect(pairs[1][0].bits).toBeLessThanOrEqual(8);

  await app.close();
  const two = set.database.get<{ readonly sha256: string }>(
    "SELECT sha256 FROM photos WHERE path LIKE '%/a/two.jpg'",
  )!.sha256;
  const vector = Float32Array.of(0.6, 0.8);
  app = buildReviewApp(set.database, (sha256) => (sha256 === two ? undefined : vector));
  const embedded = (await get("/api/groups/0")).json();
  expect(embedded.pairs[1][0].cosine).toBe(1);
  expect(embedded.pairs[2][0].cosine).toBeNull();
});

/** Adds photos to a group that exist only in the index. */
function addPhotos(position: number, count: number, sha256: (index: number) => string): void {
  set.database.transaction(() => {
    for (let i = 0; i < count; i++) {
      set.database.run(
        `INSERT INTO photos (path, root, bytes, mtime_ms, seen, state, sha256, hash, format, width, height, position)
         VALUES (?, ?, 1, 1, 1, 'present', ?, '00ff00ff00ff00ff', 'jpeg', 1, 1, ?)`,
        join(set.folder, `added/${position}-${String(i).padStart(6, "0")}.jpg`),
        set.folder,
        sha256(i),
        position,
      );
    }
  });
}

test("pages a large group", async () => {
  addPhotos(2, 10_000, String);
  const last = (await get("/api/groups/2?page=166")).json();
  expect(last).toMatchObject({ page: 166, pages: 167, first: 9_961, count: 10_000 });
  expect(last.photos).toHaveLength(40);
  expect(last.keeper.id).not.toBe(last.photos[0].id);
  expect((await get("/api/groups/2?page=-1")).statusCode).toBe(400);
});

test("accepts the suggestion for all photos of a large group, and keeps photos kept manually", async () => {
  addPhotos(2, 10_000, String);
  await decide("added/2-009999.jpg", "keep");
  expect((await post("/api/groups/2/accept")).json()).toMatchObject({
    decided: 10_000,
    rejected: 9_998,
  });
  expect((await post("/api/groups/9/accept")).statusCode).toBe(409);
});

test("finds the next group with an undecided photo, from the start after the last", async () => {
  const next = async (id: number) => (await get(`/api/groups/${id}/next-undecided`)).json();
  await post("/api/groups/1/accept");
  expect(await next(0)).toEqual({ position: 0 });
  expect(await next(1)).toEqual({ position: 0 });
  await post("/api/groups/0/accept");
  expect(await next(0)).toEqual({ position: null });
});

test("rejects all byte-identical copies at once, but never the last of them", async () => {
  addPhotos(2, 3, () => "same");
  addPhotos(3, 4, (i) => (i < 3 ? "three" : "other"));
  addPhotos(4, 2, () => "rejected");
  await decide("added/3-000001.jpg", "keep");
  await decide("added/4-000000.jpg", "reject");
  expect((await get("/api/copies")).json()).toEqual({ copies: 4 });
  expect((await post("/api/accept-copies", { copies: 3 })).statusCode).toBe(409);
  expect((await post("/api/accept-copies", { copies: 4 })).json()).toMatchObject({ rejected: 5 });
  const decisionsOf = (position: number) =>
    set.database
      .all<{ readonly decision: string | null }>(
        "SELECT decision FROM photos WHERE position = ? ORDER BY path",
        position,
      )
      .map(({ decision }) => decision);
  expect(decisionsOf(2)).toEqual(["keep", "reject", "reject"]);
  expect(decisionsOf(3)).toEqual(["reject", "keep", "reject", null]);
  expect(decisionsOf(4)).toEqual(["reject", "keep"]);
  expect((await get("/api/copies")).json()).toEqual({ copies: 0 });
});

test("sends no path outside of the scanned folder", async () => {
  const text = (await get("/api/groups/0")).body + (await get("/api/state")).body;
  expect(text).not.toContain(set.folder);
});

test("saves decisions", async () => {
  await decide("a/one.jpg", "keep");
  const state = (await decide("a/two.jpg", "reject")).json();
  expect(state).toMatchObject({ groups: 2, photos: 5, decided: 2, rejected: 1 });
  expect(decisions()).toHaveLength(2);
});

test("withdraws a decision", async () => {
  await decide("b/two.jpg", "reject");
  expect((await decide("b/two.jpg", null)).json()).toMatchObject({ decided: 0, rejected: 0 });
});

test("saves decisions on a group of thousands", async () => {
  const decisions = Array.from({ length: 5_000 }, () => ({
    photo: set.id("a/one.jpg"),
    decision: "reject",
  }));
  expect((await post("/api/decisions", { decisions })).statusCode).toBe(200);
});

test("fails if a photo is in no group and saves nothing", async () => {
  const answer = await post("/api/decisions", {
    decisions: [
      { photo: set.id("a/one.jpg"), decision: "keep" },
      { photo: set.id("more/alone.jpg"), decision: "reject" },
    ],
  });
  expect(answer.statusCode).toBe(409);
  expect(decisions()).toEqual([]);
});

test("rejects an invalid request with one line", async () => {
  for (const body of [
    {},
    { decisions: [] },
    { decisions: [{ photo: "1", decision: "keep" }] },
    { decisions: [{ photo: 1, decision: "delete" }] },
    { decisions: [{ photo: 1, decision: "keep", path: "/etc/passwd" }] },
  ]) {
    const answer = await post("/api/decisions", body);
    expect(answer.statusCode).toBe(400);
    expect(answer.json().error).toMatch(/^\S.*$/);
  }
});

test("moves rejected photos and restores them", async () => {
  await decide("a/two.jpg", "reject");
  await decide("b/two.jpg", "reject");
  const before = readFileSync(join(set.folder, "a/two.jpg"));
  expect((await post("/api/move-rejected", { rejected: 2 })).json()).toMatchObject({
    moved: 2,
    problems: [],
    state: { moved: 2, rejected: 0 },
  });
  expect(existsSync(join(set.folder, "a/two.jpg"))).toBe(false);
  expect(readFileSync(join(set.folder, "clipstack-rejected/a/two.jpg"))).toEqual(before);
  const { photos } = (await get("/api/moved")).json();
  expect(photos.map(({ name }: { name: string }) => name)).toEqual(["a/two.jpg", "b/two.jpg"]);

  await post("/api/restore", { photo: photos[1].id });
  expect((await post("/api/restore")).json()).toMatchObject({ moved: 1, state: { moved: 0 } });
  expect(readFileSync(join(set.folder, "a/two.jpg"))).toEqual(before);
  // unchanged, so that no scan reads it again
  expect(await scan(set.database, { folder: set.folder, progress: silent })).toMatchObject({
    read: 0,
    unchanged: 6,
    gone: 0,
  });
});

test("moves nothing if more photos are rejected than were confirmed", async () => {
  await decide("a/two.jpg", "reject");
  await decide("b/two.jpg", "reject");
  const answer = await post("/api/move-rejected", { rejected: 1 });
  expect([answer.statusCode, answer.json().error]).toEqual([
    409,
    "2 photos are rejected by now, not 1: nothing was moved",
  ]);
  expect(existsSync(join(set.folder, "a/two.jpg"))).toBe(true);
  expect((await post("/api/move-rejected", { rejected: 2 })).json()).toMatchObject({ moved: 2 });
});

/** Blocks all file operations until it is called, because opening a pipe waits for a writer. */
function holdFiles(): () => void {
  const pipe = join(set.folder, "../pipe");
  execFileSync("mkfifo", [pipe]);
  const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4);
  const opened = Array.from({ length: threads }, () => open(pipe));
  return () => {
    const writer = openSync(pipe, "r+");
    Promise.all(opened.map(async (file) => (await file).close())).then(() => closeSync(writer));
  };
}

test.skipIf(process.platform === "win32")(
  "Ctrl-C waits for the photo that is being moved, and leaves the others",
  async () => {
    for (const path of ["a/one.jpg", "a/two.jpg", "b/two.jpg"]) await decide(path, "reject");
    const controller = new AbortController();
    let listening = (_url: string) => {};
    const address = new Promise<string>((resolve) => {
      listening = (url) => resolve(new URL(url).origin);
    });
    let ended = false;
    const serving = serveReview(set.database, {
      port: 0,
      signal: controller.signal,
      onListening: (url) => listening(url),
    }).finally(() => {
      ended = true;
    });
    const origin = await address;
    const release = holdFiles();
    const moving = fetch(`${origin}/api/move-rejected`, {
      method: "POST",
      headers: { origin, "content-type": "application/json" },
      body: JSON.stringify({ rejected: 3 }),
    });
    moving.catch(() => {});
    // the response to a later request shows that it has begun
    for (let i = 0; i < 5; i++) await (await fetch(`${origin}/api/state`)).text();
    controller.abort();
    await sleep(200);
    expect(ended).toBe(false);
    release();
    await serving;
    const moves = set.database.all<{ readonly path: string }>(
      "SELECT path FROM photos WHERE state = 'moved'",
    );
    expect(moves).toEqual([{ path: join(set.folder, "a/one.jpg") }]);
    expect(existsSync(join(set.folder, "a/one.jpg"))).toBe(false);
    expect(existsSync(join(set.folder, "clipstack-rejected/a/one.jpg"))).toBe(true);
    expect(existsSync(join(set.folder, "a/two.jpg"))).toBe(true);
  },
);

test("counts the groups without a remaining photo", async () => {
  await decide("b/two.jpg", "reject");
  await decide("b/<b>one.jpg", "reject");
  expect((await get("/api/rejected")).json()).toMatchObject({ rejected: 2, emptied: 1 });
});

test("makes thumbnails, also of a photo that was moved", async () => {
  const id = set.id("a/one.jpg");
  const answer = await get(`/thumbnails/${id}`);
  expect(answer.headers["content-type"]).toBe("image/jpeg");
  expect(await sharp(answer.rawPayload).metadata()).toMatchObject({ width: 480, height: 320 });
  await decide("a/one.jpg", "reject");
  await post("/api/move-rejected", { rejected: 1 });
  expect((await get(`/photos/${id}`)).statusCode).toBe(200);
});

test("a missing photo has no thumbnail", async () => {
  const id = set.id("a/one.jpg");
  renameSync(join(set.folder, "a/one.jpg"), join(set.folder, "../one.jpg"));
  const answer = await get(`/thumbnails/${id}`);
  expect([answer.statusCode, answer.json().error]).toEqual([404, "the photo cannot be read"]);
});

test("accepts no paths from clients", async () => {
  for (const url of [
    "/thumbnails/..%2f..%2fetc%2fpasswd",
    "/thumbnails/1e3",
    "/photos/-1",
    "/photos/999999",
    "/../index/photos.db",
    "/page%2f..%2f..%2findex%2fphotos.db",
    "/package.json",
  ]) {
    expect((await get(url)).statusCode, url).toBe(404);
  }
});

test("rejects a foreign host name that resolves to this machine", async () => {
  for (const name of ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", ":8000"]) {
    expect((await get("/api/state", { host: name })).statusCode, name).toBe(403);
  }
  for (const name of ["127.0.0.1:8000", "localhost:8000", "[::1]:8000"]) {
    expect((await get("/api/state", { host: name })).statusCode, name).toBe(200);
  }
});

test("rejects pages of other origins and changes without an origin", async () => {
  for (const origin of ["http://evil.example", "null", "http://127.0.0.1:9000"]) {
    expect((await post("/api/restore", {}, { origin })).statusCode, origin).toBe(403);
  }
  const answer = await app.inject({ method: "POST", url: "/api/restore", headers: { host } });
  expect(answer.statusCode).toBe(403);
});

test("loads nothing from other origins", async () => {
  const { headers, body } = await get("/");
  expect(headers["content-security-policy"]).toContain("default-src 'none'");
  expect(headers["cross-origin-resource-policy"]).toBe("same-origin");
  expect(body).not.toMatch(/https?:\/\//);
});
