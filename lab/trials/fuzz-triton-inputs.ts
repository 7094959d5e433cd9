import fc, { type Arbitrary } from "fast-check";
import { joinElements } from "../../client/triton/wire.ts";
import {
  inferenceService,
  type ModelInferRequest,
  methodOf,
} from "../../client/triton/wire-grpc.ts";
import { headerLengthField } from "../../client/triton/wire-http.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { bytesPerElement, elementCount } from "../../contract/tensor.ts";
import { type TritonModel, tritonModel } from "../../contract/triton-models.ts";
import { modelNames, postOf, withMutatedBody } from "./fuzz-http-inputs.ts";
import type { GrpcInput, HttpInput } from "./fuzz-input.ts";
import { empty, json, mutated, mutatedJson, someBytes, text, weighted } from "./fuzz-mutations.ts";

const fp32 = tritonModel(defaultModel, "fp32");
const u8 = tritonModel(defaultModel, "u8");
const jpeg = tritonModel(defaultModel, "jpeg");

const inferPath = fc
  .constantFrom(...modelNames.slice(0, 6))
  .map((model) => `/v2/models/${model}/infer`);

export function inferJson(): Arbitrary<HttpInput> {
  const parameters = fc.constantFrom<Record<string, unknown>[]>(
    {},
    { timeout: 1 },
    { classification: 2 },
    { shared_memory_region: "r" },
    { binary_data: true, binary_data_size: 4 },
  );
  const request = fc.record({
    id: fc.string({ maxLength: 5 }),
    parameters,
    inputs: fc.array(
      fc.record({
        name: fc.constantFrom("image", "encoded", ""),
        datatype: fc.constantFrom("FP32", "UINT8", "BYTES", "INT64", ""),
        shape: fc.constantFrom([1, ...fp32.inputs[0].dims], [1, 1], [2, 1], [1], []),
        parameters,
        data: fc.array(fc.oneof(fc.integer(), fc.string({ maxLength: 5 })), { maxLength: 6 }),
      }),
      { maxLength: 3 },
    ),
    outputs: fc.array(fc.record({ name: fc.constant("embedding"), parameters }), { maxLength: 2 }),
  });
  return fc
    .tuple(inferPath, mutatedJson(request))
    .map(([path, body]) => postOf("triton-http", path, "application/json", body));
}

/** Infer requests with binary tensors, some of them with a wrong size, header length or shape. */
export function inferBinary(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const tensorOf = ({ name, inputs: [{ dataType, dims }] }: TritonModel, data: Uint8Array) => {
    return { model: name, datatype: dataType, shape: [1, ...dims], data };
  };
  const filled = (model: TritonModel, value: number) => {
    const [{ dataType, dims }] = model.inputs;
    const bytes = (bytesPerElement[dataType] ?? 0) * elementCount(dims);
    return tensorOf(model, Buffer.alloc(bytes, value));
  };
  const fill = fc.nat(255);
  const tensor = weighted(
    [6, image.map((it) => tensorOf(jpeg, joinElements([it])))],
    [2, fill.map((value) => filled(u8, value))],
    // includes NaN
    [1, fill.map((value) => filled(fp32, value))],
  );
  const deviation = weighted([4, fc.constant(0)], [1, fc.integer({ min: -20, max: 20 })]);
  const request = fc
    .record({
      tensor,
      sizeError: deviation,
      headError: deviation,
      shapeError: deviation,
      binary: fc.boolean(),
    })
    .map(
      ({ tensor: { model, datatype, shape, data }, sizeError, headError, shapeError, binary }) => {
        const head = json({
          inputs: [
            {
              name: "image",
              datatype,
              shape: [shape[0]! + shapeError, ...shape.slice(1)],
              parameters: { binary_data_size: data.length + sizeError },
            },
          ],
          outputs: [{ name: "embedding", parameters: { binary_data: binary } }],
        });
        const body = Buffer.concat([head, data]);
        const post = postOf("triton-http", `/v2/models/${model}/infer`, "", body);
        return { ...post, headers: { [headerLengthField]: String(head.length + headError) } };
      },
    );
  return weighted<HttpInput>([5, request], [1, withMutatedBody(request)]);
}

/** Loads and unloads of models, with valid and invalid configurations. */
export function control(): Arbitrary<HttpInput> {
  const config = fc.oneof(
    mutatedJson(fc.constant({ max_batch_size: 32 })).map(String),
    fc.string({ maxLength: 40 }),
  );
  const body = fc.oneof(
    fc.constant(empty),
    mutatedJson(config.map((value) => ({ parameters: { config: value } }))),
  );
  const path = fc.oneof(
    fc.constant("/v2/repository/index"),
    fc
      .tuple(fc.constantFrom(...modelNames), fc.constantFrom("load", "unload"))
      .map(([model, action]) => `/v2/repository/models/${model}/${action}`),
  );
  return fc.tuple(path, body).map(([url, content]) => postOf("triton-http", url, "", content));
}

export function grpcCalls(image: Arbitrary<Buffer>): Arbitrary<GrpcInput> {
  const inferMethod = methodOf("ModelInfer");
  const infer = fc
    .record({
      image,
      model: weighted([3, fc.constant(jpeg.name)], [2, fc.constantFrom(...modelNames)]),
      datatype: weighted([3, fc.constant("BYTES")], [1, fc.constantFrom("FP32", "INT64", "")]),
      shape: weighted<readonly number[]>(
        [3, fc.constant([1, 1])],
        [2, fc.constantFrom([2, 1], [0], [-1], [1, 3])],
      ),
      name: weighted([3, fc.constant("image")], [1, fc.constantFrom("x", "")]),
      raw: fc.boolean(),
    })
    .map(({ model, image, datatype, shape, raw, name }): ModelInferRequest => {
      const contents = raw ? {} : { contents: { bytes_contents: [image] } };
      return {
        model_name: model,
        inputs: [{ name, datatype, shape, ...contents }],
        raw_input_contents: raw ? [Buffer.from(joinElements([image]))] : [],
      };
    })
    .map((request) => inferMethod.requestSerialize(request));
  const callOf = (path: Arbitrary<string>, message: Arbitrary<Buffer>) =>
    fc.record({
      kind: fc.constant("grpc" as const),
      target: fc.constant("triton-grpc" as const),
      path,
      message,
      deadlineMs: weighted<number | undefined>(
        [5, fc.constant(undefined)],
        [1, fc.constantFrom(1, 10)],
      ),
    });
  const paths = [
    // a unary call cannot send a request stream
    ...Object.values(inferenceService)
      .filter((method) => !method.requestStream)
      .map(({ path }) => path),
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/None",
    "/a/b",
  ];
  // field 1 is the name of a model in most messages
  const named = fc
    .constantFrom(...modelNames)
    .map((name) => Buffer.concat([Buffer.from([0x0a, name.length & 0x7f]), text(name)]));
  return weighted(
    [3, callOf(fc.constant(inferMethod.path), fc.oneof(infer, mutated(infer)))],
    [2, callOf(fc.constantFrom(...paths), fc.oneof(someBytes(60), mutated(infer), named))],
  );
}
