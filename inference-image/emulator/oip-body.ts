import { setMaxListeners } from "node:events";
import type { IncomingMessage } from "node:http";
import { promisify } from "node:util";
import { deflate, gunzip, gzip, inflate } from "node:zlib";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { HttpBody } from "../../client/triton/wire-http.ts";
import { Budget } from "../../inference/budget.ts";
import type { Reservation } from "../http/admission.ts";
import { EmbedError } from "../http/embed-error.ts";
import { announcedLength, readBody } from "../http/request-body.ts";
import { type OipAdmission, oipErrorOf } from "./oip-admission.ts";
import { OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** Largest body of what is no inference: the configuration of a model is some KiB. */
const maxControlBytes = 4 * 1024 * 1024;

/** Bodies that are decompressed at a time: each may become as large as a body may be. */
const maxDecompressing = 2;

export interface InferBodiesOptions {
  readonly admission: OipAdmission;
  /** Largest body, before and after decompression. */
  readonly maxInputBytes: number;
}

/** An inference request that was let in. */
interface Accepted {
  readonly model: ServedModel;
  readonly signal: AbortSignal;
  place: Reservation;
}

/** Reads the bodies of an HTTP server: those of inference requests as long as there is room for them. */
export class RequestBodies {
  readonly #options: InferBodiesOptions;
  readonly #accepted = new WeakMap<FastifyRequest, Accepted>();
  readonly #decompressing = new Budget(maxDecompressing);

  constructor(app: FastifyInstance, options: InferBodiesOptions) {
    this.#options = options;
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", (request: FastifyRequest, body: IncomingMessage) =>
      this.#receive(request, body),
    );
  }

  /** Refuse by the headers alone what cannot be taken. */
  admit(model: ServedModel, request: FastifyRequest, reply: FastifyReply): void {
    const { admission, maxInputBytes } = this.#options;
    const announced = announcedLength(request.raw);
    if (announced !== undefined && announced > maxInputBytes) throw tooLarge(maxInputBytes);
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const accepted: Accepted = {
      model,
      signal: controller.signal,
      place: admission.reserve(model, announced, (reason) => controller.abort(reason)),
    };
    this.#accepted.set(request, accepted);
    reply.raw.once("close", () => {
      accepted.place.release();
      if (!reply.raw.writableFinished) {
        controller.abort(new EmbedError("timeout", "the caller went away"));
      }
    });
  }

  /** The body of an inference request, decompressed. */
  async infer(request: FastifyRequest, reply: FastifyReply): Promise<InferBody> {
    const accepted = this.#accepted.get(request);
    if (accepted === undefined) throw new Error("a request was answered without being let in");
    const body = bodyOf(request);
    const encoding = contentEncoding(request, reply);
    if (encoding === undefined) return { body, accepted };
    const { admission, maxInputBytes } = this.#options;
    const whole = await this.#decompressing.during(1, () =>
      decompressed(body, encoding, maxInputBytes),
    );
    // from here on it takes more room
    accepted.place.release();
    accepted.place = admission.reserve(accepted.model, whole.byteLength);
    accepted.place.complete();
    if (reply.raw.destroyed) accepted.place.release();
    return { body: whole, accepted };
  }

  async #receive(request: FastifyRequest, body: IncomingMessage): Promise<Buffer> {
    const accepted = this.#accepted.get(request);
    const maxBytes = accepted === undefined ? maxControlBytes : this.#options.maxInputBytes;
    try {
      const bytes = await readBody(body, {
        maxBytes,
        onBytes: (count) => accepted?.place.receive(count),
        signal: accepted?.signal ?? never,
      });
      accepted?.place.complete();
      return bytes;
    } catch (error) {
      if (error instanceof EmbedError && error.code === "too_large") throw tooLarge(maxBytes);
      const refusal = oipErrorOf(error);
      if (refusal instanceof OipError && refusal.code === "overloaded")
        accepted?.model.recordRejection();
      throw refusal;
    }
  }
}

interface InferBody {
  readonly body: Buffer;
  readonly accepted: Accepted;
}

const never = new AbortController().signal;

export function bodyOf(request: FastifyRequest): Buffer {
  return Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
}

export function singleHeader(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

function tooLarge(maxBytes: number): OipError {
  return new OipError(
    "invalid-argument",
    `request body exceeds the maximum allowed input size of ${maxBytes} bytes. Use --http-max-input-size to increase the limit.`,
  );
}

const decompressors = { gzip: promisify(gunzip), deflate: promisify(inflate) };
const compressors = { gzip: promisify(gzip), deflate: promisify(deflate) };
type Encoding = keyof typeof compressors;

function contentEncoding(request: FastifyRequest, reply: FastifyReply): Encoding | undefined {
  const encoding = singleHeader(request, "content-encoding") ?? "identity";
  if (encoding === "identity" || encoding === "") return undefined;
  if (encoding === "gzip" || encoding === "deflate") return encoding;
  reply.header("accept-encoding", "gzip, deflate");
  throw new OipError("unsupported", "Unsupported compression type");
}

async function decompressed(body: Buffer, encoding: Encoding, maxBytes: number): Promise<Buffer> {
  try {
    return await decompressors[encoding](body, { maxOutputLength: maxBytes });
  } catch (error) {
    const tooLarge = (error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE";
    throw new OipError(
      "invalid-argument",
      tooLarge
        ? `decompressed request exceeds the maximum allowed input size of ${maxBytes} bytes. Use --http-max-input-size to increase the limit.`
        : `failed to decompress the request: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** Answer with a body, compressed when the client asks for it. */
export async function sendBody(
  request: FastifyRequest,
  reply: FastifyReply,
  body: HttpBody,
): Promise<FastifyReply> {
  const accepted = (singleHeader(request, "accept-encoding") ?? "").split(/[\s,;]+/);
  const encoding = (["gzip", "deflate"] as const).find((name) => accepted.includes(name));
  if (encoding === undefined) {
    return reply.headers(body.headers).send(Buffer.concat(body.chunks, body.byteLength));
  }
  const { "content-length": _, ...headers } = body.headers;
  const compressed = await compressors[encoding](Buffer.concat(body.chunks, body.byteLength));
  return reply.headers({ ...headers, "content-encoding": encoding }).send(compressed);
}
