import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  embedMetrics,
  embedMetricTable,
  processMetricTable,
  processPrefixes,
} from "../../contract/metrics/embed-metrics.ts";
import { exposedDifferences } from "../../contract/metrics/test-exposition.ts";
import { withModalities } from "../../contract/model-spec.ts";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../../emulator/test-repository.ts";
import { type TritonProcess, tritonProcess } from "../../emulator/test-triton-process.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoaded } from "../server/test-embed-server.ts";
import { sendContinuously, type TestGateway, testGateway, until } from "./test-gateway.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");

/** Gateway with real Triton processes that die, hang and restart under constant load. */

let repository: TestRepository;
let tritons: readonly TritonProcess[];
beforeAll(async () => {
  repository = await testRepository();
  tritons = await Promise.all(
    [0, 1].map(() => tritonProcess(repository.path, { model: fp32Name })),
  );
  await Promise.all(tritons.map((triton) => triton.start()));
});
afterAll(async () => {
  await Promise.all((tritons ?? []).map((triton) => triton.kill()));
  await repository?.remove();
});

const opened: TestGateway[] = [];
afterEach(async () => {
  for (const { close } of opened.splice(0)) await close();
});
async function gateway(): Promise<TestGateway> {
  const made = await testGateway(tritons.map(({ target }) => target));
  opened.push(made);
  return made;
}

describe("under load, with two Triton servers", () => {
  test("no request is lost if one is killed, and it returns to rotation after its restart", async () => {
    const made = await gateway();
    const running = sendContinuously(made);
    await running.more(20);
    await tritons[0]!.kill();
    await until(() => !made.healthy()[0]);
    await running.more(40);
    expect(made.healthy()).toEqual([false, true]);
    await tritons[0]!.start();
    await until(() => made.healthy()[0]!);
    const [before] = made.answeredBy();
    await running.more(40);
    await running.stop();
    expect(made.answeredBy()[0]).toBeGreaterThan(before!);
    expect(running.counts.rejected).toBe(0);
  });

  test("accepted requests stay queued while no Triton server is available and are answered after a restart", async () => {
    const made = await gateway();
    const running = sendContinuously(made);
    await running.more(20);
    await Promise.all(tritons.map((triton) => triton.kill()));
    await until(() => made.healthy().every((healthy) => !healthy));
    expect(await made.embedder.ready()).toBe(false);
    expect(made.embedder.unavailableReason).toContain(`${tritons[0]!.target}: `);
    await tritons[1]!.start();
    await until(() => made.healthy()[1]!);
    await running.more(40);
    await running.stop();
    await tritons[0]!.start();
  });
});

describe("in the embed server", () => {
  let server: RunningEmbedServer;
  let url: string;
  const start = async (targets: readonly string[], model = defaultModel) => {
    server = await startLoaded({
      BACKEND: "triton",
      TRITON_GRPC_URLS: targets.join(),
      ...modelSettings([withModalities(model, ["image"])]),
    });
    url = `http://127.0.0.1:${server.port}`;
  };
  afterEach(() => server.stop());
  const readiness = async () => {
    const answer = await fetch(`${url}/readyz`);
    return { status: answer.status, ...((await answer.json()) as { reason?: string }) };
  };
  const reasonWith = async (words: string) => {
    let reason = "";
    const found = async () => {
      reason = (await readiness()).reason ?? "";
      return reason.includes(words);
    };
    while (!(await found())) await sleep(20);
    return reason;
  };

  test("is ready while one of its Triton servers is healthy, and counts the calls of each", async () => {
    await start([tritons[0]!.target, "127.0.0.1:9"]);
    while ((await readiness()).status !== 200) await sleep(20);
    const answer = await fetch(`${url}/embed`, {
      method: "POST",
      headers: { "content-type": "image/jpeg" },
      body: new Uint8Array(await picture()),
    });
    expect(answer.status).toBe(200);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const value = (name: string, target: string) =>
      metrics
        .split("\n")
        .find((line) => line.startsWith(`${name}{target="${target}",model="${fp32Name}"}`));
    const { tritonHealthy, tritonRequests, tritonFailures } = embedMetrics;
    expect(value(tritonHealthy, tritons[0]!.target)).toMatch(/ 1$/);
    expect(value(tritonHealthy, "127.0.0.1:9")).toMatch(/ 0$/);
    expect(value(tritonRequests, tritons[0]!.target)).toMatch(/ 1$/);
    expect(value(tritonFailures, tritons[0]!.target)).toMatch(/ 0$/);
    const ofProcess = (text: string) => processPrefixes.some((prefix) => text.includes(prefix));
    expect(
      exposedDifferences(metrics, embedMetricTable, processMetricTable).filter(
        (difference) => !(difference.startsWith("not in the tables") && ofProcess(difference)),
      ),
    ).toEqual([]);
    expect(metrics).toContain(`${embedMetrics.requests}{route="/embed",status="200"`);
  });

  test("reports why it is not ready and rejects with 503", async () => {
    await start(["127.0.0.1:9"]);
    expect(await reasonWith("ECONNREFUSED")).toBe(
      "no Triton server can be used: 127.0.0.1:9: connect ECONNREFUSED 127.0.0.1:9",
    );
    const answer = await fetch(`${url}/embed`, {
      method: "POST",
      headers: { "content-type": "image/jpeg" },
      body: new Uint8Array(await picture()),
    });
    expect(answer.status).toBe(503);
    expect(answer.headers.get("retry-after")).toBe("1");
    expect(await answer.json()).toMatchObject({ error: { code: "unavailable" } });
  });

  test("reports that its Triton server has no such model", async () => {
    await start([tritons[0]!.target], modelCatalogue.get("dinov2-small"));
    expect(await reasonWith("dinov2_small")).toBe(
      `no Triton server can be used: ${tritons[0]!.target}: dinov2_small is not ready`,
    );
  });
});
