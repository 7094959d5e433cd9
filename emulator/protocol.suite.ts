import { readFileSync } from "node:fs";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Client, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type InferParameter,
  inferenceService,
  type ModelInferRequest,
  type ModelInferResponse,
  methodOf,
} from "../client/triton/wire-grpc.ts";
import { defaultModel } from "../contract/models/index.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import { fullTestRepository, type TestRepository, tinyConfig } from "./test-repository.ts";

export interface ProtocolServer {
  /** `http://host:port`. */
  readonly url: string;
  /** `host:port`. */
  readonly grpcTarget: string;
  stop(): Promise<void>;
}

/** Elements by the field of their type. */
type Contents = Readonly<Record<string, readonly unknown[]>>;

const photo = readFileSync(new URL("../model-tools/samples/sunset.jpg", import.meta.url));
const [fp32, u8, jpeg, preprocess] = (["fp32", "u8", "jpeg", "preprocess"] as const).map(
  (modelKind) => tritonModelName(defaultModel, modelKind),
) as [string, string, string, string];

/** Model without a batch dimension of its own. */
const fixedBatch = "fixed_batch";

/** Models with batches of at most 4 and a queue delay of {@link delayMs}, by their preferred batch sizes. */
const delayed = { delayed: "", delayed_2: "preferred_batch_size: [ 2 ]" };
const delayMs = 2_000;

/** Models that the server loads by name. */
export const protocolModels = [jpeg, fp32, fixedBatch, ...Object.keys(delayed)];

/** Model repository for {@link testProtocol}. */
export async function protocolRepository(): Promise<TestRepository> {
  const repository = await fullTestRepository();
  const add = async (name: string, config: string) => {
    const version = join(repository.path, name, "1");
    await mkdir(version, { recursive: true });
    await symlink(await tinyModel(), join(version, "model.onnx"));
    await writeFile(join(version, "../config.pbtxt"), config);
  };
  await add(
    fixedBatch,
    tinyConfig({ name: fixedBatch, extra: "" })
      .replace("max_batch_size: 32", "max_batch_size: 0")
      .replace("[ 3, 224, 224 ]", "[ 1, 3, 224, 224 ]")
      .replace("[ 512 ]", "[ 1, 512 ]"),
  );
  for (const [name, preferred] of Object.entries(delayed)) {
    const extra = `dynamic_batching { ${preferred} max_queue_delay_microseconds: ${delayMs * 1000} }`;
    const config = tinyConfig({ name, extra });
    await add(name, config.replace("max_batch_size: 32", "max_batch_size: 4"));
  }
  return repository;
}

const count = 3 * 224 * 224;
const pixels = Uint8Array.from({ length: count }, (_, index) => index % 251);
const normalised = Array.from(pixels, (value) => value / 128 - 1);

