import { EmbedError } from "./embed-error.ts";

export interface AdmissionLimits {
  /** Maximum number of queued images and texts: being received, being decoded, or waiting for a model. */
  readonly maxQueueSize: number;
  /** Maximum bytes of admitted request bodies, and of their responses until they are sent. */
  readonly maxQueueBytes: number;
}

/** Share of `maxQueueBytes` that the requests of one client may have: the rest is left to others. */
const maxClientShare = 3 / 4;

/** Rate below which a body is evicted if the queue is full. */
const slowBytesPerSecond = 64 * 1024;
/** Time after admission in which a body is never evicted. */
const patienceMs = 2_000;

/** Bounds of `Retry-After`, in seconds. */
const retrySeconds = { min: 1, max: 30 } as const;

/**
 * Admits requests before their bodies are read, as long as the queue has capacity.
 *
 * A body with a `content-length` reserves its bytes at once, a chunked body as it arrives. An empty queue admits a request of any
 * size: it would otherwise always be rejected.
 */
export class Admission {
  readonly #limits: AdmissionLimits;
  readonly #waitingItems: () => number;
  readonly #arriving = new Set<Reservation>();
  readonly #completed = new RateMeter();
  #bytes = 0;
  readonly #bytesOfClients = new Map<string, number>();

  /** @param waitingItems - Returns the number of images and texts that are being decoded or wait for a model. */
  constructor(limits: AdmissionLimits, waitingItems: () => number) {
    this.#limits = limits;
    this.#waitingItems = waitingItems;
  }

  /** Bytes of admitted request bodies, and of their responses until they are sent. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Estimated time until the queue has capacity, in whole seconds. */
  get retryAfterSeconds(): number {
    const perSecond = this.#completed.perSecond();
    const seconds = perSecond > 0 ? Math.ceil(this.#queuedItems() / perSecond) : retrySeconds.min;
    return Math.min(retrySeconds.max, Math.max(retrySeconds.min, seconds));
  }

  /**
   * Reserves capacity for a request. Until its body is parsed it counts as one item.
   *
   * @param announced - Bytes of its body; `undefined` for a chunked body.
   * @param onEvict - Called with the reason if the body is too slow and others need its capacity.
   * @param client - Address of the client. @default - the share of a client is not limited
   * @throws {EmbedError} `overloaded`
   */
  reserve(
    announced: number | undefined,
    onEvict: (reason: EmbedError) => void,
    client?: string,
  ): Reservation {
    this.#freeSlot();
    this.#freeBytes(announced ?? 0, client);
    const reservation = new Reservation(this, announced, onEvict, client);
    this.#arriving.add(reservation);
    this.account(reservation, announced ?? 0);
    return reservation;
  }

  /**
   * Rejects a parsed request whose images or texts exceed the capacity left by the queued ones.
   *
   * @throws {EmbedError} `overloaded`
   */
  checkItems(items: number): void {
    const waiting = this.#waitingItems();
    if (waiting > 0 && waiting + items > this.#limits.maxQueueSize) throw this.#queueFull();
  }

  /** Counts images and texts with a response, from which {@link retryAfterSeconds} is computed. */
  recordCompleted(items: number): void {
    this.#completed.add(items);
  }

  /** Reserves bytes of a chunked body. Called by {@link Reservation}. */
  charge(reservation: Reservation, bytes: number, received: number): void {
    if (this.#bytes > received) this.#freeBytes(bytes, reservation.client);
    // the evicted reservation may have been this one
    if (!reservation.released) this.account(reservation, bytes);
  }

  /** Adds bytes, or subtracts them if negative. Called by {@link Reservation}. */
  account({ client }: Reservation, bytes: number): void {
    this.#bytes += bytes;
    if (client === undefined) return;
    const ofClient = (this.#bytesOfClients.get(client) ?? 0) + bytes;
    if (ofClient === 0) this.#bytesOfClients.delete(client);
    else this.#bytesOfClients.set(client, ofClient);
  }

  /** Called by {@link Reservation}. */
  parsed(reservation: Reservation): void {
    this.#arriving.delete(reservation);
  }

  /** Called by {@link Reservation}. */
  release(reservation: Reservation, bytes: number): void {
    this.#arriving.delete(reservation);
    this.account(reservation, -bytes);
  }

  #queuedItems(): number {
    return this.#arriving.size + this.#waitingItems();
  }

  #freeSlot(): void {
    while (this.#queuedItems() >= this.#limits.maxQueueSize) {
      if (!this.#evictSlowest()) throw this.#queueFull();
    }
  }

  #freeBytes(bytes: number, client: string | undefined): void {
    const { maxQueueBytes } = this.#limits;
    this.#freeBelow(maxQueueBytes, bytes);
    if (client !== undefined) {
      this.#freeBelow(Math.floor(maxQueueBytes * maxClientShare), bytes, client);
    }
  }

  #freeBelow(limit: number, bytes: number, client?: string): void {
    for (;;) {
      const queued = client === undefined ? this.#bytes : (this.#bytesOfClients.get(client) ?? 0);
      if (queued === 0 || queued + bytes <= limit) return;
      if (this.#evictSlowest(client)) continue;
      const of = client === undefined ? "" : " of this client";
      throw new EmbedError(
        "overloaded",
        `the queue has ${queued} bytes of requests and responses${of}, the limit is ${limit}; retry later`,
      );
    }
  }

  #queueFull(): EmbedError {
    return new EmbedError(
      "overloaded",
      `the queue is full, the limit is ${this.#limits.maxQueueSize} items; retry later`,
    );
  }

  /** Evicts the slowest body below {@link slowBytesPerSecond}, of any or of one client; returns whether there is one. */
  #evictSlowest(client?: string): boolean {
    let slowest: Reservation | undefined;
    let lowestRate = slowBytesPerSecond;
    for (const reservation of this.#arriving) {
      if (client !== undefined && reservation.client !== client) continue;
      const rate = reservation.bytesPerSecond();
      if (rate < lowestRate) [slowest, lowestRate] = [reservation, rate];
    }
    slowest?.evict();
    return slowest !== undefined;
  }
}

