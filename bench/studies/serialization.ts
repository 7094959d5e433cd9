import { benchPathName } from "../record/bench-record.ts";
import type { AskedPath } from "../run/bench-run.ts";
import { type ClientCost, measureSerialization } from "./client-serialization.ts";
import { clients, type LoadStudy, optionalPath, type StudyRun, StudyUnavailable } from "./study.ts";

/** Larger JSON requests are tens of megabytes; the client's own cost is measured for them instead. */
const largestJsonBatch = 8;

/** Client time to encode and decode tensors, and the same requests as JSON and binary. */
export const serializationStudy: LoadStudy = {
  kind: "load",
  id: "serialization",
  pathsOf(requested) {
    return requested.length === 0
      ? [optionalPath("onnx-http"), optionalPath("onnx-http", "fp32", "json")]
      : withJson(requested);
  },
  async run(run) {
    await measureClient(run);
    for (const json of run.paths.filter(({ path }) => path.serialization === "json")) {
      const binary = run.paths.find(
        ({ target, path }) =>
          target.service === json.target.service &&
          path.path === json.path.path &&
          path.payload === json.path.payload &&
          path.serialization === "binary",
      );
      const both = binary === undefined ? [json] : [binary, json];
      const batches = run.grid.batchSizes.filter((batch) => batch <= largestJsonBatch);
      for (const [index, batch] of batches.entries()) {
        for (const at of index % 2 === 0 ? both : both.toReversed()) {
          await run.measure("serialization", at, { batch, load: clients(1) });
        }
      }
    }
  },
};

/** Adds JSON to each endpoint that supports it, because the study compares the two. */
function withJson(requested: readonly AskedPath[]): readonly AskedPath[] {
  const json = requested
    .filter(({ path, payload }) => path.endsWith("-http") && payload === "fp32")
    .map(({ path, payload }) => optionalPath(path, payload, "json"));
  const known = new Set(requested.map(benchPathName));
  return [...requested, ...json.filter((it) => !known.has(benchPathName(it)))];
}

async function measureClient(run: StudyRun): Promise<void> {
  const [image] = run.context.images;
  if (image === undefined) throw new StudyUnavailable("there is no image");
  const result = run.keep({
    study: "serialization" as const,
    environment: run.environment,
    client: [] as ClientCost[],
    notes: [
      "The client's time is that of this project's client in Node.js: binary tensors are views without a copy, JSON is text of 32-bit numbers.",
    ],
  });
  run.context.onEvent({
    kind: "phase",
    environment: run.environment,
    text: "encoding and decoding tensors",
  });
  result.client.push(
    ...(await measureSerialization({
      batches: run.grid.batchSizes,
      tensor: image.tensor,
      signal: run.context.signal,
    })),
  );
}
