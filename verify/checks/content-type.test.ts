import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { openService } from "../../bench/run/service-under-test.ts";
import { checkContentType } from "./content-type.ts";

async function resultOf(contentType: string | undefined) {
  const server = createServer((_request, response) => {
    if (contentType !== undefined) response.setHeader("content-type", contentType);
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "embed");
  const endpoint = workload?.service.endpoints.find((it) => it.protocol === "embed-http");
  if (workload === undefined || endpoint === undefined) throw new Error("no embed server");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const service = openService("test", workload, [], [{ workload, endpoint, url }]);
  onTestFinished(() => service.http.close());
  const [result] = await checkContentType(service);
  return `${result?.outcome}: ${result?.message}`;
}

test("passes JSON with a charset", async () => {
  expect(await resultOf("application/json; charset=utf-8")).toMatch(/^pass: /);
});

test.each([undefined, "text/html"])("fails on content-type %s", async (type) => {
  expect(await resultOf(type)).toBe(
    `fail: content-type of GET /openapi.json must be application/json, got ${type ?? "none"}`,
  );
});
