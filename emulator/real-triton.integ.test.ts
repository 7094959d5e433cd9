import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import {
  type RealTriton,
  realTritonMissing,
  startRealTriton,
} from "../client/triton/test-real-triton.ts";
import { type Transport, TritonError } from "../client/triton/transport.ts";
import type { EmbedResponse } from "../contract/embed-api.ts";
import { embedMetrics } from "../contract/metrics/embed-metrics.ts";
import { exposedDifferences } from "../contract/metrics/test-exposition.ts";
import {
  tritonHostMetricTable,
  tritonModelMetricTable,
} from "../contract/metrics/triton-metrics.ts";
import { defaultModel } from "../contract/models/index.ts";
import type { Tensor } from "../contract/tensor.ts";
import { tritonModel, tritonModelName } from "../contract/triton-models.ts";
import { sendContinuously, testGateway, until } from "../inference-image/gateway/test-gateway.ts";
import type { RunningEmbedServer } from "../inference-image/server/embed-server.ts";
import { startLoading } from "../inference-image/server/test-embed-server.ts";
import { fullTestRepository, type TestRepository } from "./test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "./triton-emulator.ts";

const preprocessModel = tritonModel(defaultModel, "preprocess");
const jpegModel = tritonModel(defaultModel, "jpeg");

const call = { timeoutMs: 60_000 };
/** Image files of every kind: rotated by EXIF, progressive, CMYK, grey, with alpha, small, wide, tall. */
const samples = fileURLToPath(new URL("../model-tools/samples/", import.meta.url));

