import { readFileSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ClientError } from "../../client/embedding/client-error.ts";
import {
  type InferenceClient,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { openclipVitB32 as spec } from "../../contract/models/openclip-vit-b32.ts";
import { daliPipelinePath } from "../../contract/repository-files.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { writeDaliModels } from "../../model-tools/repository/repository.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startGateway, startTestTriton, type TestTriton } from "./test-triton.ts";

/** Gateway and client in front of a Triton emulator with DALI's ensemble. */

const sample = (name: string) =>
  readFileSync(new URL(`../../model-tools/samples/${name}`, import.meta.url));
const [photo, rotated, cmyk] = [
  sample("sunset.jpg"),
  sample("flower-exif-6.jpg"),
  sample("tartan-cmyk.jpg"),
];
const ensemble = "openclip_vit_b32_dali";

let triton: TestTriton;
let gateways: Readonly<Record<"dali" | "fp32", RunningEmbedServer>>;
let clients: Readonly<Record<"dali" | "fp32", InferenceClient>>;

const urlOf = ({ port }: RunningEmbedServer) => `http://127.0.0.1:${port}`;

beforeAll(async () => {
  triton = await startTestTriton([spec], async (folder) => {
    await writeDaliModels(spec, folder);
    await writeFile(join(folder, daliPipelinePath(spec, "gpu")), "");
    // its model is not in this repository
    await rm(join(folder, `${ensemble}_trt`), { recursive: true });
  });
  const start = async (modelKind: "dali" | "fp32") => {
    const gateway = await startGateway(triton, [spec], { TRITON_MODEL_KIND: modelKind });
    while ((await fetch(`${urlOf(gateway)}/readyz`)).status !== 200) await sleep(20);
    return gateway;
  };
  gateways = { dali: await start("dali"), fp32: await start("fp32") };
  const client = (gateway: RunningEmbedServer) =>
    openInferenceClient({ backend: "embed", mode: "remote", serviceUrl: urlOf(gateway) });
  clients = { dali: await client(gateways.dali), fp32: await client(gateways.fp32) };
});
afterAll(async () => {
  await Promise.all([clients?.dali.close(), clients?.fp32.close()]);
  await Promise.all([gateways?.dali.stop(), gateways?.fp32.stop()]);
  await triton?.stop();
});

/** Number of images that the ensemble has embedded. */
async function decodedByDali(): Promise<number> {
  const page = await fetch(`http://127.0.0.1:${triton.ports.metrics}/metrics`);
  const counter = new RegExp(
    `^nv_inference_request_success\\{model="${ensemble}",.*\\} (\\d+)$`,
    "m",
  );
  return Number(counter.exec(await page.text())?.[1] ?? 0);
}

describe("a gateway with the kind dali", () => {
  test.each<readonly [string, () => Promise<readonly Uint8Array[]>, number]>([
    ["JPEG files", async () => [photo, rotated, await picture("jpeg")], 3],
    ["files that DALI decodes differently", async () => [cmyk, await picture("png")], 0],
    ["a mixture, in order", async () => [cmyk, photo, await picture("webp"), rotated], 2],
  ])("embeds %s as the exact preprocessing does", async (_name, images, forwarded) => {
    const files = await images();
    const before = await decodedByDali();
    const vectors = await clients.dali.embed(files);
    expect((await decodedByDali()) - before).toBe(forwarded);
    const expected = await clients.fp32.embed(files);
    for (const [index, vector] of vectors.entries()) {
      const cosine = vector.reduce((sum, value, at) => sum + value * expected[index]![at]!, 0);
      expect(cosine).toBeGreaterThan(0.99999);
    }
  });

  test("keeps a truncated file from DALI, which would fail its whole batch", async () => {
    const before = await decodedByDali();
    const cut = photo.subarray(0, 2_000);
    await expect(clients.dali.embed([rotated, cut])).rejects.toThrow(/image 1 cannot be decoded/);
    expect((await decodedByDali()) - before).toBe(0);
  });

  test("rejects an image above the pixel limit, which DALI does not have", async () => {
    const line = await sharp({
      create: { width: 16_000, height: 4_000, channels: 3, background: "red" },
    })
      .jpeg()
      .toBuffer();
    await expect(clients.dali.embed([line])).rejects.toThrow(/has 16000 × 4000 pixels, more than/);
  });
});

describe.each(["triton", "triton_grpc"] as const)("a client with the backend %s", (backend) => {
  const open = () =>
    openInferenceClient({
      ...{ backend, mode: "remote", tritonModel: ensemble },
      serviceUrl: `http://127.0.0.1:${triton.ports.http}`,
      tritonGrpcUrl: `127.0.0.1:${triton.ports.grpc}`,
    });

  test("sends files of different lengths in one request", async () => {
    const client = await open();
    const vectors = await client.embed([photo, rotated]);
    const expected = await clients.fp32.embed([photo, rotated]);
    for (const [index, vector] of vectors.entries()) {
      const cosine = vector.reduce((sum, value, at) => sum + value * expected[index]![at]!, 0);
      expect(cosine).toBeGreaterThan(0.99999);
    }
    await client.close();
  });

  test("fails on a file that DALI decodes differently, by its index", async () => {
    const client = await open();
    const failed = client.embed([photo, cmyk]);
    await expect(failed).rejects.toThrow(ClientError);
    await expect(failed).rejects.toThrow(
      "image 1 must be a complete JPEG with 8 bits per sample, grey or RGB, at most 40000000 pixels, because DALI decodes it",
    );
    await client.close();
  });
});
