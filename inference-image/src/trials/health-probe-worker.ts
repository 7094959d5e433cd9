/** Asks the URL that it is given every 20 ms until its input ends, then writes a `Probe` to its output. */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import type { Probe } from "./health-probe.ts";

const everyMs = 20;
const url = process.argv[2] ?? "";
const dispatcher = new Agent({ connections: 16, pipelining: 1 });
const times: number[] = [];
let failed = 0;

async function ask(): Promise<void> {
  const sentAt = performance.now();
  try {
    const { statusCode, body } = await request(url, { dispatcher });
    await body.dump();
    if (statusCode !== 200) failed += 1;
  } catch {
    failed += 1;
  }
  times.push(performance.now() - sentAt);
}

const stop = new AbortController();
process.stdin.resume();
void once(process.stdin, "close").then(() => stop.abort());

// the first question pays for the connection and for code that was never run
await ask();
times.length = 0;
const asked = new Set<Promise<void>>();
while (!stop.signal.aborted) {
  const question = ask().finally(() => asked.delete(question));
  asked.add(question);
  await sleep(everyMs);
}
await Promise.all(asked);
times.sort((a, b) => a - b);
const at = (share: number) =>
  times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;
const probe: Probe = { count: times.length, failed, p50: at(0.5), p99: at(0.99), max: at(1) };
process.stdout.write(JSON.stringify(probe));
await dispatcher.close();
