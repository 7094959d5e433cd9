import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { decodeGrpcRequest, methodOf } from "../../client/triton/wire-grpc.ts";
import { decodeInferRequest, headerLengthField } from "../../client/triton/wire-http.ts";
import type { BenchEndpoint } from "../../contract/bench-endpoint.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import type { LoadImage, LoadText } from "./load-items.ts";
import { modelFor, pixelsOf, prepareRequests } from "./prepare.ts";

const tower = imageTowerOf(openclipVitB32);
const imageElements = 3 * 224 * 224;

/** Varied pixels and their preprocessed tensor. */
const pixels = Uint8Array.from({ length: imageElements }, (_, i) => (i * 31) % 256);
function normalised(): Float32Array {
  const { mean, std } = tower.input;
  const plane = imageElements / 3;
  return Float32Array.from({ length: imageElements }, (_, i) => {
    const channel = Math.floor(i / plane);
    const pixel = pixels[(i % plane) * 3 + channel] ?? 0;
    return (pixel / 255 - (mean[channel] ?? 0)) / (std[channel] ?? 1);
  });
}
const images: readonly LoadImage[] = ["mountains.jpg", "sunset.jpg", "shell-alpha.png"].map(
  (name) => ({
    bytes: readFileSync(new URL(`../../model-tools/samples/${name}`, import.meta.url)),
    contentType: name.endsWith("png") ? "image/png" : "image/jpeg",
    tensor: normalised(),
  }),
);

const http = {
  endpoint: "onnx-http",
  url: "http://127.0.0.1:8000",
  model: "openclip_vit_b32",
  spec: openclipVitB32,
} as const;
const grpc = { ...http, endpoint: "onnx-grpc", url: "127.0.0.1:8001" } as const;
const embed = { ...http, endpoint: "embed-http" } as const;
type Sent = Pick<BenchEndpoint, "payload" | "serialization">;
const fp32: Sent = { payload: "fp32", serialization: "binary" };

/** First request as decoded by a Triton server. */
async function httpInput(sent: Sent, batch: number) {
  const { requests } = await prepareRequests(http, sent, images, batch);
  const request = requests[0]!;
  const decoded = decodeInferRequest(
    Buffer.from(request.body),
    request.headers[headerLengthField],
    "m",
  );
  if (!("inputs" in decoded)) throw new Error("no inputs");
  return { input: decoded.inputs[0]!, binaryOutputs: decoded.binaryOutputs };
}

test("the pixels are recovered exactly from the tensor", () => {
  expect(pixelsOf(tower, normalised())).toEqual(pixels);
});

test.each([
  ["fp32", "FP32", [2, 3, 224, 224], 2 * 602_112],
  ["uint8", "UINT8", [2, 224, 224, 3], 2 * 150_528],
] as const)(
  "%s tensors over HTTP are what a Triton server reads",
  async (payload, dataType, shape, bytes) => {
    const { input, binaryOutputs } = await httpInput({ payload, serialization: "binary" }, 2);
    expect(input).toMatchObject({ name: "image", dataType, shape });
    expect(input.bytes.byteLength).toBe(bytes);
    expect(binaryOutputs).toBe(true);
  },
);

test("JPEG files over HTTP are decoded by a Triton server", async () => {
  const { input } = await httpInput({ payload: "jpeg", serialization: "binary" }, 2);
  const size = images.slice(0, 2).reduce((sum, { bytes }) => sum + 4 + bytes.byteLength, 0);
  expect(input).toMatchObject({ name: "image", dataType: "BYTES", shape: [2, 1] });
  expect(input.bytes.byteLength).toBe(size);
});

test("JSON contains the same numbers and requests JSON", async () => {
  const { input, binaryOutputs } = await httpInput({ payload: "fp32", serialization: "json" }, 1);
  expect(Buffer.from(input.bytes).equals(Buffer.from(images[0]!.tensor.buffer))).toBe(true);
  expect(binaryOutputs).toBe(false);
});

