import { openclipVitB32 } from "../contract/model-signature.ts";
import { imageTensor } from "../engine/image-tensor.ts";
import { embeddingsOf } from "../engine/local-embedder.ts";
import { type Transport, TritonError } from "../triton/transport.ts";
import type { Embedder, EmbedderObserver } from "./embedder.ts";

export interface TritonEmbedderOptions {
  /** One for each Triton; all serve the same model. */
  readonly transports: readonly Transport[];
  readonly model: string;
  /** Deadline of one inference, all attempts together. */
  readonly timeoutMs: number;
  /** Most images in one call. */
  readonly maxBatchSize: number;
  readonly observer?: EmbedderObserver;
}

/** How long a Triton that could not be reached, or did not answer in time, is asked only after the others. */
const avoidMs = 1_000;

/** How long `ready` waits for an answer. */
const readyTimeoutMs = 1_000;

/**
 * Tritons as the engine: each call goes to the next one, in turn. One that cannot be reached is passed over, and its
 * call goes to another: no accepted request is lost as long as one of them is alive.
 */
export function createTritonEmbedder(options: TritonEmbedderOptions): Embedder {
  const { transports, model, timeoutMs, maxBatchSize, observer } = options;
  const avoidUntil = new Map<Transport, number>();
  const calls = new Set<Promise<unknown>>();
  let turn = 0;
  let waitingImages = 0;

  /** All of them: from the next in turn on, those that failed lately at the end. */
  function candidates(): readonly Transport[] {
    const first = turn++ % transports.length;
    const inTurn = [...transports.slice(first), ...transports.slice(0, first)];
    const now = performance.now();
    const avoided = (transport: Transport) => (avoidUntil.get(transport) ?? 0) > now;
    return [...inTurn.filter((transport) => !avoided(transport)), ...inTurn.filter(avoided)];
  }

  async function infer(
    images: readonly Uint8Array[],
    signal: AbortSignal | undefined,
  ): Promise<readonly Float32Array[]> {
    const input = imageTensor(images);
    const startedAt = performance.now();
    const failures: TritonError[] = [];
    for (const transport of candidates()) {
      const remainingMs = timeoutMs - (performance.now() - startedAt);
      if (remainingMs <= 0) break;
      try {
        const sentAt = performance.now();
        const [output] = await transport.infer(model, [input], {
          timeoutMs: Math.ceil(remainingMs),
          signal,
          outputs: [openclipVitB32.outputs[0].name],
        });
        avoidUntil.delete(transport);
        observer?.batch({
          images: images.length,
          inferSeconds: (performance.now() - sentAt) / 1000,
        });
        return embeddingsOf(output, images.length);
      } catch (error) {
        if (!(error instanceof TritonError)) throw error;
        const { code } = error;
        if (code === "unavailable" || code === "timeout") {
          avoidUntil.set(transport, performance.now() + avoidMs);
        }
        // only a Triton that did not get the request can be replaced by another in time
        if (code !== "unavailable") throw error;
        failures.push(error);
      }
    }
    const targets = transports.map(({ target }) => target).join(", ");
    throw new TritonError("unavailable", `no Triton answers: ${targets}`, { cause: failures[0] });
  }

  async function embed(images: readonly Uint8Array[], signal: AbortSignal | undefined) {
    waitingImages += images.length;
    try {
      const parts: Promise<readonly Float32Array[]>[] = [];
      for (let first = 0; first < images.length; first += maxBatchSize) {
        parts.push(infer(images.slice(first, first + maxBatchSize), signal));
      }
      return (await Promise.all(parts)).flat();
    } finally {
      waitingImages -= images.length;
    }
  }

  return {
    embed(images, { signal } = {}) {
      const call = embed(images, signal);
      const settled: Promise<unknown> = call.catch(() => {}).finally(() => calls.delete(settled));
      calls.add(settled);
      return call;
    },
    announce: () => () => {},
    async ready() {
      const answers = transports.map((transport) =>
        transport.ready(model, { timeoutMs: readyTimeoutMs }).then((ready) => {
          if (!ready) throw new Error("not ready");
        }),
      );
      return Promise.any(answers).then(
        () => true,
        () => false,
      );
    },
    get waitingImages() {
      return waitingImages;
    },
    async close() {
      await Promise.all(calls);
      await Promise.all(transports.map((transport) => transport.close()));
    },
  };
}