/** Queue capacity of one request, from its admission to its response. */
export class Reservation {
  readonly #admission: Admission;
  readonly #announced: number | undefined;
  readonly #onEvict: (reason: EmbedError) => void;
  readonly #admittedAt = performance.now();
  #received = 0;
  /** Bytes that the admission counts. */
  #bytes: number;
  #complete = false;
  /** Whether the body, or what was parsed from it, is no longer queued in a thread. */
  #isParsed = false;
  #hasEnded = false;
  #released = false;

  constructor(
    admission: Admission,
    announced: number | undefined,
    onEvict: (reason: EmbedError) => void,
    readonly client?: string,
  ) {
    this.#admission = admission;
    this.#announced = announced;
    this.#bytes = announced ?? 0;
    this.#onEvict = onEvict;
  }

  /**
   * Counts received bytes of the body.
   *
   * @throws {EmbedError} `overloaded`, for a chunked body
   */
  receive(bytes: number): void {
    if (this.#released) return;
    if (this.#announced === undefined) {
      this.#admission.charge(this, bytes, this.#received);
      this.#bytes += bytes;
    }
    this.#received += bytes;
  }

  /** Marks the body as received, which can no longer be evicted. */
  complete(): void {
    this.#complete = true;
  }

  /** Marks the body as parsed: from now on the decoder and the model count its items. */
  parsed(): void {
    this.#admission.parsed(this);
    this.#isParsed = true;
    if (this.#hasEnded) this.release();
  }

  /** Counts the bytes of the response in place of those of the body, whose memory is free by then. */
  respond(bytes: number): void {
    if (!this.#released) {
      this.#admission.account(this, bytes - this.#bytes);
      this.#bytes = bytes;
    }
    this.parsed();
  }

  /** Frees the capacity after the response, or when the client has disconnected and no thread parses the body. */
  end(): void {
    this.#hasEnded = true;
    if (this.#isParsed) this.release();
  }

  get released(): boolean {
    return this.#released;
  }

  /** Frees the capacity. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#admission.release(this, this.#bytes);
  }

  /** Arrival rate of the body; infinite while it must not be evicted. */
  bytesPerSecond(): number {
    const ms = performance.now() - this.#admittedAt;
    const patient = this.#complete || ms < patienceMs;
    return patient ? Number.POSITIVE_INFINITY : (this.#received * 1000) / ms;
  }

  evict(): void {
    const seconds = Math.round((performance.now() - this.#admittedAt) / 1000);
    const total = this.#announced === undefined ? "" : ` of ${this.#announced}`;
    this.release();
    this.#onEvict(
      new EmbedError(
        "request_timeout",
        `the body arrives too slowly while the queue is full: ${this.#received}${total} bytes in ${seconds} s`,
      ),
    );
  }
}

/** Rate of completed images and texts over the last five to ten seconds. */
class RateMeter {
  #windowStart = performance.now();
  #current = 0;
  #previous = 0;

  add(items: number): void {
    this.#advance();
    this.#current += items;
  }

  perSecond(): number {
    const seconds = this.#advance();
    return (this.#previous + this.#current) / (windowSeconds + seconds);
  }

  /** Starts a new window if the current one is over. Returns the seconds since the window started. */
  #advance(): number {
    const seconds = (performance.now() - this.#windowStart) / 1000;
    if (seconds < windowSeconds) return seconds;
    this.#previous = seconds < 2 * windowSeconds ? this.#current : 0;
    this.#current = 0;
    this.#windowStart = performance.now();
    return 0;
  }
}

const windowSeconds = 5;
