import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { type EmbedRoute, embedRoutes, pathOf } from "../../contract/embed-routes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { Reference } from "../../target/reference/reference.ts";
import { openService, type TargetService } from "../../target/service/target-service.ts";

/** One image; servers in tests do not decode it. */
export const oneImage: Reference = new Map([
  [
    defaultModel.name,
    [
      {
        name: "a.jpg",
        bytes: Buffer.from("image"),
        contentType: "image/jpeg",
        tensor: new Float32Array(),
        embedding: new Float32Array(),
      },
    ],
  ],
]);

/** Embed server that responds with `respond`, as a service under test. */
export async function embedService(
  respond: RequestListener,
  apiKey?: string,
  model = defaultModel,
): Promise<TargetService> {
  const server = createServer(respond);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return serviceAt(`http://127.0.0.1:${port}`, "embed-http", { apiKey, model });
}

/** Running server as a service under test with one endpoint. */
export function serviceAt(
  url: string,
  protocol: "embed-http" | "oip-http",
  { apiKey, model = defaultModel }: { readonly apiKey?: string; readonly model?: ModelSpec } = {},
): TargetService {
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const name = protocol === "embed-http" ? "embed" : "triton-onnx";
  const workload = workloads.find(({ service }) => service.name === name);
  const endpoint = workload?.service.endpoints.find((it) => it.protocol === protocol);
  if (workload === undefined || endpoint === undefined) throw new Error(`no ${name}`);
  const service = openService("test", workload, [model], [], [{ workload, endpoint, url }], apiKey);
  onTestFinished(async () => {
    await service.closeTransports();
    await service.http.close();
  });
  return service;
}

/** Route of a request; `undefined` for an unknown path. */
export function routeOf(path: string | undefined): EmbedRoute | undefined {
  return Object.values(embedRoutes).find(
    (route) => pathOf(route, { model: defaultModel.name }) === path,
  );
}
