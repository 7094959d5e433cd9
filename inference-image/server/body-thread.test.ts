import { afterAll, describe, expect, test } from "vitest";
import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import { base64Parser } from "../embed/base64-images.ts";
import { openBodyThread } from "./app.ts";

const bodies = openBodyThread();
afterAll(() => bodies.close());
const parse = (body: Buffer) => bodies.parse(base64Parser, body);

const image = Buffer.alloc(300_000, 7);
const base64 = (...images: unknown[]) => Buffer.from(JSON.stringify({ images }));
describe("a large body", () => {
  test("returns its images, each with its own memory", async () => {
    const { images } = await parse(base64(image.toString("base64"), "QUJD"));
    expect(images.map((bytes) => bytes.byteLength)).toEqual([300_000, 3]);
    expect(image.equals(images[0]!)).toBe(true);
    expect(images.map(({ buffer }) => buffer.byteLength)).toEqual([300_000, 3]);
  });

  test("supports escaped slashes", async () => {
    const bytes = Buffer.alloc(300_000, 0xff);
    const body = base64(bytes.toString("base64")).toString().replaceAll("/", "\\/");
    const {
      images: [decoded],
    } = await parse(Buffer.from(body));
    expect(bytes.equals(decoded!)).toBe(true);
  });

  test("is parsed in the thread without blocking the event loop", async () => {
    const body = base64(Buffer.alloc(11_000_000, 7).toString("base64"));
    const images = parse(body);
    expect(body.byteLength).toBe(0);
    expect((await images).images).toHaveLength(1);
  });

  test.each([
    ["invalid base64", base64("QUJD".repeat(20_000), `${"QUJD".repeat(20_000)}QU?D`), 1, 80_002],
    ["invalid base64 at its start", base64("?UJD".repeat(20_000)), 0, 0],
  ])("fails on %s, naming image and position", async (_, body, image, position) => {
    const message = `image ${image} is not base64: unexpected "?" at position ${position}`;
    await expect(parse(body)).rejects.toMatchObject({
      name: "EmbedError",
      code: "bad_request",
      image,
      message,
    });
  });
});

const tooLarge = `JSON must be at most ${maxJsonBytes} bytes, got ${maxJsonBytes + 1}: send tensors as binary data`;
const tooMany = "JSON must have at most 100000 arrays, objects and members, got more";

test.each([
  ["more than 16 MiB", Buffer.alloc(maxJsonBytes + 1, " "), tooLarge],
  ["deeply nested arrays", Buffer.from("[".repeat(1_000_000)), tooMany],
  ["deeply nested objects", Buffer.from('{"a":'.repeat(100_000)), tooMany],
  ["a million inputs", Buffer.from(`{"inputs":[${"{},".repeat(1_000_000)}{}]}`), tooMany],
])("fails on %s", async (_, body, message) => {
  const code = "too_large";
  await expect(parse(Buffer.from(body))).rejects.toMatchObject({ code, message });
});

test("fails if the thread exits and starts another for later requests", async () => {
  // starting the thread takes longer than terminating it
  const thread = openBodyThread();
  const waiting = thread.parse(base64Parser, base64(image.toString("base64")));
  await Promise.all([expect(waiting).rejects.toThrow("the JSON thread exited"), thread.close()]);
  expect((await thread.parse(base64Parser, base64(image.toString("base64")))).images).toHaveLength(
    1,
  );
  await thread.close();
});
