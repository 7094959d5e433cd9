import { readFileSync } from "node:fs";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { z } from "zod";
import { moveRejected, restore } from "./move-rejected.ts";
import { oneAtATime } from "./one-at-a-time.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { decide, movedPhotos, reviewGroup, reviewState, undo } from "./review-data.ts";
import { openThumbnails } from "./thumbnails.ts";

export interface ReviewAppOptions {
  readonly database: PhotoDatabase;
  /**
   * Folder that rejected photos are moved into.
   *
   * @default - `clipstack-rejected` in the folder that was scanned
   */
  readonly rejectedFolder?: string;
  /** Says on the page that the photos are painted. */
  readonly demo: boolean;
}

/** Longest side of what the page shows, in pixels. */
const sides = { thumbnails: 480, photos: 1_600 } as const;

const pageFiles = {
  "/": { file: "index.html", type: "text/html; charset=utf-8" },
  "/page.css": { file: "page.css", type: "text/css; charset=utf-8" },
  "/page.js": { file: "page.js", type: "text/javascript; charset=utf-8" },
} as const;

const id = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const decisionsBody = z.strictObject({
  decisions: z
    .array(
      z.strictObject({
        photo: z.int().min(1),
        decision: z.enum(["keep", "reject"]).nullable(),
      }),
    )
    .min(1)
    .max(100_000),
});
/** As many as the person was asked about. */
const moveBody = z.strictObject({ rejected: z.int().min(1).optional() });
const restoreBody = z.strictObject({ move: z.int().min(1).optional() });

const headers = {
  // nothing from elsewhere, and nothing that a photo's name could smuggle in
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
 * Build the review page's server. It does not listen. It takes numbers of photos and nothing else from its callers: no
 * path, and no page of another origin.
 */
export function buildReviewApp({
  database,
  rejectedFolder,
  demo,
}: ReviewAppOptions): FastifyInstance {
  const app = Fastify({ logger: false, bodyLimit: 8 * 1024 * 1024 });
  const thumbnails = openThumbnails();
  // two would move the same photos
  const moving = oneAtATime();
  const closing = new AbortController();
  app.addHook("onClose", async () => {
    // the photo that is being moved needs the database to the end
    closing.abort();
    await moving.idle();
  });

  app.addHook("onRequest", async (request, reply) => {
    reply.headers(headers);
    const problem = strangerProblem(request);
    if (problem !== undefined) return reply.code(403).send({ error: problem });
  });
  app.setErrorHandler((error, _request, reply) => {
    const status = (error as { readonly statusCode?: number }).statusCode ?? 500;
    const [line] = (error as Error).message.split("\n");
    return reply.code(status).send({ error: line });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "not found" }));

  for (const [path, { file, type }] of Object.entries(pageFiles)) {
    const content = readFileSync(new URL(`page/${file}`, import.meta.url));
    app.get(path, (_request, reply) => reply.type(type).send(content));
  }

  app.get("/favicon.ico", (_request, reply) => reply.code(204).send());

  const state = () => ({ ...reviewState(database), demo });

  app.get("/api/state", async () => state());

  app.get("/api/groups/:position", async (request, reply) => {
    const position = idOf(request, "position");
    const group = position === undefined ? undefined : reviewGroup(database, position);
    return group ?? reply.code(404).send({ error: "there is no such group" });
  });

  app.post("/api/decisions", async (request, reply) => {
    const body = decisionsBody.safeParse(request.body);
    if (!body.success) return badRequest(reply, body.error);
    if (!decide(database, body.data.decisions)) {
      return reply.code(409).send({ error: "a photo is not there any more: load the page again" });
    }
    return state();
  });

  app.post("/api/undo", async () => {
    const undone = undo(database);
    return { ...state(), ...undone };
  });

  app.get("/api/moved", async () => ({ photos: movedPhotos(database, 500) }));

  app.post("/api/move-rejected", async (request, reply) => {
    const body = moveBody.safeParse(request.body ?? {});
    if (!body.success) return badRequest(reply, body.error);
    const { rejected } = body.data;
    return moving.run(async () => {
      if (rejected !== undefined && rejected !== state().rejected) {
        return reply.code(409).send({
          error: `${state().rejected} photos are rejected by now, not ${rejected}: nothing was moved, ask again`,
        });
      }
      const options = { folder: rejectedFolder, signal: closing.signal };
      const result = await moveRejected(database, options);
      return { ...result, state: state() };
    });
  });

  app.post("/api/restore", async (request, reply) => {
    const body = restoreBody.safeParse(request.body ?? {});
    if (!body.success) return badRequest(reply, body.error);
    const { move } = body.data;
    return moving.run(async () => {
      const which = move === undefined ? undefined : ({ id }: { id: number }) => id === move;
      const result = await restore(database, { which, signal: closing.signal });
      return { ...result, state: state() };
    });
  });

  for (const kind of ["thumbnails", "photos"] as const) {
    app.get(`/${kind}/:id`, async (request, reply) => {
      const photo = idOf(request, "id");
      const row = database.get<{
        readonly path: string;
        readonly moved_to: string | null;
        readonly md5: string | null;
      }>(
        `SELECT p.path, p.md5,
           CASE p.state WHEN 'moved' THEN (SELECT max(moved_to) FROM moves WHERE photo_id = p.id) END AS moved_to
         FROM photos p WHERE p.id = ? AND p.md5 IS NOT NULL`,
        [photo ?? 0],
      );
      if (row === undefined) return reply.code(404).send({ error: "there is no such photo" });
      try {
        const image = await thumbnails.get(row.md5 ?? "", row.moved_to ?? row.path, sides[kind]);
        return reply
          .type("image/jpeg")
          .header("cache-control", "private, max-age=86400")
          .send(image);
      } catch {
        return reply.code(404).send({ error: "the photo cannot be read" });
      }
    });
  }

  return app;
}

function idOf(request: FastifyRequest, name: string): number | undefined {
  return id.safeParse((request.params as Readonly<Record<string, string>>)[name]).data;
}

function badRequest(reply: FastifyReply, { issues }: z.ZodError): FastifyReply {
  const [issue] = issues;
  return reply.code(400).send({ error: `${issue?.path.join(".") || "body"}: ${issue?.message}` });
}

/**
 * Why a request is refused that this page did not send. A name that somebody made lead here (DNS rebinding) is in `Host`;
 * a page of another origin is in `Origin`, which browsers send with every POST.
 */
function strangerProblem(request: FastifyRequest): string | undefined {
  const host = request.headers.host ?? "";
  const [, name = ""] = /^(.*?)(?::\d+)?$/.exec(host) ?? [];
  if (!["127.0.0.1", "localhost", "[::1]"].includes(name)) {
    return "this page is for this machine: use http://127.0.0.1 or http://localhost";
  }
  const { origin } = request.headers;
  if (origin !== undefined && origin !== `http://${host}`) return "another page may not ask";
  if (request.method !== "GET" && request.method !== "HEAD" && origin === undefined) {
    return "an Origin header is required";
  }
  return undefined;
}
