import { EmbedError } from "./embed-error.ts";

export interface AdmissionLimits {
  /** Images that may wait, to arrive, to be decoded or for the model. */
  readonly maxQueueSize: number;
  /** Bytes of the bodies that were let in and are not answered yet. */
  readonly maxQueueBytes: number;
}

/** A body that is slower than this gives its place to others when there is no other place left. */
const slowBytesPerSecond = 64 * 1024;
/** So long, every body may take. */
const patienceMs = 2_000;

/** How long clients are told to stay away, in seconds. */
const retrySeconds = { min: 1, max: 30 } as const;

/**
 * Lets requests in as long as there is room, before their bodies are read.
 *
 * A body that is announced takes its room at once, one in chunks as it arrives. A request that finds nobody waiting is
 * always let in, however large: otherwise it could never be.
 */
export class Admission {
  readonly #limits: AdmissionLimits;
  readonly #waitingImages: () => number;
  readonly #arriving = new Set<Reservation>();
  readonly #rate = new Rate();
  #bytes = 0;

  /** @param waitingImages - Images that have arrived and wait to be decoded or for the model. */
  constructor(limits: AdmissionLimits, waitingImages: () => number) {
    this.#limits = limits;
    this.#waitingImages = waitingImages;
  }

  /** Of the bodies that were let in and are not answered yet. */
  get bytes(): number {
    return this.#bytes;
  }

  /** How long until there is probably room, in whole seconds. */
  get retryAfterSeconds(): number {
    const perSecond = this.#rate.perSecond();
    const seconds = perSecond > 0 ? Math.ceil(this.#images() / perSecond) : retrySeconds.min;
    return Math.min(retrySeconds.max, Math.max(retrySeconds.min, seconds));
  }

  /**
   * Let a request in. Until it has arrived it counts as one image.
   *
   * @param announced - Bytes of its body; `undefined` when it comes in chunks.
   * @param drop - Called with the reason when it is too slow and others need its place.
   * @throws {EmbedError} `overloaded`
   */
  reserve(announced: number | undefined, drop: (reason: EmbedError) => void): Reservation {
    this.#makeRoom(announced ?? 0);
    const place = new Reservation(this, announced, drop);
    this.#arriving.add(place);
    this.#bytes += announced ?? 0;
    return place;
  }

  /**
   * Refuse a request that has arrived, when its images are too many for those that wait already.
   *
   * @throws {EmbedError} `overloaded`
   */
  checkImages(images: number): void {
    const waiting = this.#waitingImages();
    if (waiting > 0 && waiting + images > this.#limits.maxQueueSize) throw this.#tooManyImages();
  }

  /** Images that have their answer: what {@link retryAfterSeconds} is computed from. */
  recordCompleted(images: number): void {
    this.#rate.add(images);
  }

  /** For {@link Reservation}. */
  charge(place: Reservation, bytes: number, own: number): void {
    if (this.#bytes > own) this.#makeRoomForBytes(bytes);
    // the slowest may have been this one
    if (!place.released) this.#bytes += bytes;
  }

  /** For {@link Reservation}. */
  arrived(place: Reservation): void {
    this.#arriving.delete(place);
  }

  /** For {@link Reservation}. */
  leave(place: Reservation, bytes: number): void {
    this.#arriving.delete(place);
    this.#bytes -= bytes;
  }

  #images(): number {
    return this.#arriving.size + this.#waitingImages();
  }

  #makeRoom(bytes: number): void {
    while (this.#images() >= this.#limits.maxQueueSize) {
      if (!this.#dropSlowest()) throw this.#tooManyImages();
    }
    this.#makeRoomForBytes(bytes);
  }

  #makeRoomForBytes(bytes: number): void {
    while (this.#bytes > 0 && this.#bytes + bytes > this.#limits.maxQueueBytes) {
      if (this.#dropSlowest()) continue;
      throw new EmbedError(
        "overloaded",
        `bodies of ${this.#bytes} bytes wait already, the limit is ${this.#limits.maxQueueBytes}; try again later`,
      );
    }
  }

  #tooManyImages(): EmbedError {
    return new EmbedError(
      "overloaded",
      `${this.#limits.maxQueueSize} images wait already; try again later`,
    );
  }

  /** A slow sender must not keep others out. */
  #dropSlowest(): boolean {
    let slowest: Reservation | undefined;
    let least = slowBytesPerSecond;
    for (const place of this.#arriving) {
      const pace = place.bytesPerSecond();
      if (pace < least) [slowest, least] = [place, pace];
    }
    slowest?.drop();
    return slowest !== undefined;
  }
}

/** The place of one request, from when it is let in until it is answered. */
export class Reservation {
  readonly #admission: Admission;
  readonly #announced: number | undefined;
  readonly #drop: (reason: EmbedError) => void;
  readonly #enteredAt = performance.now();
  #received = 0;
  #complete = false;
  #left = false;

  constructor(
    admission: Admission,
    announced: number | undefined,
    evict: (reason: EmbedError) => void,
  ) {
    this.#admission = admission;
    this.#announced = announced;
    this.#drop = evict;
  }

  /**
   * Bytes of the body have arrived.
   *
   * @throws {EmbedError} `overloaded`, for a body in chunks
   */
  receive(bytes: number): void {
    if (this.#left) return;
    if (this.#announced === undefined) this.#admission.charge(this, bytes, this.#received);
    this.#received += bytes;
  }

  /** The whole body is here, and nobody may call it slow. Its images are not known yet. */
  complete(): void {
    this.#complete = true;
  }

  /** The images of the body are known: from now on they are counted by who has them. */
  parsed(): void {
    this.#admission.arrived(this);
  }

  get released(): boolean {
    return this.#left;
  }

  /** The request was answered, or its client is gone. */
  release(): void {
    if (this.#left) return;
    this.#left = true;
    this.#admission.leave(this, this.#announced ?? this.#received);
  }

  /** Infinite as long as nobody may call it slow. */
  bytesPerSecond(): number {
    const ms = performance.now() - this.#enteredAt;
    const patient = this.#complete || ms < patienceMs;
    return patient ? Number.POSITIVE_INFINITY : (this.#received * 1000) / ms;
  }

  /** Take the place away. */
  drop(): void {
    const seconds = Math.round((performance.now() - this.#enteredAt) / 1000);
    const of = this.#announced === undefined ? "" : ` of ${this.#announced}`;
    this.release();
    this.#drop(
      new EmbedError(
        "request_timeout",
        `the body is too slow while others wait: ${this.#received}${of} bytes in ${seconds} s`,
      ),
    );
  }
}

/** Images a second, over the last five to ten seconds. */
class Rate {
  #since = performance.now();
  #now = 0;
  #before = 0;

  add(images: number): void {
    this.#turn();
    this.#now += images;
  }

  perSecond(): number {
    const seconds = this.#turn();
    return (this.#before + this.#now) / (windowSeconds + seconds);
  }

  /** Begin a new window when it is time. Seconds since the window began are returned. */
  #turn(): number {
    const seconds = (performance.now() - this.#since) / 1000;
    if (seconds < windowSeconds) return seconds;
    this.#before = seconds < 2 * windowSeconds ? this.#now : 0;
    this.#now = 0;
    this.#since = performance.now();
    return 0;
  }
}

const windowSeconds = 5;
