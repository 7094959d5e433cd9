import { setTimeout as sleep } from "node:timers/promises";
import type { Docker } from "./test-docker.ts";

/** For tests: requests without a pause while something happens, and what became of them. */

/** Against a hang. */
const longMs = 120_000;

export interface Load {
  readonly answered: number;
  /** Why a request was not answered, one line each. */
  readonly lost: readonly string[];
  /** Resolves when so many more are answered. */
  more(count: number): Promise<void>;
  stop(): Promise<void>;
}

/** Keep `clients` requests in flight. `send` throws where its answer is not the one that was hoped for. */
export function keepSending(send: () => Promise<void>, clients = 4): Load {
  let answered = 0;
  let stopped = false;
  const lost: string[] = [];
  const client = async () => {
    while (!stopped) {
      try {
        await send();
        answered += 1;
      } catch (error) {
        lost.push(error instanceof Error ? error.message : String(error));
        await sleep(20);
      }
    }
  };
  const running = Array.from({ length: clients }, client);
  return {
    get answered() {
      return answered;
    },
    lost,
    more: (count) => {
      const goal = answered + count;
      return until(async () => answered >= goal || lost.length > 50);
    },
    stop: async () => {
      stopped = true;
      await Promise.all(running);
    },
  };
}

/** Waits, bounded. */
export async function until(condition: () => Promise<boolean>): Promise<void> {
  const startedAt = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedAt > longMs) throw new Error("it did not come to pass");
    await sleep(20);
  }
}

/** Send one image to an embed server. */
export async function embedOnce(url: string, image: Uint8Array): Promise<readonly number[]> {
  const answer = await fetch(`${url}/embed`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: image,
    signal: AbortSignal.timeout(60_000),
  });
  if (!answer.ok)
    throw new Error(`status ${answer.status}: ${(await answer.text()).slice(0, 200)}`);
  const { embeddings } = (await answer.json()) as { readonly embeddings: readonly number[][] };
  return embeddings[0] ?? [];
}

/** Whether each of some services was ready, all the time. */
export interface Watch {
  /** Longest time in which the service at this URL was not ready, in ms. */
  longestGapMs(url: string): number;
  /** Longest time in which none of them was ready, in ms. */
  longestGapOfAllMs(): number;
  stop(): Promise<void>;
}

/** Ask readiness URLs, again and again. */
export function watchReadiness(urls: readonly string[]): Watch {
  const all = "all";
  const downSince = new Map<string, number>();
  const longest = new Map<string, number>();
  const note = (key: string, ready: boolean) => {
    const now = performance.now();
    if (!ready && !downSince.has(key)) downSince.set(key, now);
    const since = downSince.get(key);
    if (since !== undefined) longest.set(key, Math.max(longest.get(key) ?? 0, now - since));
    if (ready) downSince.delete(key);
  };
  let stopped = false;
  const state = new Map(urls.map((url) => [url, true]));
  const watch = async (url: string) => {
    while (!stopped) {
      const ready = await isReady(url);
      state.set(url, ready);
      note(url, ready);
      note(all, [...state.values()].some(Boolean));
      await sleep(25);
    }
  };
  const running = urls.map(watch);
  return {
    longestGapMs: (url) => longest.get(url) ?? 0,
    longestGapOfAllMs: () => longest.get(all) ?? 0,
    stop: async () => {
      stopped = true;
      await Promise.all(running);
    },
  };
}

export async function isReady(url: string): Promise<boolean> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await answer.arrayBuffer();
    return answer.ok;
  } catch {
    return false;
  }
}

/**
 * How long none of `containers` is ready when the engine stops and starts each of them, all at once: what an update takes
 * at least, on this machine and with the same company.
 */
export async function restartGapMs(
  docker: Docker,
  {
    containers,
    ready,
  }: { readonly containers: readonly string[]; readonly ready: readonly string[] },
): Promise<number> {
  const watch = watchReadiness(ready);
  await Promise.all(containers.map((name) => docker.run("restart", name)));
  await until(async () => (await Promise.all(ready.map(isReady))).some(Boolean));
  await watch.stop();
  return watch.longestGapOfAllMs();
}
