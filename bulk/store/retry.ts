import { setTimeout as sleep } from "node:timers/promises";

const firstDelayMs = 200;
const maxDelayMs = 20_000;

/**
 * Runs `call` again, with exponentially growing random delays, while it fails with a transient error.
 *
 * @param patienceSeconds - Time after the first failure for which it is retried.
 */
export async function withRetries<T>(
  call: () => Promise<T>,
  isTransient: (error: unknown) => boolean,
  patienceSeconds: number,
): Promise<T> {
  let failedAt: number | undefined;
  for (let attempt = 0; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      failedAt ??= performance.now();
      const delayMs = Math.random() * Math.min(maxDelayMs, firstDelayMs * 2 ** attempt);
      const endsMs = performance.now() - failedAt + delayMs;
      if (!isTransient(error) || endsMs > patienceSeconds * 1000) throw error;
      await sleep(delayMs);
    }
  }
}
