import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { openEmbedClient } from "../client/embedding/embed-client.ts";
import { realTritonMissing, startRealTriton } from "../client/triton/test-real-triton.ts";
import { embedPaths, timeoutParameter } from "../contract/embed-api.ts";
import { defaultModel } from "../contract/models/index.ts";
import { modelSettings } from "../contract/server/model-list.ts";
import type { ServerEnvName } from "../contract/server/server-env.ts";
import { otlpTraceUrl, tracingFlags } from "../contract/triton-flags.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../emulator/test-repository.ts";
import { tritonProcess } from "../emulator/test-triton-process.ts";
import { startTraceExport } from "../http/trace-export.ts";
import { picture } from "../inference/preprocess/test-images.ts";
import { writeTestRepository } from "../inference-image/models/test-text-model.ts";
import { type ServerProcess, startEmbed } from "../lab/trials/server-process.ts";
import {
  type CollectedSpan,
  collectorMissing,
  startCollector,
  type TestCollector,
} from "./test-collector.ts";

const model = tritonModelName(defaultModel, "fp32");
const skipped = (reason: string) => (reason === "" ? "" : ` (skipped: ${reason})`);

/** Triton server that exports traces. */
interface TracedTriton {
  readonly target: string;
  stop(): Promise<unknown>;
}

/** Starts a Triton server of each kind. */
const starts: Readonly<
  Record<string, (repository: TestRepository, flags: readonly string[]) => Promise<TracedTriton>>
> = {
  async emulator({ path }, flags) {
    const triton = await tritonProcess(path, { model, flags });
    await triton.start();
    return { target: triton.target, stop: triton.end };
  },
  async tritonserver({ path }, flags) {
    const triton = await startRealTriton(path, { flags });
    return { target: triton.grpcTarget, stop: triton.stop };
  },
};

describe.skipIf(collectorMissing !== "")(`at a collector${skipped(collectorMissing)}`, () => {
  let collector: TestCollector;
  let repository: TestRepository;
  let endExport: () => Promise<void>;
  let embed: ServerProcess | undefined;
  let triton: TracedTriton | undefined;
  beforeAll(async () => {
    collector = await startCollector();
    repository = await testRepository();
    endExport = await startTraceExport({
      url: otlpTraceUrl(collector.http),
      protocol: "http/protobuf",
      serviceName: "application",
      sampler: "always_on",
      ratio: 1,
      warn: (line) => expect.fail(line),
    });
  });
  const stopServers = async () => {
    await embed?.stop();
    await triton?.stop();
    [embed, triton] = [undefined, undefined];
  };
  afterEach(stopServers);
  afterAll(async () => {
    await endExport?.();
    await collector?.stop();
    await repository?.remove();
  });

  const startServer = async (env: Partial<Record<ServerEnvName, string>>) => {
    embed = await startEmbed({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.http, ...env } });
    return `http://127.0.0.1:${embed.ports[0]}`;
  };
  const byName = (service: string, name: string) =>
    collector.spans.findLast((span) => span.service === service && span.name === name);
  /** Stages of the last request to a route, sorted. */
  const stagesOf = (route: string) => {
    const request = byName("clipstack-embed", route);
    const stages = collector.spans.filter(({ parentSpanId }) => parentSpanId === request?.spanId);
    return stages.map(({ name }) => name).sort();
  };
  /** Service and name of a span and of its ancestors. */
  const pathOf = (span: CollectedSpan | undefined): readonly string[] => {
    if (span === undefined) return [];
    const parent = collector.spans.find(({ spanId }) => spanId === span.parentSpanId);
    return [`${span.service}: ${span.name}`, ...pathOf(parent)];
  };

  for (const [kind, start] of Object.entries(starts)) {
    const missing = kind === "tritonserver" ? realTritonMissing : "";
    test.skipIf(missing !== "")(
      `one trace leads from the client through the gateway to ${kind}${skipped(missing)}`,
      async () => {
        const flags = tracingFlags(collector.http, kind)["trace-config"];
        triton = await start(
          repository,
          flags.map((value) => `--trace-config=${value}`),
        );
        const url = await startServer({
          BACKEND: "triton",
          TRITON_GRPC_URLS: triton.target,
          OTEL_EXPORTER_OTLP_ENDPOINT: collector.grpc,
          OTEL_EXPORTER_OTLP_PROTOCOL: "grpc",
        });
        const client = openEmbedClient({ url });
        await client.embed([await picture()]);
        await client.close();

        // the processes export every few seconds
        await expect
          .poll(() => pathOf(byName(kind, "InferRequest")))
          .toEqual([
            `${kind}: InferRequest`,
            "clipstack-embed: inference.GRPCInferenceService/ModelInfer",
            "clipstack-embed: batch",
            "clipstack-embed: POST /embed",
            "application: POST /embed",
          ]);
        expect(stagesOf("POST /embed")).toEqual([
          "admission",
          "batch",
          "decode",
          "encode",
          "infer",
          "queue",
          "receive",
        ]);
      },
    );
  }

  test("downloads and texts are stages of a request", async () => {
    const folder = await mkdtemp(join(tmpdir(), "clipstack-tracing-"));
    await writeTestRepository(folder, [defaultModel]);
    const photo = await picture();
    const files = createServer((_request, response) => response.end(photo)).listen(0, "127.0.0.1");
    await once(files, "listening");
    const filesUrl = `http://127.0.0.1:${(files.address() as AddressInfo).port}`;
    const url = await startServer({
      ...modelSettings([defaultModel]),
      MODEL_REPOSITORY: folder,
      IMAGE_URL_HOSTS: filesUrl,
    });
    const response = await fetch(url + embedPaths.openAiEmbeddings, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input: ["dunes", { image: `${filesUrl}/photo` }] }),
    });
    expect(response.status, await response.text()).toBe(200);
    files.close();

    await expect.poll(() => stagesOf("POST /v1/embeddings")).toContain("encode");
    expect(stagesOf("POST /v1/embeddings")).toEqual(
      expect.arrayContaining(["decode", "download", "tokenize"]),
    );
    await rm(folder, { recursive: true });
  });

  test("a failed request is exported although its trace is not sampled, and its log line has its id", async () => {
    const url = await startServer({ OTEL_TRACES_SAMPLER: "always_off", LOG_LEVEL: "debug" });
    const body = new Uint8Array(await picture());
    const headers = { "content-type": "image/jpeg" };
    const path = `${embedPaths.embed}?${timeoutParameter}=1`;
    const { status } = await fetch(url + path, { method: "POST", headers, body });
    expect(status).toBe(504);
    const server = embed;
    await stopServers();

    await expect
      .poll(() => byName("clipstack-embed", "POST /embed")?.attributes["error.type"])
      .toBe(String(status));
    const { traceId } = byName("clipstack-embed", "POST /embed")!;
    expect(server?.exitDescription).toContain(`"trace_id":"${traceId}"`);
  });
});
