import { once } from "node:events";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import Fastify, { type FastifyInstance, type FastifyRequest } from "fastify";
import { z } from "zod";
import { readVectors } from "./embeddings.ts";
import { readGrouping } from "./group.ts";
import { type MoveResult, moveRejected, restore } from "./move-rejected.ts";
import { openPhoto } from "./open-photo.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { DedupeError } from "./report.ts";
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

const pageFiles = {
  "/": { file: "index.html", type: "text/html; charset=utf-8" },
  "/page.css": { file: "page.css", type: "text/css; charset=utf-8" },
  "/photo-card.js": { file: "photo-card.js", type: "text/javascript; charset=utf-8" },
  "/page.js": { file: "page.js", type: "text/javascript; charset=utf-8" },
} as const;

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

const headers = {
  // no resource of another origin, and no script that a photo's name could inject
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-store",
} as const;

/**
 * Builds the server of the review page without listening. Clients send ids of photos, never paths; requests from pages of
 * another origin are rejected.
 */
export function buildReviewApp(
  database: PhotoDatabase,
  vectorOf: VectorOf = () => undefined,
): FastifyInstance {
  const app = Fastify({ logger: false, bodyLimit: 8 * 1024 * 1024 });
  app.addHook("onRequest", async (request, reply) => {
    reply.headers(headers);
    const problem = foreignOriginProblem(request);
    if (problem !== undefined) return reply.code(403).send({ error: problem });
  });
  app.setErrorHandler((error: Error & { readonly statusCode?: number }, _request, reply) => {
    const [issue] = error instanceof z.ZodError ? error.issues : [];
    if (issue) return reply.code(400).send({ error: `${issue.path.join(".")}: ${issue.message}` });
    return reply.code(error.statusCode ?? 500).send({ error: error.message.split("\n")[0] });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "not found" }));

  for (const [path, { file, type }] of Object.entries(pageFiles)) {
    const content = readFileSync(new URL(`page/${file}`, import.meta.url), "utf8");
    app.get(path, (_request, reply) => reply.type(type).send(content));
  }
  app.get("/favicon.ico", (_request, reply) => reply.code(204).send());
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

/**
 * Returns the reason to reject a request that does not come from this page: `Host` reveals DNS rebinding, and `Origin`, which browsers
 * send with every POST, a page of another origin.
 */
function foreignOriginProblem({ headers, method }: FastifyRequest): string | undefined {
  const { host = "", origin } = headers;
  if (!/^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/.test(host)) {
    return "this page is for this machine: use http://127.0.0.1 or http://localhost";
  }
  const reads = method === "GET" || method === "HEAD";
  if (origin === `http://${host}` || (origin === undefined && reads)) return undefined;
  return "requests of other origins are rejected";
}

export interface ServeReviewOptions {
  /** 0 selects a free port. */
  readonly port: number;
  readonly onListening: (url: string) => void;
  readonly signal: AbortSignal;
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
export async function serveReview(
  database: PhotoDatabase,
  { port, onListening, signal }: ServeReviewOptions,
): Promise<void> {
  const app = buildReviewApp(database, await groupedVectors(database));
  try {
    const host = "127.0.0.1";
    await app.listen({ host, port }).catch((cause: NodeJS.ErrnoException) => {
      const inUse = cause.code === "EADDRINUSE";
      const problem = inUse ? "is in use: choose another with --port" : cause.message;
      throw new DedupeError("usage", `port ${port} ${problem}`, { cause });
    });
    onListening(`http://${host}:${(app.server.address() as AddressInfo).port}/`);
    if (!signal.aborted) await once(signal, "abort");
  } finally {
    app.server.closeAllConnections();
    await app.close();
  }
}
