import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Tensor } from "../../contract/tensor.ts";
import { fromWire, type InferRequest, WireError } from "./wire.ts";
import {
  decodeInferRequest,
  decodeInferResponse,
  encodeInferRequest,
  encodeInferResponse,
  type HttpBody,
  headerLengthField,
} from "./wire-http.ts";

const image: Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [1, 3],
  data: new Float32Array([0.5, -1, 2]),
};
const label: Tensor = {
  name: "label",
  dataType: "BYTES",
  shape: [1],
  data: [new TextEncoder().encode("cat")],
};
const flags: Tensor = {
  name: "flags",
  dataType: "UINT8",
  shape: [2],
  data: new Uint8Array([1, 0]),
};

function whole(body: HttpBody): [Buffer, string | undefined] {
  return [Buffer.concat(body.chunks), body.headers[headerLengthField]];
}

function decoded(body: HttpBody): InferRequest {
  return decodeInferRequest(...whole(body), "m");
}

/** Request body: JSON, then binary tensors. */
function request(json: unknown, binary: Uint8Array = new Uint8Array()): [Buffer, string] {
  const head = Buffer.from(typeof json === "string" ? json : JSON.stringify(json));
  return [Buffer.concat([head, binary]), String(head.byteLength)];
}

const input = {
  name: "image",
  datatype: "FP32",
  shape: [1, 2],
  parameters: { binary_data_size: 8 },
};

describe.each(["binary", "json"] as const)("a request in %s", (encoding) => {
  test("is decoded unchanged", () => {
    const tensors = [image, label, flags];
    const body = encodeInferRequest(tensors, { encoding, requestId: "7", outputs: ["embedding"] });
    const { id, inputs, outputs } = decoded(body);
    expect(id).toBe("7");
    expect(inputs.map(fromWire)).toEqual(
      tensors.map((tensor) =>
        tensor.dataType === "BYTES"
          ? { ...tensor, data: [expect.objectContaining({ byteLength: 3 })] }
          : { ...tensor, data: expect.anything() },
      ),
    );
    expect(Array.from(fromWire(inputs[0]!).data as Float32Array)).toEqual([0.5, -1, 2]);
    expect(outputs).toEqual([{ name: "embedding", binary: encoding === "binary" }]);
  });

  test("declares its length", () => {
    const body = encodeInferRequest([image], { encoding });
    expect(body.headers["content-length"]).toBe(String(Buffer.concat(body.chunks).byteLength));
    expect(body.headers["content-type"]).toBe(
      encoding === "binary" ? "application/octet-stream" : "application/json",
    );
  });

  test("requests all outputs in the same encoding if it names none", () => {
    expect(decoded(encodeInferRequest([image], { encoding }))).toMatchObject({
      outputs: [],
      binaryOutputs: encoding === "binary",
    });
  });
});

test("binary tensors start at a multiple of 8 and are not copied", () => {
  for (const requestId of ["", "a", "ab", "abc", "abcd"]) {
    const body = encodeInferRequest([image], { encoding: "binary", requestId });
    expect(Number(body.headers[headerLengthField]) % 8).toBe(0);
    expect(body.chunks[1]?.buffer).toBe(image.data instanceof Float32Array && image.data.buffer);
  }
});

test("a request may mix binary and JSON inputs, and binary and JSON outputs", () => {
  const [body, length] = request(
    {
      inputs: [
        { name: "a", datatype: "UINT8", shape: [2], data: [1, 2] },
        { name: "b", datatype: "UINT8", shape: [3], parameters: { binary_data_size: 3 } },
      ],
      outputs: [{ name: "x" }, { name: "y", parameters: { binary_data: true } }],
    },
    new Uint8Array([7, 8, 9]),
  );
  const decodedRequest = decodeInferRequest(body, length, "m") as InferRequest;
  expect(decodedRequest.inputs.map(({ bytes }) => Array.from(bytes))).toEqual([
    [1, 2],
    [7, 8, 9],
  ]);
  expect(decodedRequest.outputs).toEqual([
    { name: "x", binary: false },
    { name: "y", binary: true },
  ]);
});

test("without the header the whole body is JSON", () => {
  const body = Buffer.from('{"inputs":[]}');
  expect(decodeInferRequest(body, undefined, "m")).toMatchObject({ inputs: [] });
});

