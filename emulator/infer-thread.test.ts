import { afterAll, describe, expect, test } from "vitest";
import { maxJsonBytes } from "../client/triton/parse-json.ts";
import { WireError } from "../client/triton/wire.ts";
import { InferThread } from "./infer-thread.ts";

const thread = new InferThread();
afterAll(() => thread.close());

const pixels = Array.from({ length: 150_000 }, (_, index) => index / 7);
const tensor = (data: unknown) =>
  Buffer.from(
    JSON.stringify({ inputs: [{ name: "x", datatype: "FP32", shape: [1, 150_000], data }] }),
  );

describe("a large body", () => {
  test("returns its tensors", async () => {
    const request = await thread.parse(tensor([pixels]), undefined, "m");
    const [{ bytes }] = request.inputs as [(typeof request.inputs)[0]];
    expect(Buffer.from(Float32Array.from(pixels).buffer).equals(bytes)).toBe(true);
  });

  test("returns the binary tensors after it, which share its memory", async () => {
    const input = { name: "x", datatype: "UINT8", shape: [2], parameters: { binary_data_size: 2 } };
    const inputs = [input, { ...input, name: "y" }];
    const head = JSON.stringify({ id: "i".repeat(70_000), inputs });
    const body = Buffer.from(`${head}abcd`);
    const request = await thread.parse(body, String(head.length), "m");
    expect(request.inputs.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(["ab", "cd"]);
  });

  test("rejects invalid tensors with the same messages as the event loop", async () => {
    await expect(thread.parse(tensor([...pixels, "7"]), undefined, "m")).rejects.toEqual(
      new WireError(
        "Unable to parse 'data' of 'x': its number of elements does not match shape [1,150000]",
      ),
    );
  });
});

const tooLarge = `JSON must be at most ${maxJsonBytes} bytes, got ${maxJsonBytes + 1}: send tensors as binary data`;
const tooMany = "JSON must have at most 100000 arrays, objects and members, got more";

test.each([
  ["more than 16 MiB", Buffer.alloc(maxJsonBytes + 1, " "), tooLarge],
  ["deeply nested arrays", Buffer.from("[".repeat(1_000_000)), tooMany],
  ["a million inputs", Buffer.from(`{"inputs":[${"{},".repeat(1_000_000)}{}]}`), tooMany],
])("fails on %s", async (_, body, message) => {
  const infer = thread.parse(Buffer.from(body), undefined, "m");
  await expect(infer).rejects.toMatchObject({ name: "WireError", code: "too_large", message });
});
