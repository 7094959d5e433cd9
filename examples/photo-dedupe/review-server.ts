import { readFile } from "node:fs/promises";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { buildLocalPage, type ServeOptions, serveLocalPage } from "../search/local-page.ts";
import { readVectors } from "./embeddings.ts";
import { readGrouping } from "./group.ts";
import { type MoveResult, moveRejected, restore } from "./move-rejected.ts";
import { openPhoto } from "./open-photo.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { countEmptiedGroups, decide, movedPhotos, reviewState } from "./review-data.ts";
import {
  acceptCopies,
  acceptSuggestion,
  countSpareCopies,
  nextUndecided,
  reviewGroup,
  type VectorOf,
} from "./review-group.ts";

/** Maximum side of an image on the page, in pixels. */
const sides = { thumbnails: 480, photos: 1_600 } as const;

const pageFiles = ["index.html", "page.css", "photo-card.js", "page.js"];

const idParams = z.object({ id: z.coerce.number().int().min(0) });
const groupQuery = z.object({ page: z.coerce.number().int().min(0).default(0) });
/** `copies` is the number of photos that the page showed before the confirmation. */
const copiesBody = z.strictObject({ copies: z.int().min(1) });
const decisionsBody = z.strictObject({
  decisions: z
    .array(
      z.strictObject({ photo: z.int().min(1), decision: z.enum(["keep", "reject"]).nullable() }),
    )
    .min(1),
});
/** `rejected` is the number of photos that the page showed before the confirmation. */
const moveBody = z.strictObject({ rejected: z.int().min(1) });
const restoreBody = z.strictObject({ photo: z.int().min(1).optional() });

/**
 * Builds the server of the review page without listening. Clients send ids of photos, never paths; requests from pages of
 * another origin are rejected.
 */
export function buildReviewApp(
  database: PhotoDatabase,
  vectorOf: VectorOf = () => undefined,
): FastifyInstance {
  const app = buildLocalPage(new URL("page/", import.meta.url), pageFiles);
  registerReviewRoutes(app, database, vectorOf);
  registerMoveRoutes(app, database);
  registerImageRoutes(app, database);
  return app;
}

function registerReviewRoutes(
  app: FastifyInstance,
  database: PhotoDatabase,
  vectorOf: VectorOf,
): void {
  app.get("/api/state", async () => reviewState(database));
  app.get("/api/groups/:id", async ({ params, query }, reply) => {
    const { data } = idParams.safeParse(params);
    const { page } = groupQuery.parse(query);
    return (
      (data && reviewGroup(database, data.id, vectorOf, page)) ??
      reply.code(404).send({ error: "there is no such group" })
    );
  });
  app.get("/api/groups/:id/next-undecided", async ({ params }) => ({
    position: nextUndecided(database, idParams.parse(params).id) ?? null,
  }));
  app.post("/api/groups/:id/accept", async ({ params }, reply) => {
    if (acceptSuggestion(database, idParams.parse(params).id)) return reviewState(database);
    return reply.code(409).send({ error: "the group has no photo on the disk: reload the page" });
  });
  app.get("/api/copies", async () => ({ copies: countSpareCopies(database) }));
  app.post("/api/accept-copies", async ({ body }, reply) => {
    const { copies } = copiesBody.parse(body);
    const now = countSpareCopies(database);
    if (copies !== now) {
      const error = `there are ${now} copies by now, not ${copies}: nothing was rejected`;
      return reply.code(409).send({ error });
    }
    acceptCopies(database);
    return reviewState(database);
  });
  app.post("/api/decisions", async ({ body }, reply) => {
    if (decide(database, decisionsBody.parse(body).decisions)) return reviewState(database);
    return reply.code(409).send({ error: "a photo no longer exists: reload the page" });
  });
}

/** Registers routes that move files: one after the other, and none once the server closes. */
function registerMoveRoutes(app: FastifyInstance, database: PhotoDatabase): void {
  const closing = new AbortController();
  let lastMove: Promise<unknown> = Promise.resolve();
  const afterLastMove = (move: () => Promise<MoveResult>) => {
    const result = lastMove
      .then(move)
      .then((moved) => ({ ...moved, state: reviewState(database) }));
    lastMove = result.catch(() => {});
    return result;
  };
  app.addHook("onClose", async () => {
    // the photo being moved still needs the database
    closing.abort();
    await lastMove;
  });

  app.get("/api/moved", async () => ({ photos: movedPhotos(database, 500) }));
  app.get("/api/rejected", async () => ({
    ...reviewState(database),
    emptied: countEmptiedGroups(database),
  }));
  app.post("/api/move-rejected", async ({ body }, reply) => {
    const { rejected } = moveBody.parse(body);
    const now = reviewState(database).rejected;
    if (rejected === now) return afterLastMove(() => moveRejected(database, closing.signal));
    return reply
      .code(409)
      .send({ error: `${now} photos are rejected by now, not ${rejected}: nothing was moved` });
  });
  app.post("/api/restore", async ({ body }) => {
    const { photo: only } = restoreBody.parse(body);
    return afterLastMove(() => restore(database, { only, signal: closing.signal }));
  });
}

function registerImageRoutes(app: FastifyInstance, database: PhotoDatabase): void {
  for (const kind of ["thumbnails", "photos"] as const) {
    app.get(`/${kind}/:id`, async ({ params }, reply) => {
      const photo = database.get<{ readonly path: string }>(
        "SELECT coalesce(moved_to, path) AS path FROM photos WHERE id = ? AND hash IS NOT NULL",
        idParams.safeParse(params).data?.id ?? 0,
      );
      try {
        const image = await scaledPhoto(photo?.path ?? "", sides[kind]);
        return reply
          .type("image/jpeg")
          .header("cache-control", "private, max-age=86400")
          .send(image);
      } catch {
        return reply.code(404).send({ error: "the photo cannot be read" });
      }
    });
  }
}

async function scaledPhoto(path: string, side: number): Promise<Buffer> {
  const { image } = await openPhoto(await readFile(path));
  return image
    .flatten({ background: "white" })
    .resize(side, side, { fit: "inside", withoutEnlargement: true })
    .toColourspace("srgb")
    .jpeg({ quality: 85 })
    .toBuffer();
}

/** Reads the embeddings of the photos in groups. */
async function groupedVectors(database: PhotoDatabase): Promise<VectorOf> {
  const model = readGrouping(database)?.model;
  if (model === undefined) return () => undefined;
  const rows = database.all<{ readonly sha256: string }>(
    "SELECT DISTINCT sha256 FROM photos WHERE position IS NOT NULL",
  );
  const wanted = new Set(rows.map(({ sha256 }) => sha256));
  return (await readVectors(database, { name: model }, wanted)).of;
}

/** Serves the review page on the loopback interface until the signal. */
export async function serveReview(database: PhotoDatabase, options: ServeOptions): Promise<void> {
  await serveLocalPage(buildReviewApp(database, await groupedVectors(database)), options);
}
