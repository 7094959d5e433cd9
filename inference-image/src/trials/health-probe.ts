import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

/** Answers of a health endpoint that was asked again and again; times in milliseconds. */
export interface Probe {
  readonly count: number;
  readonly failed: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

const worker = fileURLToPath(new URL("./health-probe-worker.ts", import.meta.url));

/** Ask from a process of its own, so that what this one does is not measured. */
export async function startProbe(url: string): Promise<{ stop(): Promise<Probe> }> {
  const child = spawn(process.execPath, ["--import", import.meta.resolve("tsx"), worker, url], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = once(child, "close");
  const output = text(child.stdout);
  return {
    async stop() {
      child.stdin.end();
      await ended;
      return JSON.parse(await output) as Probe;
    },
  };
}
