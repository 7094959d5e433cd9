import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type DataType, dataTypes, elementCount, type Tensor } from "../../contract/tensor.ts";
import {
  bytesOfElements,
  fromWire,
  jsonOfBytes,
  toWire,
  WireError,
  type WireTensor,
} from "./wire.ts";

const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 });

function fp32(shape: readonly number[], data: Float32Array): Tensor {
  return { name: "x", dataType: "FP32", shape, data };
}

/** Bytes at any offset of their buffer, like the parts of a message. */
function shifted(bytes: Uint8Array, offset: number): Uint8Array {
  const memory = new Uint8Array(offset + bytes.byteLength);
  memory.set(bytes, offset);
  return memory.subarray(offset);
}

describe("bytes", () => {
  test("float32 tensors with any alignment are decoded unchanged", () => {
    fc.assert(
      fc.property(shapes, fc.integer({ min: 0, max: 7 }), (shape, offset) => {
        const data = Float32Array.from({ length: elementCount(shape) }, (_, i) => i * 1.1 - 3);
        const wire = toWire(fp32(shape, data));
        expect(fromWire({ ...wire, bytes: shifted(wire.bytes, offset) })).toEqual(
          fp32(shape, data),
        );
      }),
    );
  });

  test("aligned float32 values are a view of the bytes, not a copy", () => {
    const wire = toWire(fp32([2], new Float32Array([1, 2])));
    const { data } = fromWire(wire);
    wire.bytes.set([0, 0, 0, 0]);
    expect(Array.from(data as Float32Array)).toEqual([0, 2]);
  });

  test("integers with any alignment are decoded unchanged", () => {
    fc.assert(
      fc.property(
        fc.array(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })),
        fc.array(fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 })),
        fc.integer({ min: 0, max: 15 }),
        (long, short, offset) => {
          const head = { name: "x", shape: [long.length] };
          const tensors: readonly Tensor[] = [
            { ...head, dataType: "INT64", data: BigInt64Array.from(long) },
            { name: "y", shape: [short.length], dataType: "INT32", data: Int32Array.from(short) },
          ];
          for (const tensor of tensors) {
            const wire = toWire(tensor);
            expect(fromWire({ ...wire, bytes: shifted(wire.bytes, offset) })).toEqual(tensor);
            const buffer = Buffer.from(shifted(wire.bytes, offset).buffer, offset);
            expect(fromWire({ ...wire, bytes: buffer })).toEqual(tensor);
          }
        },
      ),
    );
  });

  test("BYTES are decoded unchanged", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 20 })), (data) => {
        const tensor: Tensor = { name: "x", dataType: "BYTES", shape: [data.length], data };
        const back = fromWire(toWire(tensor));
        expect((back.data as Uint8Array[]).map((item) => Array.from(item))).toEqual(
          data.map((item) => Array.from(item)),
        );
      }),
    );
  });

  test("each BYTES element is preceded by its length, little endian", () => {
    const data = [new TextEncoder().encode("ab"), new Uint8Array()];
    const { bytes } = toWire({ name: "x", dataType: "BYTES", shape: [2], data });
    expect(Array.from(bytes)).toEqual([2, 0, 0, 0, 97, 98, 0, 0, 0, 0]);
  });

  test.each(
    Object.entries<WireTensor>({
      "byte size mismatch for 'x': FP32 [2] has 8 bytes, got 7": {
        name: "x",
        dataType: "FP32",
        shape: [2],
        bytes: new Uint8Array(7),
      },
      "invalid shape for 'x': shape [-1,2] contains one or more invalid dimensions": {
        name: "x",
        dataType: "FP32",
        shape: [-1, 2],
        bytes: new Uint8Array(8),
      },
      "invalid shape for 'x': shape [0.5] contains one or more invalid dimensions": {
        name: "x",
        dataType: "FP32",
        shape: [0.5],
        bytes: new Uint8Array(2),
      },
      "invalid shape for 'x': shape [1099511627776,1099511627776] has more elements than 9007199254740991":
        { name: "x", dataType: "UINT8", shape: [2 ** 40, 2 ** 40], bytes: new Uint8Array(0) },
      "incomplete string length indicator for 'x', expecting 4 bytes but only 2 bytes available": {
        name: "x",
        dataType: "BYTES",
        shape: [1],
        bytes: new Uint8Array([1, 0]),
      },
      "incomplete string data for 'x', expecting string of length 4294967295 but only 1 bytes available":
        {
          name: "x",
          dataType: "BYTES",
          shape: [1],
          bytes: new Uint8Array([255, 255, 255, 255, 1]),
        },
      "unexpected number of string elements 2 for 'x', expecting 1": {
        name: "x",
        dataType: "BYTES",
        shape: [1],
        bytes: new Uint8Array(8),
      },
      "expected 3 string elements for 'x', got 2": {
        name: "x",
        dataType: "BYTES",
        shape: [3],
        bytes: new Uint8Array(8),
      },
    }),
  )("fails: %s", (message, wire) => {
    expect(() => fromWire(wire)).toThrow(new WireError(message));
  });
});