describe.skipIf(realTritonMissing !== "")(
  `beside a real Triton server${realTritonMissing === "" ? "" : ` (not here: ${realTritonMissing})`}`,
  () => {
    let triton: RealTriton;
    let emulator: RunningTritonEmulator;
    const repositories: TestRepository[] = [];
    const transports: Transport[] = [];
    /** By name. */
    const images = new Map<string, Uint8Array>();

    beforeAll(async () => {
      repositories.push(await fullTestRepository(), await fullTestRepository());
      const [first, second] = repositories as [TestRepository, TestRepository];
      [triton, emulator] = await Promise.all([
        startRealTriton(first.path),
        startTritonEmulator(second.flags(), { log: () => {} }),
      ]);
      transports.push(
        openGrpcTransport({ target: triton.grpcTarget }),
        openGrpcTransport({ target: `127.0.0.1:${emulator.ports.grpc}` }),
      );
      for (const name of (await readdir(samples)).filter((file) =>
        /\.(jpg|png|webp)$/.test(file),
      )) {
        images.set(name, await readFile(join(samples, name)));
      }
    });
    afterAll(async () => {
      for (const transport of transports) await transport.close();
      await triton?.stop();
      await emulator?.stop();
      for (const repository of repositories) await repository.remove();
    });

    const files = (name: string, data: readonly Uint8Array[]): Tensor => ({
      name,
      dataType: "BYTES",
      shape: [data.length, 1],
      data,
    });
    const [encoded, image] = [preprocessModel.inputs[0].name, jpegModel.inputs[0].name];

    /** Returns the responses of Triton and of the emulator to the same request. */
    const both = (model: string, input: Tensor) =>
      Promise.all(
        transports.map((transport) => transport.infer(model, [input], call).then(([one]) => one!)),
      ) as Promise<[Tensor, Tensor]>;

    test("openclip_vit_b32_preprocess returns the same pixels, bit for bit", async () => {
      expect(images.size).toBeGreaterThanOrEqual(20);
      const different: string[] = [];
      for (const [name, file] of images) {
        const [their, our] = await both(preprocessModel.name, files(encoded, [file]));
        if (!Buffer.from(their.data as Uint8Array).equals(our.data as Uint8Array)) {
          different.push(name);
        }
      }
      expect(different).toEqual([]);
    });

    test("openclip_vit_b32_jpeg returns the same embeddings", async () => {
      const some = [...images.values()].slice(0, 8);
      const [their, our] = await both(jpegModel.name, files(image, some));
      expect(their.shape).toEqual([some.length, 512]);
      for (let row = 0; row < some.length; row += 1) {
        const part = ({ data }: Tensor) => (data as Float32Array).slice(row * 512, (row + 1) * 512);
        expect(cosine(part(their), part(our))).toBeGreaterThan(0.9999);
      }
    });

    test.each([
      ["no image", "not an image"],
      ["nothing", ""],
    ])("rejects %s with the same code and message", async (_, text) => {
      const [good] = images.values();
      const bad = files(image, [good!, Buffer.from(text)]);
      const [tritonError, emulatorError] = await Promise.all(
        transports.map((transport) =>
          transport.infer(jpegModel.name, [bad], call).catch((error: unknown) => error),
        ),
      );
      expect(tritonError).toBeInstanceOf(TritonError);
      const messageOf = (error: unknown) =>
        (error as TritonError).message.replace(/ from [^)]*/, "");
      expect(messageOf(emulatorError)).toBe(messageOf(tritonError));
      expect(messageOf(tritonError)).toContain("image 1 ");
    });

    describe.each(["fp32", "u8", "jpeg"] as const)(
      "the gateway in front of its kind %s",
      (modelKind) => {
        let gateway: RunningEmbedServer;
        let url: string;
        beforeAll(async () => {
          gateway = await startLoading({
            BACKEND: "triton",
            TRITON_GRPC_URLS: triton.grpcTarget,
            TRITON_MODEL_KIND: modelKind,
          });
          url = `http://127.0.0.1:${gateway.port}`;
          await untilAsked(async () => (await fetch(`${url}/readyz`)).status === 200);
        });
        afterAll(() => gateway?.stop());

        test("returns the embeddings of its model", async () => {
          const some = [...images.values()].slice(0, 4);
          const [output] = await transports[0]!.infer(jpegModel.name, [files(image, some)], call);
          const answer = await fetch(`${url}/embed/base64`, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify({
              images: some.map((file) => Buffer.from(file).toString("base64")),
            }),
          });
          expect(answer.status).toBe(200);
          const { embeddings } = (await answer.json()) as EmbedResponse;
          for (const [row, embedding] of embeddings.entries()) {
            const expected = (output!.data as Float32Array).slice(row * 512, (row + 1) * 512);
            expect(cosine(Float32Array.from(embedding), expected)).toBeGreaterThan(0.9999);
          }
        });

        test("reports an unreadable image", async () => {
          const [good] = images.values();
          const cut = good!.subarray(0, 200);
          const answer = await fetch(`${url}/embed/base64`, {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify({
              images: [good!, cut].map((file) => Buffer.from(file).toString("base64")),
            }),
          });
          expect(answer.status).toBe(422);
          expect(await answer.json()).toMatchObject({
            error: { code: "undecodable_image", image: 1 },
          });
        });

        test("counts its calls", async () => {
          const metrics = await (await fetch(`${url}/metrics`)).text();
          const label = `{target="${triton.grpcTarget}",model="${tritonModelName(defaultModel, modelKind)}"}`;
          expect(metrics).toContain(`${embedMetrics.tritonHealthy}${label} 1`);
          expect(metrics).toMatch(new RegExp(`${embedMetrics.tritonRequests}\\{[^}]*\\} [1-9]`));
        });
      },
    );

    test("the real Triton server has the metrics of the contract, and no others", async () => {
      const page = await (await fetch(`http://127.0.0.1:${triton.ports[2]}/metrics`)).text();
      expect(exposedDifferences(page, tritonModelMetricTable, tritonHostMetricTable)).toEqual([]);
    });

    test("the gateway loses no request when one of two Triton servers stops and the other is killed", async () => {
      const other = await startRealTriton(repositories[0]!.path);
      const gateway = await testGateway([triton.grpcTarget, other.grpcTarget]);
      const running = sendContinuously(gateway);
      try {
        await running.more(20);
        await other.stop();
        await until(() => !gateway.healthy()[1]);
        await running.more(20);
        const again = await startRealTriton(repositories[0]!.path, { ports: other.ports });
        await until(() => gateway.healthy()[1]!);
        await running.more(20);
        again.process.kill("SIGKILL");
        await until(() => !gateway.healthy()[1]);
        await running.more(20);
        await running.stop();
        expect(running.counts.rejected).toBe(0);
      } finally {
        await running.stop();
        await gateway.close();
      }
    });
  },
);

function cosine(a: Float32Array, b: Float32Array): number {
  let [dot, aa, bb] = [0, 0, 0];
  for (const [at, value] of a.entries()) {
    dot += value * b[at]!;
    aa += value * value;
    bb += b[at]! * b[at]!;
  }
  return dot / Math.sqrt(aa * bb);
}

async function untilAsked(condition: () => Promise<boolean>): Promise<void> {
  for (const startedAt = performance.now(); !(await condition()); ) {
    if (performance.now() - startedAt > 20_000) throw new Error("it did not come to pass");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
