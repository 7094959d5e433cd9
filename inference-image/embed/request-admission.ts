import { setMaxListeners } from "node:events";
import type { IncomingMessage } from "node:http";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import {
  embedPaths,
  imageContentTypeAliases,
  imageContentTypes,
  timeoutMicroseconds,
  timeoutParameter,
} from "../../contract/embed-api.ts";
import type { Admission, Reservation } from "../../http/admission.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { onceEnded } from "../../http/open-requests.ts";
import { announcedLength, discardBody, readBody, tooLarge } from "../../http/request-body.ts";

/** Request to embed images that passed header validation and admission. */
export interface AdmittedRequest {
  readonly reservation: Reservation;
  /** Aborted, with an {@link EmbedError}, when the client disconnects or the deadline passes. */
  readonly signal: AbortSignal;
  readonly reply: FastifyReply;
  readonly maxBytes: number;
  readonly startedAt: number;
  /** Time at which the whole body had arrived. */
  arrivedAt: number;
  /** Name of the model, once it is resolved. */
  model?: string;
}

export interface RequestAdmissionOptions {
  readonly admission: Admission;
  readonly state: () => "loading" | "serving" | "draining";
}

/** Validates and admits requests before their bodies are read, then reads the bodies. */
export class RequestAdmission {
  readonly #options: RequestAdmissionOptions;
  readonly #admitted = new WeakMap<FastifyRequest, AdmittedRequest>();

  constructor(app: FastifyInstance, options: RequestAdmissionOptions) {
    this.#options = options;
    app.removeAllContentTypeParsers();
    app.addContentTypeParser(
      ["application/json", "multipart/form-data", ...imageContentTypes, ...imageContentTypeAliases],
      (request: FastifyRequest, body: IncomingMessage) => this.#receive(request, body),
    );
    app.addHook("onSend", (request, _reply, payload, done) => {
      const admitted = this.#admitted.get(request);
      if (admitted !== undefined) request.body = undefined;
      admitted?.reservation.respond(Buffer.byteLength(payload as string | Buffer));
      done();
    });
    // `#receive` or a rejection responds to `Expect: 100-continue`; other expectations are ignored
    for (const event of ["checkContinue", "checkExpectation"]) {
      app.server.on(event, (request, response) => app.server.emit("request", request, response));
    }
  }

  /** Hook of a route: a request that fails it is rejected before its body costs memory. */
  hook(contentTypes: readonly string[], maxBytes: number) {
    return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
      await this.#checkState(request);
      checkContentType(request, contentTypes);
      this.#admit(request, reply, maxBytes);
    };
  }

  /** Returns the admission of a request that passed {@link hook}. */
  of(request: FastifyRequest): AdmittedRequest {
    return this.#admitted.get(request)!;
  }

  /** Name of the model of a request; undefined if it reached none. */
  modelOf(request: FastifyRequest): string | undefined {
    return this.#admitted.get(request)?.model;
  }

  async #checkState({ raw }: FastifyRequest): Promise<void> {
    const state = this.#options.state();
    if (state === "loading") throw new EmbedError("unavailable", "the model is loading");
    if (state === "serving") return;
    await discardBody(raw);
    throw new EmbedError("unavailable", "the server is stopping");
  }

  #admit(request: FastifyRequest, reply: FastifyReply, maxBytes: number): void {
    const timeoutUs = timeoutOf(request);
    const announced = announcedLength(request.raw);
    if (announced !== undefined && announced > maxBytes) throw tooLarge(maxBytes);

    const controller = new AbortController();
    // every image of the request adds a listener
    setMaxListeners(0, controller.signal);
    const onEvict = (reason: EmbedError) => controller.abort(reason);
    const reservation = this.#options.admission.reserve(announced, onEvict, request.ip);
    const timer =
      timeoutUs === undefined
        ? undefined
        : setTimeout(() => controller.abort(expired(timeoutUs)), Math.ceil(timeoutUs / 1000));
    onceEnded(request, reply, (wasSent) => {
      clearTimeout(timer);
      reservation.end();
      if (!wasSent) controller.abort(new EmbedError("timeout", "the client disconnected"));
    });
    const startedAt = performance.now();
    const { signal } = controller;
    const times = { startedAt, arrivedAt: startedAt };
    this.#admitted.set(request, { reservation, signal, reply, maxBytes, ...times });
  }

  /** Content type parser: returns the whole body, or `undefined` if no route admitted the request. */
  async #receive(request: FastifyRequest, body: IncomingMessage): Promise<Buffer | undefined> {
    const admitted = this.#admitted.get(request);
    if (admitted === undefined) return undefined;
    const { reservation, signal, reply, maxBytes } = admitted;
    if (request.headers.expect?.toLowerCase() === "100-continue") reply.raw.writeContinue();
    const bytes = await readBody(body, {
      maxBytes,
      onBytes: (count) => reservation.receive(count),
      signal,
    });
    admitted.arrivedAt = performance.now();
    reservation.complete();
    return bytes;
  }
}

/** @throws {EmbedError} if the content type or encoding is unsupported */
function checkContentType({ headers, url }: FastifyRequest, contentTypes: readonly string[]): void {
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") {
    throw new EmbedError(
      "unsupported_media_type",
      `the body must not be compressed, got content-encoding '${encoding}'`,
    );
  }
  const type = headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  if (type === undefined || contentTypes.includes(type)) return;
  const isAlias = imageContentTypeAliases.some((alias) => alias === type);
  if (isAlias && contentTypes.includes(imageContentTypes[0])) return;
  const path = url.split("?", 1)[0];
  const hint = path === embedPaths.embed ? `; ${embedHint(type)}` : "";
  throw new EmbedError(
    "unsupported_media_type",
    `the Content-Type of ${path} must be ${contentTypes.join(", ")}, got ${type ?? "none"}${hint}`,
  );
}

function embedHint(type: string | undefined): string {
  return type === "application/json"
    ? `send base64 in JSON to ${embedPaths.embedBase64}`
    : "with curl: -F image=@FILE";
}

/** Timeout requested by the client, in microseconds; `undefined` for none. */
function timeoutOf(request: FastifyRequest): number | undefined {
  const text = (request.query as Record<string, unknown>)[timeoutParameter];
  if (text === undefined) return undefined;
  const result = timeoutMicroseconds.safeParse(/^\d+$/.test(String(text)) ? Number(text) : text);
  if (result.success) return result.data;
  const { minimum, maximum } = timeoutMicroseconds.toJSONSchema() as {
    readonly minimum: number;
    readonly maximum: number;
  };
  throw new EmbedError(
    "bad_request",
    `${timeoutParameter} must be microseconds, ${minimum} to ${maximum}, got '${String(text).slice(0, 40)}'`,
  );
}

function expired(timeoutUs: number): EmbedError {
  return new EmbedError("timeout", `no response within the timeout of ${timeoutUs} microseconds`);
}
