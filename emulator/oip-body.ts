import { setMaxListeners } from "node:events";
import type { IncomingMessage } from "node:http";
import { promisify } from "node:util";
import { deflate, gunzip, gzip, inflate } from "node:zlib";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { HttpBody } from "../client/triton/wire-http.ts";
import type { Reservation } from "../http/admission.ts";
import { EmbedError } from "../http/embed-error.ts";
import { onceEnded } from "../http/open-requests.ts";
import { announcedLength, readBody } from "../http/request-body.ts";
import { Budget } from "../inference/threads/budget.ts";
import { type OipAdmission, oipErrorOf } from "./oip-admission.ts";
import { invalidArgument, OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** Maximum body of requests other than inference, in bytes. A model configuration has some KiB. */
const maxControlBytes = 4 * 1024 * 1024;

/** Maximum number of concurrent decompressions, because each result may have the maximum body size. */
const maxDecompressing = 2;

export interface RequestBodiesOptions {
  readonly admission: OipAdmission;
  /** Maximum body size in bytes, before and after decompression. */
  readonly maxInputBytes: number;
}

/** Admitted inference request. */
interface AdmittedRequest {
  readonly model: ServedModel;
  readonly signal: AbortSignal;
  reservation: Reservation;
  hasEnded: boolean;
}

/** Reads the request bodies of an HTTP server. Inference requests must be admitted first. */
export class RequestBodies {
  readonly #options: RequestBodiesOptions;
  readonly #admitted = new WeakMap<FastifyRequest, AdmittedRequest>();
  readonly #decompressing = new Budget(maxDecompressing);

  constructor(app: FastifyInstance, options: RequestBodiesOptions) {
    this.#options = options;
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", (request: FastifyRequest, body: IncomingMessage) =>
      this.#receive(request, body),
    );
    app.addHook("onSend", (request, _reply, payload, done) => {
      const admitted = this.#admitted.get(request);
      if (admitted !== undefined) request.body = undefined;
      admitted?.reservation.respond(Buffer.byteLength(payload as string | Buffer));
      done();
    });
  }

  /** Admits or rejects an inference request by its headers. */
  admit(model: ServedModel, request: FastifyRequest, reply: FastifyReply): void {
    const { admission, maxInputBytes } = this.#options;
    const announced = announcedLength(request.raw);
    if (announced !== undefined && announced > maxInputBytes) throw tooLarge(maxInputBytes);
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const onEvict = (reason: unknown) => controller.abort(reason);
    const admitted: AdmittedRequest = {
      model,
      signal: controller.signal,
      reservation: admission.reserve(model, announced, onEvict, request.ip),
      hasEnded: false,
    };
    this.#admitted.set(request, admitted);
    onceEnded(request, reply, (wasSent) => {
      admitted.hasEnded = true;
      admitted.reservation.end();
      if (!wasSent) controller.abort(new EmbedError("timeout", "the client disconnected"));
    });
  }

  /** Returns the decompressed body of an admitted request. */
  async infer(request: FastifyRequest, reply: FastifyReply): Promise<InferBody> {
    const admitted = this.#admitted.get(request);
    if (admitted === undefined) throw new Error("the request was not admitted");
    const body = bodyOf(request);
    const encoding = contentEncoding(request, reply);
    if (encoding === undefined) return { body, admitted };
    const { admission, maxInputBytes } = this.#options;
    const decoded = await this.#decompressing.during(1, () =>
      decompressed(body, encoding, maxInputBytes),
    );
    // the decompressed body needs a larger reservation
    admitted.reservation.release();
    admitted.reservation = admission.reserve(
      admitted.model,
      decoded.byteLength,
      undefined,
      request.ip,
    );
    admitted.reservation.complete();
    if (admitted.hasEnded) admitted.reservation.end();
    return { body: decoded, admitted };
  }

  async #receive(request: FastifyRequest, body: IncomingMessage): Promise<Buffer> {
    const admitted = this.#admitted.get(request);
    const maxBytes = admitted === undefined ? maxControlBytes : this.#options.maxInputBytes;
    try {
      const bytes = await readBody(body, {
        maxBytes,
        onBytes: (count) => admitted?.reservation.receive(count),
        signal: admitted?.signal ?? neverAborted,
      });
      admitted?.reservation.complete();
      return bytes;
    } catch (error) {
      if (error instanceof EmbedError && error.code === "too_large") throw tooLarge(maxBytes);
      const failure = oipErrorOf(error);
      if (failure instanceof OipError && failure.code === "overloaded")
        admitted?.model.recordRejection();
      throw failure;
    }
  }
}

interface InferBody {
  readonly body: Buffer;
  readonly admitted: AdmittedRequest;
}

const neverAborted = new AbortController().signal;

export function bodyOf(request: FastifyRequest): Buffer {
  return Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
}

export function singleHeader(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}

function tooLarge(maxBytes: number): OipError {
  return invalidArgument(
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
    throw invalidArgument(
      tooLarge
        ? `decompressed request exceeds the maximum allowed input size of ${maxBytes} bytes. Use --http-max-input-size to increase the limit.`
        : `failed to decompress the request: ${(error as Error).message}`,
      error,
    );
  }
}

/**
 * Returns the compression with the highest quality value in `Accept-Encoding`, as Triton selects it: the first of equal values, no
 * wildcard.
 */
function acceptedEncoding(header: string): Encoding | undefined {
  let [best, bestQuality] = ["identity", 0];
  for (const item of header.split(",")) {
    const [name = "", , quality = "1"] =
      item.match(/^\s*(gzip|deflate|identity)\s*(;\s*q=([\d.]+))?\s*$/)?.slice(1) ?? [];
    if (name !== "" && Number(quality) > bestQuality) [best, bestQuality] = [name, Number(quality)];
  }
  return best === "identity" ? undefined : (best as Encoding);
}

/** Sends a body, compressed if the client accepts it. */
export async function sendBody(
  request: FastifyRequest,
  reply: FastifyReply,
  body: HttpBody,
): Promise<FastifyReply> {
  const encoding = acceptedEncoding(singleHeader(request, "accept-encoding") ?? "");
  if (encoding === undefined) {
    return reply.headers(body.headers).send(Buffer.concat(body.chunks, body.byteLength));
  }
  const { "content-length": _, ...headers } = body.headers;
  const compressed = await compressors[encoding](Buffer.concat(body.chunks, body.byteLength));
  return reply.headers({ ...headers, "content-encoding": encoding }).send(compressed);
}
