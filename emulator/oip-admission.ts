import { serverEnv } from "../contract/server/server-env.ts";
import { Admission, type AdmissionLimits, type Reservation } from "../http/admission.ts";
import { EmbedError } from "../http/embed-error.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** Defaults of `MAX_QUEUE_SIZE` and `MAX_QUEUE_BYTES`. */
export const defaultLimits: AdmissionLimits = {
  maxQueueSize: serverEnv.shape.MAX_QUEUE_SIZE.parse(undefined),
  maxQueueBytes: serverEnv.shape.MAX_QUEUE_BYTES.parse(undefined),
};

/** Bounds the queue of all models, over HTTP and gRPC together; `max_queue_size` of a model is a separate limit, as in Triton. */
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
   * Reserves capacity for a request, before its body is read.
   *
   * @param model - Undefined if it is not known yet.
   * @param announced - Bytes of the body; `undefined` for a chunked body.
   * @param onEvict - Called with the reason if the body is too slow and others need its capacity.
   * @param client - Address of the client. @default - the share of a client is not limited
   * @throws {OipError} `overloaded`
   */
  reserve(
    model: ServedModel | undefined,
    announced: number | undefined,
    onEvict: (reason: unknown) => void = () => {},
    client?: string,
  ): Reservation {
    return recordingRejection(model, () => this.#admission.reserve(announced, onEvict, client));
  }

  /**
   * Rejects a decoded request whose items exceed the capacity.
   *
   * @throws {OipError} `overloaded`
   */
  checkCapacity(model: ServedModel, reservation: Reservation, items: number): void {
    reservation.parsed();
    recordingRejection(model, () => this.#admission.checkItems(items));
  }

  /** Counts items with a response. */
  recordCompleted(items: number): void {
    this.#admission.recordCompleted(items);
  }
}

function recordingRejection<T>(model: ServedModel | undefined, reserve: () => T): T {
  try {
    return reserve();
  } catch (error) {
    model?.recordRejection();
    throw oipErrorOf(error);
  }
}

/** Converts an error of admission or of reading a body to this protocol. */
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