test("a gRPC request is decoded by a Triton server", async () => {
  const prepared = await prepareRequests(grpc, { ...fp32, payload: "uint8" }, images, 2);
  const message = methodOf("ModelInfer").requestDeserialize(
    Buffer.from(prepared.requests[0]!.body),
  );
  expect(prepared).toMatchObject({
    transport: "grpc",
    url: "127.0.0.1:8001",
    path: "/inference.GRPCInferenceService/ModelInfer",
  });
  expect(message.model_name).toBe("openclip_vit_b32_u8");
  expect(decodeGrpcRequest(message).inputs[0]).toMatchObject({
    dataType: "UINT8",
    shape: [2, 224, 224, 3],
  });
});

test("one image is sent to the embed API as the raw body", async () => {
  const { path, requests } = await prepareRequests(embed, { ...fp32, payload: "jpeg" }, images, 1);
  expect(path).toBe("/embed?model=openclip-vit-b32");
  expect(requests.map(({ headers }) => headers["content-type"])).toEqual([
    "image/jpeg",
    "image/jpeg",
    "image/png",
  ]);
  expect(requests[0]?.body).toBe(images[0]?.bytes);
  expect(requests[0]?.headers.accept).toBe("application/octet-stream");
});

test("several images are sent to the embed API as a multipart form", async () => {
  const { requests } = await prepareRequests(embed, { ...fp32, payload: "jpeg" }, images, 2);
  const { body, headers } = requests[2]!;
  const form = await new Response(new Blob([Buffer.from(body)]), { headers }).formData();
  const files = await Promise.all(
    form
      .getAll("images")
      .map((file) => (typeof file === "string" ? undefined : file.arrayBuffer())),
  );
  // the third request starts with the third image and wraps around
  expect(
    files.map((file) => file !== undefined && Buffer.from(file).equals(images[2]!.bytes)),
  ).toEqual([true, false]);
});

test("one request per image, fewer if they exceed the memory limit", async () => {
  expect((await prepareRequests(http, fp32, images, 1)).requests).toHaveLength(3);
  const many = Array.from({ length: 12 }, () => images[0]!);
  expect((await prepareRequests(http, fp32, many, 32)).requests).toHaveLength(6);
});

test("the API key is sent to its server only", async () => {
  const { headers } = await prepareRequests({ ...http, apiKey: "abc" }, fp32, images, 1);
  expect(headers).toEqual({ authorization: "Bearer abc" });
});

test("a TensorRT model has the same payload formats as the model of its Triton server", () => {
  const trt = { model: "openclip_vit_b32_trt", spec: openclipVitB32 };
  expect(modelFor(trt, "fp32")).toBe("openclip_vit_b32_trt");
  expect(modelFor(trt, "uint8")).toBe("openclip_vit_b32_u8");
  expect(modelFor({ model: "dinov2_small", spec: dinov2Small }, "jpeg")).toBe("dinov2_small_jpeg");
});

test("fails without an image", async () => {
  await expect(prepareRequests(http, fp32, [], 1)).rejects.toThrow(
    "a load needs an image or a text, got none",
  );
});

describe("texts", () => {
  const texts: readonly LoadText[] = [
    { text: "a cat", ids: BigInt64Array.from({ length: 77 }, (_, i) => BigInt(i)) },
    { text: "two dogs", ids: new BigInt64Array(77) },
  ];
  const format = { payload: "text", serialization: "binary" } as const;

  test("are sent to the embed API as JSON", async () => {
    const { path, requests } = await prepareRequests(embed, format, texts, 2);
    expect(path).toBe("/embed/text");
    expect(requests[0]?.headers.accept).toBe("application/octet-stream");
    expect(requests.map(({ body }) => JSON.parse(Buffer.from(body).toString()))).toEqual([
      { texts: ["a cat", "two dogs"], model: "openclip-vit-b32" },
      { texts: ["two dogs", "a cat"], model: "openclip-vit-b32" },
    ]);
  });

  test("are sent to a Triton server as token ids", async () => {
    const model = "openclip_vit_b32_text";
    const { requests } = await prepareRequests({ ...grpc, model }, format, texts, 2);
    const message = methodOf("ModelInfer").requestDeserialize(Buffer.from(requests[0]!.body));
    expect(message.model_name).toBe(model);
    const [input] = decodeGrpcRequest(message).inputs;
    expect(input).toMatchObject({ name: "text", dataType: "INT64", shape: [2, 77] });
    expect(Buffer.from(input!.bytes).readBigInt64LE(8 * 76)).toBe(76n);
  });
});
