import { createServer } from "node:http";
import { afterEach, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";
import type { ReferenceImage } from "../../target/reference/reference.ts";
import type { BenchEvent } from "../measure/bench-events.ts";
import { newTestRecord, testContext, testSettings } from "../run/test-run.ts";
import { runStudies } from "./run-studies.ts";
import { StudyUnavailable } from "./study.ts";
import { testGrid } from "./test-study-run.ts";

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
  const settings = { ...testSettings, windows: 1 };
  const record = await newTestRecord("addresses", settings);
  const events: BenchEvent[] = [];
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
    context: testContext({
      settings,
      items: [image],
      workers: 1,
      onEvent: (event) => events.push(event),
    }),
    grid: testGrid,
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
