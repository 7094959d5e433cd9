import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { kubernetesDocument } from "../../artefact/test-artefact.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { Reference } from "../../target/reference/reference.ts";
import { openService } from "../../target/service/target-service.ts";
import { checkBatching } from "./batching.ts";

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Service with execution counters: one execution per image up to this number of requests, then one per two images. */
async function counting(oneByOneFor: number): Promise<string> {
  let images = 0;
  const body = JSON.stringify({ embeddings: [[1, ...Array(511).fill(0)]], model: "test" });
  server = createServer((request, response) => {
    request.resume().on("end", () => {
      if (request.method === "POST") {
        images += 1;
        response.setHeader("content-type", "application/json").end(body);
        return;
      }
      const shared = Math.floor(Math.max(0, images - oneByOneFor) / 2);
      const { batchSize } = embedMetrics;
      response.end(`${batchSize}_sum ${images}\n${batchSize}_count ${images - shared}\n`);
    });
  });
  await new Promise<void>((listening) => server?.listen(0, "127.0.0.1", listening));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function check(url: string) {
  const { workloads } = parseArtefact(JSON.stringify(kubernetesDocument()), "cdk.tf.json");
  const workload = workloads[0]!;
  const endpoint = workload.service.endpoints.find(({ protocol }) => protocol === "embed-http")!;
  const service = openService("test", workload, [defaultModel], [], [{ workload, endpoint, url }]);
  const image = { name: "one", bytes: new Uint8Array(8), contentType: "image/jpeg" };
  const reference: Reference = new Map([
    [
      defaultModel.name,
      [{ ...image, tensor: new Float32Array(0), embedding: new Float32Array(512) }],
    ],
  ]);
  try {
    const results = await checkBatching(service, [{ name: "embed", role: "embed", url }], {
      reference,
      textReference: new Map(),
    });
    return results.map(({ outcome, message }) => `${outcome}: ${message}`);
  } finally {
    await service.http.close();
  }
}

test("16 requests that share executions pass", async () => {
  expect(await check(await counting(0))).toEqual(["pass: 16 images in 8 executions"]);
});

test("more concurrent requests are sent to a fast service", async () => {
  // 16, then 32
  expect(await check(await counting(48))).toEqual(["pass: 64 images in 32 executions"]);
});

test("a service without shared executions at the highest concurrency fails", async () => {
  expect(await check(await counting(Number.POSITIVE_INFINITY))).toEqual([
    "fail: 128 concurrent requests must share executions, got 128 images in 128 executions",
  ]);
});
