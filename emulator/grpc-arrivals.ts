import type { ServerHttp2Stream } from "node:http2";
import { ServerInterceptingCall, type ServerInterceptor, type ServiceError } from "@grpc/grpc-js";
import type { Reservation } from "../http/admission.ts";

export interface GrpcArrivalsOptions {
  /**
   * Reserves capacity for a message that starts to arrive.
   *
   * @param model - Name of the model; empty if the message is not an inference request or starts with another field.
   * @param bytes - Its announced length.
   * @param onEvict - Called if the message is too slow and others need its capacity.
   * @param client - Address of the client.
   * @throws {OipError}
   */
  readonly reserve: (
    model: string,
    bytes: number,
    onEvict: (reason: unknown) => void,
    client: string | undefined,
  ) => Reservation;
  readonly fail: (error: unknown) => ServiceError;
}

/** Length up to which a message needs no reservation unless it is an inference request, like the headers of an HTTP request. */
const smallBytes = 64 * 1024;

/** Length of the prefix of a gRPC message: the compression flag and the length. */
const prefixBytes = 5;

/**
 * Reserves capacity for the messages of a gRPC server while they arrive, because grpc-js keeps all bytes of an unfinished message in
 * memory.
 */
export class GrpcArrivals {
  readonly #options: GrpcArrivalsOptions;
  readonly #complete = new WeakMap<Buffer, Reservation>();

  constructor(options: GrpcArrivalsOptions) {
    this.#options = options;
  }

  /** Returns the reservation of a complete message, which the caller releases. */
  take(message: Buffer): Reservation | undefined {
    const reservation = this.#complete.get(message);
    this.#complete.delete(message);
    return reservation;
  }

  readonly interceptor: ServerInterceptor = ({ path }, call) => {
    // grpc-js has no public access to the bytes of an incomplete message
    const { stream } = call as unknown as { readonly stream: ServerHttp2Stream };
    const { remoteAddress } = call.getConnectionInfo();
    const isInference = /Model(Stream)?Infer$/.test(path);
    const open = new Set<Reservation>();
    const waiting: Arrival[] = [];
    const reject = (error: unknown) => {
      call.sendStatus(this.#options.fail(error));
      // otherwise grpc-js keeps the received part until the client ends the stream
      // in the next turn, after the status: since Node 26 a reset overtakes frames that are not sent yet
      stream.once("finish", () => setImmediate(() => stream.close()));
    };
    const messages = new MessageReader((start, length) => {
      if (!isInference && length <= smallBytes) return undefined;
      const model = isInference ? modelIn(start) : "";
      const reservation = this.#options.reserve(model, length, reject, remoteAddress);
      open.add(reservation);
      return reservation;
    });
    stream.prependListener("data", (chunk: Buffer) => {
      if (stream.destroyed || stream.writableEnded) return;
      try {
        waiting.push(...messages.read(chunk));
      } catch (error) {
        reject(error);
      }
    });
    stream.once("close", () => {
      for (const reservation of open) reservation.release();
    });
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMessage: (message, deliver) => {
            const { reservation, length } = waiting.shift()!;
            if (reservation !== undefined) {
              open.delete(reservation);
              // a decompressed message needs a larger one
              const isReserved = Buffer.isBuffer(message) && message.length <= length;
              if (isReserved) this.#complete.set(message, reservation);
              else reservation.release();
            }
            deliver(message);
          },
        }),
    });
  };
}

interface Arrival {
  readonly length: number;
  /** Absent for a small message. */
  readonly reservation: Reservation | undefined;
}

/** Follows the messages in the bytes of a stream. */
class MessageReader {
  readonly #begin: (start: Buffer, length: number) => Arrival["reservation"];
  #prefix: Buffer = Buffer.alloc(0);
  #missing = 0;
  #arrival: Arrival = { length: 0, reservation: undefined };

  /** @param begin - Called with the first received bytes of a message and its length. */
  constructor(begin: (start: Buffer, length: number) => Arrival["reservation"]) {
    this.#begin = begin;
  }

  /** @returns The messages that are complete now. */
  *read(chunk: Buffer): Generator<Arrival> {
    let rest = this.#prefix.length === 0 ? chunk : Buffer.concat([this.#prefix, chunk]);
    for (;;) {
      if (this.#missing === 0) {
        this.#prefix = rest.length < prefixBytes ? rest : Buffer.alloc(0);
        if (rest.length < prefixBytes) return;
        const length = rest.readUInt32BE(1);
        rest = rest.subarray(prefixBytes);
        this.#arrival = { length, reservation: this.#begin(rest, length) };
        this.#missing = length;
      }
      const part = rest.subarray(0, this.#missing);
      rest = rest.subarray(part.length);
      this.#missing -= part.length;
      this.#arrival.reservation?.receive(part.length);
      if (this.#missing > 0) return;
      this.#arrival.reservation?.complete();
      yield this.#arrival;
    }
  }
}

/** Model in the first bytes of an inference request, whose first field is its name; empty if there is none. */
function modelIn(start: Buffer): string {
  const [tag, length = 0] = start;
  return tag === 0x0a && length < 0x80 ? start.toString("utf8", 2, 2 + length) : "";
}
