import { createServer } from "node:http";
import { afterEach, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";
import type { ReferenceImage } from "../../target/reference/reference.ts";
import type { BenchEvent } from "../measure/bench-events.ts";
import { defaultSettings } from "../run/bench-run.ts";
import { newBenchRecord } from "../run/compose-record.ts";
import { runStudies } from "./run-studies.ts";
import { StudyUnavailable } from "./study.ts";

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const embedding = new Float32Array(512);
embedding[0] = 1;
const image: ReferenceImage = {
  name: "a.jpg",
  bytes: new Uint8Array(100),
  contentType: "image/jpeg",
  tensor: new Float32Array(0),
  embedding,
};

/** Embed server that grows by 1 MiB per request. */
async function growingServer(): Promise<string> {
  let answered = 0;
  const server = createServer((request, response) => {
    request.resume().once("end", () => {
      if (request.url === "/metrics") {
        response.end(`process_resident_memory_bytes ${(100 + answered) * 1024 * 1024}\n`);
      } else if (request.method === "POST") {
        answered++;
        response.end(Buffer.from(embedding.buffer));
      } else response.end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
}

/** Runs the studies `batch` and `memory` of an embed server at an address. */
async function study(url: string, metrics: AddressesSource["metrics"]) {
  const settings = {
    ...defaultSettings,
    endpoints: [],
    windowSeconds: 0.1,
    rounds: 1,
    windows: 1,
    warmupSeconds: 0.1,
    durationSeconds: 3,
    images: { source: "samples", count: 1, meanBytes: 0 },
  };
  const record = await newBenchRecord({
    project: ".",
    startedAt: new Date(),
    target: "addresses",
    model: { name: "none" },
    settings,
  });
  const events: BenchEvent[] = [];
  const one = { concurrency: [1], "queue-delay": [1], scaling: [1], topology: [1] };
  await runStudies({
    studies: ["batch", "memory"],
    named: true,
    environments: [
      {
        name: "addresses",
        offers: ["embed-http"],
        source: () => ({
          kind: "addresses",
          endpoints: [{ endpoint: "embed-http", url }],
          metrics,
        }),
        coldStarts: async () => {
          throw new StudyUnavailable("not from a test");
        },
      },
    ],
    endpoints: [],
    context: {
      tower: { spec: defaultModel, modality: "image" },
      settings,
      items: [image],
      workers: 1,
      signal: new AbortController().signal,
      onEvent: (event) => events.push(event),
    },
    grid: {
      batchSizes: [1],
      protocol: {
        batchSizes: [1],
        concurrency: [1, 2],
        channels: ["each", "shared"],
      },
      concurrency: one,
      queueDelaysUs: [],
    },
    reference: [image],
    record,
  });
  return { record, events };
}

test("idle memory is read before the first request, whichever study runs first", async () => {
  const url = await growingServer();
  const { record } = await study(url, [{ backend: "embed", url }]);
  expect(record.failures).toEqual([]);
  const found = record.studies.find((it) => it.study === "memory");
  const [service] = found?.study === "memory" ? found.services : [];
  expect(service?.residentMiB).toBe(100);
  expect(service?.residentUnderLoadMiB).toBeGreaterThan(101);
});

test("unreadable metrics are reported before the first load, and once in the record", async () => {
  const [port = 0] = await freePorts(1);
  const metrics = [{ backend: "embed", url: `http://127.0.0.1:${port}` }] as const;
  const { record, events } = await study(await growingServer(), metrics);
  const note =
    "embed: metrics are unavailable, so the time in the server is missing: connection refused.";
  expect(record.notes.filter((it) => it === note)).toHaveLength(1);
  const kinds = events.map((event) => (event.kind === "notice" ? event.text : event.kind));
  expect(kinds.indexOf(note)).toBeGreaterThanOrEqual(0);
  expect(kinds.indexOf(note)).toBeLessThan(kinds.indexOf("point"));
});