test.each(
  Object.entries<[Buffer, string]>({
    "inference header size should be in range (0, 2), got: 3": [Buffer.from("{}"), "3"],
    "inference header size should be in range (0, 2), got: -1": [Buffer.from("{}"), "-1"],
    "Unable to parse Inference-Header-Content-Length, got: 2x": [Buffer.from("{}"), "2x"],
    "unexpected size for input 'image', expecting 5 additional bytes for model 'm'": request(
      { inputs: [input] },
      new Uint8Array(3),
    ),
    "unexpected additional input data for model 'm'": request(
      { inputs: [input] },
      new Uint8Array(9),
    ),
    "Unable to parse 'binary_data_size' of 'image', got: -8": request({
      inputs: [{ ...input, parameters: { binary_data_size: -8 } }],
    }),
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size'":
      request({ inputs: [{ ...input, data: [1, 2] }] }, new Uint8Array(8)),
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But no field is set":
      request({ inputs: [{ ...input, parameters: {} }] }),
    "invalid datatype 'FP31' for 'image'": request({ inputs: [{ ...input, datatype: "FP31" }] }),
    "Unable to parse 'inputs[0].shape[0]': must be a non-negative integer": request({
      inputs: [{ ...input, shape: [-1, 2] }],
    }),
    "Unable to parse 'inputs': Invalid input: expected array, received undefined": request({
      id: "1",
    }),
    "Unable to parse 'id': Invalid input: expected string, received number": request({
      id: 1,
      inputs: [],
    }),
    "Unable to parse 'binary_data_output': must be true or false, got 1": request({
      inputs: [],
      parameters: { binary_data_output: 1 },
    }),
  }),
)("a request fails: %s", (message, [body, length]) => {
  expect(() => decodeInferRequest(body, length, "m")).toThrow(new WireError(message));
});

test("rejects invalid JSON and an empty body", () => {
  expect(() => decodeInferRequest(Buffer.from("{"), undefined, "m")).toThrow(
    /^failed to parse JSON: /,
  );
  expect(() => decodeInferRequest(Buffer.alloc(0), undefined, "m")).toThrow(
    /^failed to parse JSON: /,
  );
});

test("rejects Triton features that are not implemented as unsupported", () => {
  const rejection = (json: unknown) => {
    try {
      decodeInferRequest(...request(json), "m");
    } catch (error) {
      return error;
    }
    return undefined;
  };
  const outputs = [{ name: "embedding", parameters: { classification: 3 } }];
  expect(rejection({ inputs: [], outputs })).toEqual(
    new WireError(
      "classification is not supported: request 'embedding' itself and rank it in the client",
      "unsupported",
    ),
  );
  const shared = {
    ...input,
    parameters: { shared_memory_region: "r", shared_memory_byte_size: 8 },
  };
  expect(rejection({ inputs: [shared] })).toEqual(
    new WireError("shared memory is not supported: send 'image' in the message", "unsupported"),
  );
});

test.each([true, false])("a response is decoded unchanged, binary: %s", (binary) => {
  const head = { id: "7", modelName: "m", modelVersion: "1" };
  const body = encodeInferResponse(head, [{ tensor: image, binary }]);
  const { id, outputs } = decodeInferResponse(...whole(body));
  expect(id).toBe("7");
  expect(outputs).toEqual([image]);
});

test("decodes any bytes to a request or a WireError", () => {
  const tensorJson = fc.record(
    {
      name: fc.string(),
      datatype: fc.constantFrom("FP32", "BYTES", "UINT8", "nonsense"),
      shape: fc.array(fc.integer({ min: -1, max: 4 }), { maxLength: 3 }),
      parameters: fc.record({ binary_data_size: fc.integer({ min: -1, max: 20 }) }),
      data: fc.jsonValue(),
    },
    { requiredKeys: [] },
  );
  const json = fc.record(
    { inputs: fc.array(tensorJson), id: fc.jsonValue() },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(
      json,
      fc.uint8Array({ maxLength: 40 }),
      fc.integer({ min: -2, max: 2 }),
      (value, tail, lie) => {
        const [body, length] = request(value, tail);
        try {
          const result = decodeInferRequest(body, String(Number(length) + lie), "m");
          for (const tensor of result.inputs) fromWire(tensor);
        } catch (error) {
          expect(error).toBeInstanceOf(WireError);
        }
      },
    ),
    { numRuns: 1000 },
  );
});
