import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import { loadImages } from "../../target/requests/load-items.ts";
import type { RequestedEndpoint } from "../measure/choose-endpoints.ts";
import { type ClientCost, measureSerialization } from "./client-serialization.ts";
import {
  clients,
  type LoadStudy,
  optionalEndpoint,
  type StudyRun,
  StudyUnavailable,
} from "./study.ts";

/** Larger JSON requests are tens of megabytes; the client's own cost is measured for them instead. */
const largestJsonBatch = 8;

/** Client time to encode and decode tensors, and the same requests as JSON and binary. */
export const serializationStudy: LoadStudy = {
  kind: "load",
  id: "serialization",
  endpointsOf(requested) {
    return requested.length === 0
      ? [optionalEndpoint("onnx-http"), optionalEndpoint("onnx-http", "fp32", "json")]
      : withJson(requested);
  },
  async run(run) {
    if (run.round === 1) await measureClient(run);
    for (const json of run.endpoints.filter(({ endpoint }) => endpoint.serialization === "json")) {
      const binary = run.endpoints.find(
        ({ target, endpoint }) =>
          target.service === json.target.service &&
          endpoint.endpoint === json.endpoint.endpoint &&
          endpoint.payload === json.endpoint.payload &&
          endpoint.serialization === "binary",
      );
      const both = binary === undefined ? [json] : [binary, json];
      const batches = run.grid.batchSizes.filter((batch) => batch <= largestJsonBatch);
      for (const [index, batch] of batches.entries()) {
        for (const measured of index % 2 === 0 ? both : both.toReversed()) {
          await run.measure("serialization", measured, { batch, load: clients(1) });
        }
      }
    }
  },
};

/** Adds JSON to each endpoint that supports it, because the study compares the two. */
function withJson(requested: readonly RequestedEndpoint[]): readonly RequestedEndpoint[] {
  const json = requested
    .filter(({ endpoint, payload }) => endpoint.endsWith("-http") && payload === "fp32")
    .map(({ endpoint, payload }) => optionalEndpoint(endpoint, payload, "json"));
  const known = new Set(requested.map(benchEndpointName));
  return [...requested, ...json.filter((endpoint) => !known.has(benchEndpointName(endpoint)))];
}

async function measureClient(run: StudyRun): Promise<void> {
  const [image] = loadImages(run.context.items);
  const [measured] = run.endpoints;
  if (image === undefined || measured === undefined)
    throw new StudyUnavailable("no image is available");
  const result = run.addResult({
    study: "serialization" as const,
    environment: run.environment,
    client: [] as ClientCost[],
    notes: [
      "Client times are those of clipstack's client in Node.js: binary tensors are views without a copy, JSON is the text of 32-bit numbers.",
    ],
  });
  run.context.onEvent({
    kind: "phase",
    environment: run.environment,
    text: "encoding and decoding tensors",
  });
  result.client.push(
    ...(await measureSerialization({
      spec: measured.target.spec,
      batches: run.grid.batchSizes,
      tensor: image.tensor,
      signal: run.context.signal,
    })),
  );
}
