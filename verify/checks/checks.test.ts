import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import type { Transport } from "../../client/triton/transport.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import type { ServiceEndpoint } from "../../contract/environment.ts";
import { imageTowerOf, normalisedImage } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../../contract/tensor.ts";
import { parseMetrics } from "../../target/readings/prometheus.ts";
import type { Reference } from "../../target/reference/reference.ts";
import { unit } from "../../target/requests/infer.ts";
import { openService, type TargetService } from "../../target/service/target-service.ts";
import { checkBatches } from "./batches.ts";
import { countsIn } from "./batching.ts";
import { checkEmbedding } from "./embedding.ts";
import { checkEndpoints } from "./endpoints.ts";
import { checkParity } from "./parity.ts";
import { embedService as embedServiceAt } from "./test-embed-service.ts";

const embeddingWidth = defaultModel.embedding.width;
const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

type Rows = (rows: readonly Float32Array[]) => readonly Float32Array[];

/** Model that returns the first 512 numbers of its input; `change` changes the response. */
function service(change: Rows = (rows) => rows, state: "up" | "down" = "up"): TargetService {
  const transport: Pick<Transport, "live" | "infer"> = {
    live: async () => state === "up",
    async infer(_model, [input]) {
      const { data, shape } = input as Fp32Tensor;
      const batch = shape[0] ?? 0;
      const rows = Array.from({ length: batch }, (_, i) =>
        data.slice(i * imageElements, i * imageElements + embeddingWidth),
      );
      const output = new Float32Array(batch * embeddingWidth);
      change(rows).forEach((row, i) => {
        output.set(row, i * embeddingWidth);
      });
      return [
        { name: "embedding", dataType: "FP32", shape: [batch, embeddingWidth], data: output },
      ];
    },
  };
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "triton-onnx");
  const endpoint = workload?.service.endpoints.find((it) => it.protocol === "oip-grpc");
  if (workload === undefined || endpoint === undefined) throw new Error("no Triton server");
  const opened = openService(
    "test",
    workload,
    [defaultModel],
    [],
    [{ workload, endpoint, url: "127.0.0.1:1" }],
  );
  return { ...opened, transport: () => transport as Transport };
}

const images = Array.from({ length: 4 }, (_, i) => {
  const tensor = Float32Array.from({ length: imageElements }, (_unused, j) =>
    Math.sin(i + j * (i + 1)),
  );
  return {
    name: `${i}.jpg`,
    bytes: Buffer.from(`pixels of ${i}`),
    contentType: "image/jpeg",
    tensor,
    embedding: unit(tensor.slice(0, embeddingWidth)),
  };
});
const reference: Reference = new Map([[defaultModel.name, images]]);

const textsOf = (results: Awaited<ReturnType<typeof checkEmbedding>>) =>
  results.map(({ outcome, message }) => `${outcome}: ${message}`);

test("finite embeddings pass", async () => {
  expect(textsOf(await checkEmbedding(service(), reference))).toEqual([
    "pass: 512 finite values in 1 responses",
  ]);
});

test("an embedding with NaN fails", async () => {
  const faulty = service((rows) => rows.map((row) => row.with(7, Number.NaN)));
  expect(textsOf(await checkEmbedding(faulty, reference))).toEqual([
    "fail: binary: value 7 of an embedding must be finite, got NaN",
  ]);
});

test("an embedding of zeros fails", async () => {
  const faulty = service((rows) => rows.map((row) => row.fill(0)));
  expect(textsOf(await checkEmbedding(faulty, reference))).toEqual([
    "fail: binary: an embedding must not be all zeros",
  ]);
});

test("batches in order pass", async () => {
  expect(textsOf(await checkBatches(service(), reference, "deployed"))).toEqual([
    "pass: batches of 1, 4, 8, 16, 32",
  ]);
  expect(textsOf(await checkBatches(service(), reference, "simulation"))).toEqual([
    "pass: batches of 4, 32",
  ]);
});

test("a reordered batch fails with its size and row", async () => {
  const [message = ""] = textsOf(
    await checkBatches(
      service((rows) => [...rows].reverse()),
      reference,
      "simulation",
    ),
  );
  expect(message).toMatch(
    /^fail: batch of 4: row 0 must be the embedding of its image, got cosine -?0\.\d+$/,
  );
});

test("an unreachable server fails", async () => {
  const down = service(undefined, "down");
  expect(textsOf(await checkEndpoints(down))).toEqual([
    "fail: oip-grpc at 127.0.0.1:1: must be live",
  ]);
});

test("reads batch counts from Triton's counters and the embed server's histogram", () => {
  const triton = parseMetrics(
    'nv_inference_count{model="a"} 40\nnv_inference_exec_count{model="a"} 5\n',
  );
  const embed = parseMetrics(
    "clipstack_embed_batch_size_sum 12\nclipstack_embed_batch_size_count 3\n",
  );
  expect(countsIn(triton, "triton", "t")).toEqual({ inferences: 40, executions: 5 });
  expect(countsIn(embed, "embed", "e")).toEqual({ inferences: 12, executions: 3 });
});

