import { setTimeout as sleep } from "node:timers/promises";
import { type Dispatcher, request } from "undici";
import type { Docker } from "./test-docker.ts";

/** Test fixture: continuous requests during a change, and their outcome. */

/** Limit in ms. It only prevents hangs. */
const longMs = 120_000;

export interface Load {
  readonly answered: number;
  /** One line per failed request. */
  readonly lost: readonly string[];
  /** Resolves after that many further responses. */
  more(count: number): Promise<void>;
  stop(): Promise<void>;
}

/** Keeps `clients` requests in flight. `send` throws on an unexpected response. */
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

/** Waits until the condition holds, up to a limit. */
export async function until(condition: () => Promise<boolean>): Promise<void> {
  const startedAt = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedAt > longMs) throw new Error("it did not come to pass");
    await sleep(20);
  }
}

/** Sends one image to an embed server. */
export async function embedOnce(
  url: string,
  image: Uint8Array,
  model?: string,
): Promise<readonly number[]> {
  const query = model === undefined ? "" : `?model=${model}`;
  const answer = await fetch(`${url}/embed${query}`, {
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

/** Sends one image with a key. @returns the status of the response */
export async function statusWithKey(
  dispatcher: Dispatcher,
  url: string,
  image: Uint8Array,
  key: string,
): Promise<number> {
  const { statusCode, body } = await request(`${url}/embed`, {
    dispatcher,
    method: "POST",
    headers: { "content-type": "image/jpeg", authorization: `Bearer ${key}` },
    body: image,
  });
  await body.dump();
  return statusCode;
}

/** Readiness of services over time. */
export interface Watch {
  /** Longest time without readiness of the service at this URL, in ms. */
  longestGapMs(url: string): number;
  /** Longest time without any ready service, in ms. */
  longestGapOfAllMs(): number;
  stop(): Promise<void>;
}

/** Polls readiness URLs. */
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
 * Time in ms without any ready container when the engine restarts all of them at once: the lower bound of an update on this machine.
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
