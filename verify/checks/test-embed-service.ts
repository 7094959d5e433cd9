import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import type { Reference } from "../../bench/run/reference.ts";
import { openService, type ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import { type EmbedRoute, embedRoutes } from "../../contract/embed-routes.ts";

/** One image; servers in tests do not decode it. */
export const oneImage: Reference = {
  images: [
    {
      name: "a.jpg",
      bytes: Buffer.from("image"),
      contentType: "image/jpeg",
      tensor: new Float32Array(),
      embedding: new Float32Array(),
    },
  ],
};

/** Embed server that responds with `respond`, as a service under test. */
export async function embedService(
  respond: RequestListener,
  apiKey?: string,
): Promise<ServiceUnderTest> {
  const server = createServer(respond);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "embed");
  const endpoint = workload?.service.endpoints.find((it) => it.protocol === "embed-http");
  if (workload === undefined || endpoint === undefined) throw new Error("no embed server");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const service = openService("test", workload, [], [{ workload, endpoint, url }], apiKey);
  onTestFinished(() => service.http.close());
  return service;
}

/** Route of a request; `undefined` for an unknown path. */
export function routeOf(path: string | undefined): EmbedRoute | undefined {
  return Object.values(embedRoutes).find((route) => route.path === path);
}
