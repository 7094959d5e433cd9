import { serverEnv } from "../../contract/server-env.ts";
import { Admission, type AdmissionLimits, type Reservation } from "../http/admission.ts";
import { EmbedError } from "../http/embed-error.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** `MAX_QUEUE_SIZE` and `MAX_QUEUE_BYTES` as they are when nobody sets them. */
export const defaultLimits: AdmissionLimits = {
  maxQueueSize: serverEnv.shape.MAX_QUEUE_SIZE.parse(undefined),
  maxQueueBytes: serverEnv.shape.MAX_QUEUE_BYTES.parse(undefined),
};

/**
 * Bounds what waits over all models, over HTTP and gRPC together. A model's own `max_queue_size` is counted by itself, as
 * Triton counts it.
 */
export class OipAdmission {
  readonly #admission: Admission;

  constructor(registry: Pick<ModelRegistry, "models">, limits: AdmissionLimits = defaultLimits) {
    this.#admission = new Admission(limits, () =>
      registry.models.reduce((sum, model) => sum + model.waitingItems, 0),
    );
  }

  get retryAfterSeconds(): number {
    return this.#admission.retryAfterSeconds;
  }

  /**
   * Let a request in, before its body is read.
   *
   * @param announced - Bytes of the body; `undefined` when it comes in chunks.
   * @param drop - Called with the reason when it is too slow and others need its place.
   * @throws {OipError} `overloaded`
   */
  reserve(
    model: ServedModel,
    announced: number | undefined,
    drop: (reason: unknown) => void = () => {},
  ): Reservation {
    return refusing(model, () => this.#admission.reserve(announced, drop));
  }

  /**
   * The request is decoded, and its items are about to wait.
   *
   * @throws {OipError} `overloaded`
   */
  checkCapacity(model: ServedModel, place: Reservation, items: number): void {
    place.parsed();
    refusing(model, () => this.#admission.checkImages(items));
  }

  /** Items that have their answer. */
  recordCompleted(items: number): void {
    this.#admission.recordCompleted(items);
  }
}

function refusing<T>(model: ServedModel, enter: () => T): T {
  try {
    return enter();
  } catch (error) {
    model.recordRejection();
    throw oipErrorOf(error);
  }
}

/** What reading a body fails with, in the terms of this protocol. */
export function oipErrorOf(error: unknown): unknown {
  if (!(error instanceof EmbedError)) return error;
  const options = { cause: error };
  switch (error.code) {
    case "overloaded":
      return new OipError("overloaded", error.message, options);
    case "request_timeout":
      return new OipError("too-slow", error.message, options);
    default:
      return new OipError("invalid-argument", error.message, options);
  }
}