describe("JSON", () => {
  test("UINT8 is decoded unchanged", () => {
    const bytes = bytesOfElements("x", "UINT8", [2], [0, 255]);
    expect(jsonOfBytes({ name: "x", dataType: "UINT8", shape: [2], bytes })).toBe("[0,255]");
  });

  test("integers are decoded unchanged", () => {
    const values = [0, 49_407, -1];
    for (const dataType of ["INT32", "INT64"] as const) {
      const bytes = bytesOfElements("x", dataType, [3], values);
      expect(jsonOfBytes({ name: "x", dataType, shape: [3], bytes })).toBe("[0,49407,-1]");
    }
  });

  test("every float32 is decoded exactly", () => {
    fc.assert(
      fc.property(fc.float32Array({ noNaN: true, noDefaultInfinity: true }), (data) => {
        const text = jsonOfBytes(toWire(fp32([data.length], data)));
        const bytes = bytesOfElements("x", "FP32", [data.length], JSON.parse(text));
        // -0 is 0 in JSON
        const back = new Float32Array(bytes.buffer);
        expect(back.every((value, index) => value === data[index])).toBe(true);
      }),
    );
  });

  test("BYTES are decoded unchanged", () => {
    const text = bytesOfElements("x", "BYTES", [2], ["größe", ""]);
    expect(jsonOfBytes({ name: "x", dataType: "BYTES", shape: [2], bytes: text })).toBe(
      '["größe",""]',
    );
  });

  test("nested arrays are read row by row", () => {
    const bytes = bytesOfElements(
      "x",
      "UINT8",
      [2, 2],
      [
        [1, 2],
        [3, 4],
      ],
    );
    expect(Array.from(bytes)).toEqual([1, 2, 3, 4]);
  });

  test.each<[string, DataType, readonly number[], unknown, string]>([
    ["no array", "FP32", [1], "1", "Unable to parse 'data' of 'x': not an array"],
    [
      "too few elements",
      "FP32",
      [3],
      [1, 2],
      "Unable to parse 'data' of 'x': its number of elements does not match shape [3]",
    ],
    [
      "a shape that claims half a terabyte",
      "FP32",
      [2 ** 37],
      [1],
      "Unable to parse 'data' of 'x': its number of elements does not match shape [137438953472]",
    ],
    [
      "null",
      "FP32",
      [1],
      [null],
      "Unable to parse 'data' of 'x': element 0 must be a number, got null",
    ],
    [
      "a number out of range",
      "UINT8",
      [2],
      [1, 256],
      "Unable to parse 'data' of 'x': element 1 must be UINT8, got 256",
    ],
    [
      "a fraction",
      "UINT8",
      [1],
      [0.5],
      "Unable to parse 'data' of 'x': element 0 must be UINT8, got 0.5",
    ],
    [
      "a token id that is not whole",
      "INT64",
      [1],
      [0.5],
      "Unable to parse 'data' of 'x': element 0 must be INT64, at most 2⁵³ - 1 in JSON, got 0.5",
    ],
    [
      "a token id above INT32",
      "INT32",
      [1],
      [2 ** 31],
      "Unable to parse 'data' of 'x': element 0 must be INT32, got 2147483648",
    ],
    [
      "a number as BYTES",
      "BYTES",
      [1],
      [1],
      "Unable to parse 'data' of 'x': element 0 must be a string, got 1",
    ],
  ])("fails on %s", (_, dataType, shape, data, message) => {
    expect(() => bytesOfElements("x", dataType, shape, data)).toThrow(new WireError(message));
  });

  test("fails on deeply nested arrays", () => {
    let data: unknown = [1];
    for (let depth = 0; depth < 10_000; depth += 1) data = [data];
    expect(() => bytesOfElements("x", "FP32", [1], data)).toThrow(
      "Unable to parse 'data' of 'x': element 0 must be a number, got an array",
    );
  });

  test("fails to encode values that JSON cannot represent", () => {
    const rejection = (what: string) =>
      new WireError(`'x' has ${what}, which JSON cannot represent: use the binary data format`);
    expect(() => jsonOfBytes(toWire(fp32([1], new Float32Array([Number.NaN]))))).toThrow(
      rejection("a value that is not finite"),
    );
    const broken: Tensor = {
      name: "x",
      dataType: "BYTES",
      shape: [1],
      data: [new Uint8Array([255])],
    };
    expect(() => jsonOfBytes(toWire(broken))).toThrow(rejection("an element that is not UTF-8"));
  });
});

test("decodes any bytes to a tensor or a WireError", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...dataTypes),
      fc.array(fc.oneof(fc.integer({ min: -2, max: 5 }), fc.double()), { maxLength: 4 }),
      fc.uint8Array({ maxLength: 64 }),
      (dataType, shape, bytes) => {
        try {
          const tensor = fromWire({ name: "x", dataType, shape, bytes });
          expect(tensor.shape).toEqual(shape);
        } catch (error) {
          expect(error).toBeInstanceOf(WireError);
        }
      },
    ),
    { numRuns: 1000 },
  );
});