/** Parts of the protocol that official clients seldom use, of a server with the models of `model_repository/` and model control. */
export function testProtocol(start: () => Promise<ProtocolServer>) {
  let server: ProtocolServer;
  let client: Client;
  beforeAll(async () => {
    server = await start();
    client = new Client(server.grpcTarget, credentials.createInsecure());
  }, 120_000);
  afterAll(async () => {
    client?.close();
    await server?.stop();
  });

  const infer = (message: ModelInferRequest) => {
    const { path, requestSerialize, responseDeserialize } = methodOf("ModelInfer");
    return new Promise<ModelInferResponse>((resolve, reject) => {
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        message,
        (error, answer) => (error === null ? resolve(answer!) : reject(error)),
      );
    });
  };
  const image = (
    name: string,
    datatype: string,
    shape: readonly number[],
    contents?: Contents,
  ): ModelInferRequest => ({
    model_name: name,
    inputs: [{ name: "image", datatype, shape, ...(contents && { contents }) }],
  });
  const rawFp32 = {
    ...image(fp32, "FP32", [1, 3, 224, 224]),
    raw_input_contents: [Buffer.from(Float32Array.from(normalised).buffer)],
  };
  const failure = (message: ModelInferRequest) =>
    infer(message).then(
      () => Promise.reject(new Error("it was accepted")),
      ({ code, details }: ServiceError) => ({ code, details }),
    );

  describe("typed contents", () => {
    test.each([
      [fp32, "FP32", [1, 3, 224, 224], { fp32_contents: normalised }, rawFp32.raw_input_contents!],
      [u8, "UINT8", [1, 224, 224, 3], { uint_contents: [...pixels] }, [Buffer.from(pixels)]],
    ])(
      "give the same embedding as raw contents, for %s",
      async (name, type, shape, contents, raw) => {
        const typed = await infer(image(name, type, shape, contents));
        const expected = await infer({ ...image(name, type, shape), raw_input_contents: raw });
        expect(typed.outputs[0]?.shape).toEqual([1, 512]);
        expect(typed.raw_output_contents).toEqual(expected.raw_output_contents);
      },
    );

    test("accept files as bytes", async () => {
      const message = image(jpeg, "BYTES", [1, 1], { bytes_contents: [photo] });
      expect((await infer(message)).outputs[0]?.shape).toEqual([1, 512]);
    });

    test.each<[string, Contents, RegExp]>([
      [
        "of another type",
        { int_contents: [1] },
        /^unexpected explicit tensor data for input tensor 'image' for model 'openclip_vit_b32' of type 'INT32', expected datatype 'FP32'$/,
      ],
      [
        "with too few elements",
        { fp32_contents: [1, 2] },
        /size mismatch .*'image'.* 602112( bytes)?, got 8$/,
      ],
      [
        "beside raw contents",
        { fp32_contents: normalised },
        /^contents field must not be specified when using raw_input_contents for 'image' for model 'openclip_vit_b32'$/,
      ],
    ])("are rejected %s", async (which, contents, details) => {
      const message = {
        ...image(fp32, "FP32", [1, 3, 224, 224], contents),
        raw_input_contents: which.includes("raw") ? rawFp32.raw_input_contents : undefined,
      };
      expect(await failure(message)).toEqual({
        code: status.INVALID_ARGUMENT,
        details: expect.stringMatching(details),
      });
    });
  });

  const post = async (
    path: string,
    body: string | Buffer,
    headers: Record<string, string> = {},
  ) => {
    const response = await request(`${server.url}${path}`, { method: "POST", body, headers });
    const bytes = Buffer.from(await response.body.arrayBuffer());
    return { status: response.statusCode, headers: response.headers, bytes };
  };
  const raw = {
    "inference-header-content-length": "0",
    "content-type": "application/octet-stream",
  };

  describe("a raw binary request", () => {
    test("is the content of the only input, and its outputs are binary", async () => {
      const response = await post(`/v2/models/${jpeg}/infer`, photo, raw);
      expect(response.status).toBe(200);
      const length = Number(response.headers["inference-header-content-length"]);
      const json = JSON.parse(response.bytes.subarray(0, length).toString());
      expect(json).toMatchObject({
        model_name: jpeg,
        outputs: [{ name: "embedding", datatype: "FP32", shape: [1, 512] }],
      });
      expect(response.bytes.length - length).toBe(4 * 512);
    });

    test("may be a tensor of fixed shape", async () => {
      const response = await post(`/v2/models/${u8}/infer`, Buffer.from(pixels), raw);
      expect(response.status).toBe(200);
    });

    test("must have the size of the input", async () => {
      const response = await post(`/v2/models/${u8}/infer`, Buffer.from(pixels.subarray(1)), raw);
      expect(response.status).toBe(400);
    });
  });

  describe("parameters that start with triton_", () => {
    const json = (parameters: object) =>
      JSON.stringify({
        inputs: [{ name: "image", shape: [1, 3, 224, 224], datatype: "FP32", data: normalised }],
        parameters,
      });

    test.each(["triton_x", "triton_enable_empty_final_response", "triton_"])(
      "are rejected over HTTP: %s",
      async (name) => {
        const response = await post(`/v2/models/${fp32}/infer`, json({ [name]: "1" }));
        expect(response.status).toBe(400);
        expect(JSON.parse(response.bytes.toString())).toEqual({
          error:
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        });
      },
    );

    test("are rejected over gRPC", async () => {
      const parameters = { triton_x: { string_param: "1" } };
      expect(await failure({ ...rawFp32, parameters })).toEqual({
        code: status.INVALID_ARGUMENT,
        details:
          "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with 'triton_' are allowed: triton_enable_empty_final_response",
      });
    });

    test("do not include others", async () => {
      const response = await post(`/v2/models/${fp32}/infer`, json({ my_triton_x: "1" }));
      expect(response.status).toBe(200);
    });
  });

  test.each([
    ["gzip", "gzip"],
    ["deflate", "deflate"],
    ["gzip;q=0", undefined],
    ["gzip;q=0.5, deflate;q=1.0", "deflate"],
    ["gzip;q=0.5,deflate;q=0.4", "gzip"],
    ["identity", undefined],
    ["gzip;q=0.5, identity;q=1.0", undefined],
    ["deflate, gzip", "deflate"],
    ["gzip, deflate", "gzip"],
    ["*", undefined],
    ["gzip;q=0.001", "gzip"],
    ["GZIP", undefined],
    ["gzip;q=x", undefined],
    ["gzip ; q=0.5 , deflate", "deflate"],
    ["identity;q=0, deflate;q=0.2", "deflate"],
    ["deflate;q=0.5,gzip;q=0.5", "deflate"],
    ["br", undefined],
    ["", undefined],
  ])("the response to Accept-Encoding: %s has %s", async (accepted, encoding) => {
    const response = await post(`/v2/models/${jpeg}/infer`, photo, {
      ...raw,
      "accept-encoding": accepted,
    });
    expect(response.status).toBe(200);
    expect(response.headers["content-encoding"]).toBe(encoding);
  });

  test.each<[keyof typeof delayed, readonly number[], "waits" | "starts at once"]>([
    ["delayed", [1], "waits"],
    ["delayed", [1, 2], "waits"],
    ["delayed", [4], "starts at once"],
    ["delayed", [2, 1, 1], "starts at once"],
    ["delayed_2", [1], "waits"],
    ["delayed_2", [2], "starts at once"],
    ["delayed_2", [1, 1], "starts at once"],
    ["delayed_2", [3], "starts at once"],
  ])("%s: a batch of requests with %j images %s", async (name, requests, expected) => {
    const send = (items: number) =>
      infer({
        ...image(name, "FP32", [items, 3, 224, 224]),
        raw_input_contents: [Buffer.alloc(items * 4 * count)],
      });
    const started = performance.now();
    await Promise.all(requests.map(send));
    const waited = performance.now() - started >= delayMs;
    expect(waited ? "waits" : "starts at once").toBe(expected);
  });

  test("a model with max_batch_size 0 accepts its fixed batch", async () => {
    const message = { ...rawFp32, model_name: fixedBatch };
    expect((await infer(message)).outputs[0]?.shape).toEqual([1, 512]);
    const [bytes] = rawFp32.raw_input_contents!;
    const two = {
      ...image(fixedBatch, "FP32", [2, 3, 224, 224]),
      raw_input_contents: [Buffer.concat([bytes!, bytes!])],
    };
    expect(await failure(two)).toMatchObject({ code: status.INVALID_ARGUMENT });
  });

  test.each([
    ["with the parameter", { triton_enable_empty_final_response: { bool_param: true } }],
    ["without the parameter", {}],
  ])("every response of a stream is final %s", async (_, parameters) => {
    const { path, requestSerialize, responseDeserialize } = inferenceService.ModelStreamInfer!;
    const stream = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
    const responses: { infer_response: ModelInferResponse; error_message: string }[] = [];
    stream.on("data", (response) => responses.push(response));
    const ended = new Promise<void>((resolve, reject) => {
      stream.on("end", resolve).on("error", reject);
    });
    stream.write({ ...rawFp32, parameters, id: "one" });
    stream.write({ ...rawFp32, parameters, id: "two" });
    stream.end();
    await ended;
    expect(responses.map(({ error_message }) => error_message)).toEqual(["", ""]);
    const final = responses.map(({ infer_response }) => infer_response.parameters);
    const parameter: InferParameter = final[0]!.triton_final_response!;
    expect(parameter.bool_param).toBe(true);
    expect(final.map((own) => Object.keys(own!))).toEqual(
      final.map(() => ["triton_final_response"]),
    );
  });

  const index = async () => {
    const { bytes } = await post("/v2/repository/index", '{"ready":true}');
    return (JSON.parse(bytes.toString()) as { name: string }[]).map(({ name }) => name);
  };
  const unload = (name: string, parameters?: object) =>
    post(`/v2/repository/models/${name}/unload`, JSON.stringify({ parameters }));
  const load = async (name: string) => {
    const { status: code } = await post(`/v2/repository/models/${name}/load`, "{}");
    expect(code).toBe(200);
  };
  const without = async (names: readonly string[]) => {
    for (let waited = 0; waited < 50; waited++) {
      const found = await index();
      if (names.every((name) => !found.includes(name))) return found;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return await index();
  };

  describe("unload", () => {
    test("of an ensemble keeps its members", async () => {
      expect(await index()).toEqual(expect.arrayContaining([jpeg, preprocess, u8, fp32]));
      expect((await unload(jpeg)).status).toBe(200);
      expect(await without([jpeg])).toEqual(expect.arrayContaining([preprocess, u8, fp32]));
      await load(jpeg);
    });

    test("with unload_dependents also unloads the members that were loaded for it", async () => {
      expect((await unload(jpeg, { unload_dependents: true })).status).toBe(200);
      expect(await without([jpeg, preprocess, u8])).toEqual([
        ...Object.keys(delayed),
        fixedBatch,
        fp32,
      ]);
      await load(jpeg);
    });

    test("with unload_dependents over gRPC", async () => {
      const { path, requestSerialize, responseDeserialize } = methodOf("RepositoryModelUnload");
      const message = { model_name: jpeg, parameters: { unload_dependents: { bool_param: true } } };
      await new Promise<void>((resolve, reject) => {
        client.makeUnaryRequest(path, requestSerialize, responseDeserialize, message, (error) =>
          error === null ? resolve() : reject(error),
        );
      });
      expect(await without([jpeg, preprocess, u8])).toEqual([
        ...Object.keys(delayed),
        fixedBatch,
        fp32,
      ]);
    });
  });
}
