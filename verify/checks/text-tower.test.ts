import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Measurement } from "../../bench/record/record.ts";
import { type ModelSpec, withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { startTestTriton } from "../../inference-image/gateway/test-triton.ts";
import { writeTestRepository } from "../../inference-image/models/test-text-model.ts";
import { startLoaded } from "../../inference-image/server/test-embed-server.ts";
import type { Samples } from "../../target/reference/references.ts";
import { makeTextReference } from "../../target/reference/text-reference.ts";
import { firstTowersOf, type TargetService } from "../../target/service/target-service.ts";
import { checkBatching } from "./batching.ts";
import type { CheckContext } from "./check.ts";
import { checkErrors } from "./errors.ts";
import { loadCheck } from "./load.ts";
import { openSender } from "./stop-load.ts";
import { embedService, serviceAt } from "./test-embed-service.ts";

const { text } = defaultModel.towers;
const model: ModelSpec = { ...defaultModel, towers: { text } };

async function textRepository(): Promise<string> {
  const repository = await mkdtemp(join(tmpdir(), "clipstack-text-tower-"));
  onTestFinished(() => rm(repository, { recursive: true }));
  await writeTestRepository(repository, [model]);
  return repository;
}

/** Sample texts with their embeddings. */
async function samplesOf(repository: string): Promise<Samples> {
  const file = join(repository, tritonModelName(model, "text"), "1/model.onnx");
  const subject = { name: "tiny", weights: "random" };
  const textReference = await makeTextReference([{ spec: model, modality: "text", file, subject }]);
  return { reference: new Map(), textReference };
}

/** Sends a load to a service, and requests of the check `stop`. */
async function sendTexts(service: TargetService, samples: Samples): Promise<void> {
  const measurements: Measurement[] = [];
  const loaded = await loadCheck.runService?.(service, {
    ...samples,
    environment: "test",
    loadSeconds: 0.2,
    signal: new AbortController().signal,
    onMeasurement: (measurement: Measurement) => measurements.push(measurement),
  } as unknown as CheckContext);
  expect(loaded).toMatchObject([{ outcome: "pass", measured: { failed: 0 } }]);
  expect(measurements[0]?.samples).toBeGreaterThan(0);
  const [target] = firstTowersOf(service);
  const sender = openSender(target!, samples);
  expect(await sender.send(3).finally(() => sender.close())).toHaveLength(3);
}

test("an embed server with only a text tower gets texts", async () => {
  const repository = await textRepository();
  const samples = await samplesOf(repository);
  const server = await startLoaded({
    ...modelSettings([withModalities(model, ["text"])]),
    MODEL_REPOSITORY: repository,
    INTRA_OP_THREADS: "1",
  });
  onTestFinished(() => server.stop());
  const url = `http://127.0.0.1:${server.port}`;
  const service = serviceAt(url, "embed-http", { model });
  await sendTexts(service, samples);
  expect(
    await checkBatching(service, [{ name: "embed", role: "embed", url }], samples),
  ).toMatchObject([
    { outcome: "pass", message: expect.stringMatching(/^\d+ texts in \d+ executions$/) },
  ]);
  expect(await checkErrors(service, samples)).toMatchObject([
    {
      outcome: "pass",
      message:
        "6 malformed requests: broken JSON of texts, no texts, 2049 texts, a number after a text, too long a text, an unknown path",
    },
  ]);
});

test("a Triton server with only a text tower gets token ids", async () => {
  const server = await startTestTriton([model]);
  onTestFinished(() => server.stop());
  const samples = await samplesOf(server.folder);
  const service = serviceAt(`http://127.0.0.1:${server.ports.http}`, "oip-http", { model });
  await sendTexts(service, samples);
  expect(await checkErrors(service, samples)).toMatchObject([
    {
      outcome: "pass",
      message:
        "6 malformed requests: wrong shape, batch of 33, wrong data type, unknown input, unknown model, broken JSON",
    },
  ]);
});

test("an accepted list without texts fails", async () => {
  const samples = await samplesOf(await textRepository());
  const service = await embedService(
    (request, response) => {
      request.resume();
      response.setHeader("content-type", "application/json").end('{"embeddings":[]}');
    },
    undefined,
    model,
  );
  const [result] = await checkErrors(service, samples);
  expect(result?.outcome).toBe("fail");
  expect(result?.message).toContain("no texts: must get 400 bad_request, got 200");
});