test("fails on metrics without batch counts", () => {
  expect(() => countsIn([], "triton", "single-gpu-triton-onnx")).toThrow(
    "the metrics of single-gpu-triton-onnx must contain nv_inference_count and nv_inference_exec_count",
  );
});

/** Embed server that returns the reference embeddings; `change` changes the response. */
async function embedService(
  change: (row: Float32Array) => Float32Array,
  endpointName: ServiceEndpoint = "embed-http",
): Promise<TargetService> {
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const image = images.find(({ bytes }) => {
      const given = Buffer.from(bytes);
      return body.includes(
        request.url?.split("?")[0] === embedPaths.embed ? given : given.toString("base64"),
      );
    });
    const row = change(image?.embedding ?? new Float32Array(embeddingWidth));
    if (request.headers.accept === "application/octet-stream") {
      response.end(Buffer.from(row.buffer, row.byteOffset, row.byteLength));
      return;
    }
    response.setHeader("content-type", "application/json");
    response.end(
      JSON.stringify({
        embeddings: [[...row]],
        dim: embeddingWidth,
        model: "ViT-B-32",
        pretrained: "test",
      }),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const workload = workloads.find((it) => it.service.name === "embed");
  const endpoint = workload?.service.endpoints.find((it) => it.protocol === "embed-http");
  if (workload === undefined || endpoint === undefined) throw new Error("no embed server");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return openService(
    "test",
    workload,
    [defaultModel],
    [],
    [{ workload, endpoint: { ...endpoint, name: endpointName }, url }],
  );
}

/** Rounds an embedding to FP16. */
const near = (row: Float32Array) =>
  unit(row.map((value, i) => value * (i % 2 === 0 ? 1.01 : 0.99)));

test("an embed server with unit norm passes in every payload format", async () => {
  expect(textsOf(await checkEmbedding(await embedService((row) => row), reference))).toEqual([
    "pass: 512 finite values in 4 responses",
  ]);
});

test("an embed server that does not normalise fails", async () => {
  const raw = await embedService((row) => row.map((value) => value * 2));
  expect(textsOf(await checkEmbedding(raw, reference))).toEqual([
    "fail: norm must be 1, got a deviation of 1.0",
  ]);
});

test("embeddings equal to the reference pass parity", async () => {
  const [message = ""] = textsOf(
    await checkParity(await embedService((row) => row), reference, "simulation"),
  );
  expect(message).toMatch(/^pass: 8 embeddings: cosine 1\.000000, /);
});

test("embeddings with the right direction that differ by more than 0.1 % fail parity", async () => {
  const [result] = await checkParity(await embedService(near), reference, "simulation");
  expect(result?.measured.cosine).toBeGreaterThanOrEqual(0.999);
  expect(result?.measured.relativeDifference).toBeGreaterThan(0.001);
  expect(textsOf(result === undefined ? [] : [result])).toEqual([
    expect.stringMatching(
      /^fail: 0\.jpg, .* differ from the local reference: cosine 0\.999\d+, relative difference .* %; must be ≥ 0\.999 and ≤ 0\.10 %$/,
    ),
  ]);
});

test("embeddings of a TensorRT engine, rounded to FP16, pass by direction on a deployment", async () => {
  const tensorrt = await embedService(near, "trt-http");
  expect(textsOf(await checkParity(tensorrt, reference, "deployed"))).toEqual([
    expect.stringMatching(/^pass: 8 embeddings: cosine 0\.999/),
  ]);
  expect(textsOf(await checkParity(tensorrt, reference, "simulation"))).toEqual([
    expect.stringMatching(/^fail: /),
  ]);
  const turned = await embedService(
    (row) => unit(row.map((value, i) => value * (i % 3))),
    "trt-http",
  );
  expect(textsOf(await checkParity(turned, reference, "deployed"))).toEqual([
    expect.stringMatching(/^fail: .*; must be ≥ 0\.999$/),
  ]);
});

test("fails if an upstream of a gateway is out of rotation", async () => {
  let healthy = 0;
  const gateway = await embedServiceAt((_request, response) => {
    response.end(`clipstack_embed_triton_healthy{target="gpu-2:8011",model="m"} ${healthy}\n`);
  });
  const metricsOf = async () => {
    const { targets } = gateway;
    const target = { ...targets[0]!, endpoint: { protocol: "metrics" as const, url: "" } };
    return await checkEndpoints({ ...gateway, targets: [target] });
  };
  expect(await metricsOf()).toMatchObject([
    {
      outcome: "fail",
      message: expect.stringContaining("every upstream must be in rotation, got gpu-2:8011 out"),
    },
  ]);
  healthy = 1;
  expect(await metricsOf()).toMatchObject([{ outcome: "pass" }]);
}, 20_000);
