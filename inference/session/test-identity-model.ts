/** ONNX file for tests with one operator, `y = Identity(x)`, encoded manually to support any shape. */

/** Numbers of `TensorProto.DataType`. */
const onnxTypes = { FP32: 1, UINT8: 2, INT32: 6, INT64: 7, DOUBLE: 11 } as const;

/** @param shape - A name is a dynamic dimension. */
export function identityModel(
  type: keyof typeof onnxTypes,
  shape: readonly (number | string)[],
): Uint8Array {
  const dims = shape.map((dim) =>
    field(1, typeof dim === "number" ? number(1, dim) : text(2, dim)),
  );
  const tensorType = Buffer.concat([number(1, onnxTypes[type]), field(2, Buffer.concat(dims))]);
  const valueInfo = (name: string) =>
    Buffer.concat([text(1, name), field(2, field(1, tensorType))]);
  const node = Buffer.concat([text(1, "x"), text(2, "y"), text(4, "Identity")]);
  const graph = Buffer.concat([
    field(1, node),
    text(2, "identity"),
    field(11, valueInfo("x")),
    field(12, valueInfo("y")),
  ]);
  const irVersion = number(1, 8);
  const opset = field(8, Buffer.concat([text(1, ""), number(2, 16)]));
  return Buffer.concat([irVersion, field(7, graph), opset]);
}

function field(id: number, content: Uint8Array): Buffer {
  return Buffer.concat([varint(id * 8 + 2), varint(content.length), content]);
}

function text(id: number, content: string): Buffer {
  return field(id, Buffer.from(content));
}

function number(id: number, value: number): Buffer {
  return Buffer.concat([varint(id * 8), varint(value)]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}
