/**
 * Asks a service whether it is alive, every 20 ms, whatever becomes of the last question: a process of its own beside the
 * load generator's. Each answer is timed from when its question was sent: a timer that fires late is a delay of this
 * process and not of the service.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import type { Sample } from "../src/statistics.ts";

export interface HealthJob {
  /** Of the health endpoint. */
  readonly url: string;
  readonly seconds: number;
  /** File for the samples. */
  readonly result: string;
}

const everyMs = 20;
const timeoutMs = 10_000;

const job: HealthJob = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8"));
const dispatcher = new Agent({ connections: 16, pipelining: 1 });

async function ask(): Promise<Sample> {
  const sentAt = performance.now();
  try {
    const answer = await request(job.url, {
      dispatcher,
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    });
    await answer.body.dump();
    const latencyMs = performance.now() - sentAt;
    return answer.statusCode === 200
      ? { ok: true, latencyMs }
      : { ok: false, latencyMs, code: String(answer.statusCode) };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "failed";
    return { ok: false, latencyMs: performance.now() - sentAt, code };
  }
}

// the first questions pay for the connections and for code that was never run
await Promise.all(Array.from({ length: 4 }, ask));
const startedAt = performance.now();
const asked: Promise<Sample>[] = [];
for (let index = 0; index * everyMs < job.seconds * 1_000; index++) {
  await sleep(Math.max(0, startedAt + index * everyMs - performance.now()));
  asked.push(ask());
}
writeFileSync(job.result, JSON.stringify(await Promise.all(asked)));
await dispatcher.close();
