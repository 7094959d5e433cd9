/**
 * The load generator's process: autocannon, told what to do by a file ({@link LoadJob}). A process of its own, so that it
 * does not share an event loop with the bench or the service.
 */
import { readFileSync, writeFileSync } from "node:fs";
import autocannon, { type Client } from "autocannon";
import {
  type Answer,
  type LoadJob,
  type LoadResult,
  longestSeconds,
  minimumAnswers,
  parseServerTiming,
} from "./load-job.ts";

const job: LoadJob = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8"));
const requests = job.bodies.map((file) => ({
  method: "POST",
  path: job.path,
  headers: { "content-type": "application/json" },
  body: readFileSync(file),
}));

const answers: Answer[] = [];
const counted = new Array<number>(job.connections).fill(0);
const startedAt = performance.now();
const endsAt = startedAt + (job.warmupSeconds + job.seconds) * 1_000;
let connections = 0;

/** The headers of an answer come before the answer: what they say is kept until then. */
function watch(client: Client): void {
  const connection = connections++;
  // each connection starts at another body: not all of them send the same at the same time
  const first = connection % requests.length;
  client.setRequests([...requests.slice(first), ...requests.slice(0, first)]);
  let timing: Answer["timing"];
  client.on("headers", ({ headers }: { readonly headers: readonly string[] }) => {
    const at = headers.findIndex((name, i) => i % 2 === 0 && /^server-timing$/i.test(name));
    timing = at < 0 ? undefined : parseServerTiming(headers[at + 1] ?? "");
  });
  client.on("response", (status: number, _bytes: number, latencyMs: number) => {
    const now = performance.now();
    const atMs = now - startedAt;
    answers.push({ connection, atMs, latencyMs, status, timing });
    if (atMs > job.warmupSeconds * 1_000) counted[connection] = (counted[connection] ?? 0) + 1;
    if (now >= endsAt && counted.every((count) => count >= minimumAnswers)) instance.stop();
  });
}

const cpuBefore = process.cpuUsage();
const instance = autocannon({
  url: job.url,
  connections: job.connections,
  duration: longestSeconds,
  timeout: longestSeconds,
  sampleInt: 100,
  setupClient: watch,
});
const { errors } = await instance;
const { user, system } = process.cpuUsage(cpuBefore);
const result: LoadResult = {
  answers,
  // autocannon counts a timeout as an error as well
  failures: errors,
  cpuMs: (user + system) / 1_000,
  wallMs: performance.now() - startedAt,
};
writeFileSync(job.result, JSON.stringify(result));
