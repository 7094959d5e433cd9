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
import { Admission, type AdmissionLimits, type Reservation } from "../../http/admission.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { onceEnded } from "../../http/open-requests.ts";
import { announcedLength, discardBody, readBody, tooLarge } from "../../http/request-body.ts";

/** Request to embed images or texts that passed header validation and admission. */
export class AdmittedRequest {
  readonly startedAt = performance.now();
  /** Time at which the whole body had arrived. */
  arrivedAt = this.startedAt;
  /** Name of the model, once it is selected. */
  model: string | undefined;

  constructor(
    private readonly admission: Admission,
    readonly reservation: Reservation,
    /** Aborted, with an {@link EmbedError}, when the client disconnects or the deadline passes. */
    readonly signal: AbortSignal,
    readonly reply: FastifyReply,
    readonly maxBytes: number,
  ) {}

  /** Marks the body as parsed: from now on the decoder and the model count its items. @throws the reason of the signal */
  parsed(): void {
    this.signal.throwIfAborted();
    this.reservation.parsed();
  }

  /** @throws {EmbedError} `overloaded` if the images and texts exceed the capacity that the queued ones leave */
  accept(model: string, items: number): void {
    this.model = model;
    this.admission.checkItems(items);
  }

  /** Counts the images and texts with a response. */
  completed(items: number): void {
    this.admission.recordCompleted(items);
  }
}

export interface RequestAdmissionOptions {
  readonly limits: AdmissionLimits;
  /** Number of images and texts that are being decoded or wait for a model. */
  readonly queuedItems: () => number;
  readonly state: () => "loading" | "serving" | "draining";
}

/** Validates and admits requests before their bodies are read, then reads the bodies. */
export class RequestAdmission {
  readonly #state: RequestAdmissionOptions["state"];
  readonly #admission: Admission;
  readonly #admitted = new WeakMap<FastifyRequest, AdmittedRequest>();

  constructor(app: FastifyInstance, { limits, queuedItems, state }: RequestAdmissionOptions) {
    this.#state = state;
    this.#admission = new Admission(limits, queuedItems);
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

  /** Bytes of admitted request bodies, and of their responses until they are sent. */
  get bytes(): number {
    return this.#admission.bytes;
  }

  /** Estimated time until the queue has capacity, in whole seconds. */
  get retryAfterSeconds(): number {
    return this.#admission.retryAfterSeconds;
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
    const state = this.#state();
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
    const reservation = this.#admission.reserve(announced, onEvict, request.ip);
    const timer =
      timeoutUs === undefined
        ? undefined
        : setTimeout(() => controller.abort(expired(timeoutUs)), Math.ceil(timeoutUs / 1000));
    onceEnded(request, reply, (wasSent) => {
      clearTimeout(timer);
      reservation.end();
      if (!wasSent) controller.abort(new EmbedError("timeout", "the client disconnected"));
    });
    this.#admitted.set(
      request,
      new AdmittedRequest(this.#admission, reservation, controller.signal, reply, maxBytes),
    );
    request.trace?.stage("admission", request.trace.startedAt);
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
    request.trace?.stage("receive", admitted.startedAt, admitted.arrivedAt);
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
