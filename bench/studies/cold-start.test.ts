import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { readArtefact } from "../../artefact/artefact.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { planFor } from "../../target/service/local-environment.ts";
import { project, sourceCommand } from "../run/test-run.ts";
import { coldStarts } from "./cold-start.ts";
import type { ColdStart } from "./study.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-cold-start-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const image = {
  name: "grey",
  bytes: new Uint8Array(),
  contentType: "image/jpeg",
  pixels: new Uint8Array(150_528),
  tensor: new Float32Array(150_528),
};

async function plan(serverCommand: readonly string[]) {
  const [embed = 0, http = 0, grpc = 0, metrics = 0] = await freePorts(4);
  const file = join(folder, "cdk.tf.json");
  writeFileSync(
    file,
    JSON.stringify(dockerDocument({ ports: { embed, triton: { http, grpc, metrics } } })),
  );
  const options = {
    portOffset: 0,
    modelRepository: join(project, "model_repository"),
    modelFiles: new Map([[defaultModel.name, { image: await tinyModel() }]]),
  };
  const planned = await planFor(
    readArtefact(file, "cdk.tf.json"),
    { file, displayPath: "cdk.tf.json", editedByHand: false },
    options,
    join(folder, "scratch"),
  );
  return {
    plan: {
      ...planned,
      instances: planned.instances.filter(({ role }) => role === "triton"),
    },
    serverCommand,
  };
}

test("each round starts the service again, which is live before it is ready", async () => {
  const { plan: planned, serverCommand } = await plan(sourceCommand("inference-image/main.ts"));
  const starts: ColdStart[] = [];
  await coldStarts(
    planned,
    { serverCommand },
    {
      spec: defaultModel,
      rounds: 2,
      image,
      signal: new AbortController().signal,
      onPhase: () => {},
      onStart: (start) => starts.push(start),
    },
  );
  expect(starts.map(({ service, round }) => [service, round])).toEqual([
    ["triton-onnx", 1],
    ["triton-onnx", 2],
  ]);
  for (const { liveMs = 0, readyMs, firstRequestMs, warmRequestMs } of starts) {
    expect(liveMs).toBeGreaterThan(50);
    expect(readyMs).toBeGreaterThanOrEqual(liveMs);
    expect(firstRequestMs).toBeGreaterThan(0);
    expect(warmRequestMs).toBeGreaterThan(0);
  }
});

test("fails with the last output of a service that does not start", async () => {
  const broken = join(folder, "broken.mjs");
  writeFileSync(broken, "console.error('no such model'); process.exit(3);");
  const { plan: planned, serverCommand } = await plan([process.execPath, broken]);
  await expect(
    coldStarts(
      planned,
      { serverCommand },
      {
        spec: defaultModel,
        rounds: 1,
        image,
        signal: new AbortController().signal,
        onPhase: () => {},
        onStart: () => {},
      },
    ),
  ).rejects.toThrow(/triton-onnx: ended with code 3 before it was ready.*\n.*no such model/);
});
