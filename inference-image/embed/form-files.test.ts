import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { contentOfForm } from "./form-files.ts";

const filesOfForm = async (body: Buffer, type: string) => (await contentOfForm(body, type)).images;

/** Form in the encoding of fetch. */
async function written(data: FormData): Promise<{ body: Buffer; type: string }> {
  const request = new Request("http://localhost", { method: "POST", body: data });
  const type = request.headers.get("content-type") ?? "";
  return { body: Buffer.from(await request.arrayBuffer()), type };
}

async function messageOf(body: string, type = "multipart/form-data; boundary=b"): Promise<string> {
  return filesOfForm(Buffer.from(body), type).then(
    () => "was taken",
    (error: Error) => error.message,
  );
}

const head = 'content-disposition: form-data; name="a"; filename="a.jpg"';

describe("the files of a form", () => {
  test("are parsed with any bytes", async () => {
    const content = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.constantFrom("\r\n", "\r\n--", "--", "\r\n\r\n", "").map((text) => Buffer.from(text)),
    );
    const part = fc.record({
      content,
      name: fc.stringMatching(/^[a-z]{0,8}$/),
      isFile: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(part, { maxLength: 10 }), async (parts) => {
        const data = new FormData();
        for (const { content, name, isFile } of parts) {
          if (isFile) data.append("images", new File([new Uint8Array(content)], name));
          else data.append("note", name);
        }
        const { body, type } = await written(data);
        const files = await filesOfForm(body, type);
        const expected = parts
          .filter(({ isFile, name, content }) => isFile && (name !== "" || content.length > 0))
          .map(({ content }) => [...content]);
        expect(files.map((file) => [...file])).toEqual(expected);
      }),
      { numRuns: 500 },
    );
  });

  test("omit the empty file of an input without a file, but no empty file with a name", async () => {
    const data = new FormData();
    data.append("other", new File([], ""));
    data.append("image", new File(["x"], ""));
    data.append("empty", new File([], "empty.jpg"));
    const { body, type } = await written(data);
    expect((await filesOfForm(body, type)).map(String)).toEqual(["x", ""]);
  });

  test("come with the field model", async () => {
    const data = new FormData();
    data.append("note", "x".repeat(10_000));
    data.append("model", "photos");
    data.append("image", new File(["x"], "a.jpg"));
    const form = await written(data);
    expect((await contentOfForm(form.body, form.type)).model).toBe("photos");
    data.append("model", "others");
    const repeated = await written(data);
    await expect(contentOfForm(repeated.body, repeated.type)).rejects.toThrow(
      "model must not be repeated",
    );
  });

  test("are views of the body, not copies", async () => {
    const data = new FormData();
    data.append("a", new File([Buffer.alloc(100)], "a.jpg"));
    const { body, type } = await written(data);
    expect((await filesOfForm(body, type))[0]?.buffer).toBe(body.buffer);
  });

  test("are parsed after a preamble, with a quoted boundary", async () => {
    const body = `hello\r\n--b c\r\n${head}\r\n\r\nx\r\n--b c--\r\nbye`;
    const files = await filesOfForm(Buffer.from(body), 'multipart/form-data; boundary="b c"');
    expect(files.map(String)).toEqual(["x"]);
  });

  const large = "y".repeat(200_000);
  test.each(
    Object.entries({
      "a preamble": `${large}\r\n--b\r\n${head}\r\n\r\nx\r\n--b--\r\n`,
      "a part without a disposition": `--b\r\nx: y\r\n\r\n${large}\r\n--b\r\n${head}\r\n\r\nx\r\n--b--`,
      "a last part without a disposition": `--b\r\n${head}\r\n\r\nx\r\n--b\r\nx: y\r\n\r\n${large}\r\n--b--`,
      "a field": `--b\r\ncontent-disposition: form-data; name="n"\r\n\r\n${large}\r\n--b\r\n${head}\r\n\r\nx\r\n--b--`,
    }),
  )("are parsed beside %s of any size", async (_part, body) => {
    const files = await filesOfForm(Buffer.from(body), "multipart/form-data; boundary=b");
    expect(files.map(String)).toEqual(["x"]);
  });

  test.each([
    [
      "without a boundary",
      "x",
      "multipart/form-data",
      "its content type must have a boundary of at most 200 characters",
    ],
    ["of another format", "hello", undefined, "it ends before its last boundary"],
    [
      "truncated in the headers of a part",
      `--b\r\n${head}`,
      undefined,
      "it ends before its last boundary",
    ],
    [
      "truncated in a file",
      `--b\r\n${head}\r\n\r\nx`,
      undefined,
      "it ends before its last boundary",
    ],
    [
      "truncated in the last boundary",
      `--b\r\n${head}\r\n\r\nx\r\n--b\r`,
      undefined,
      "it ends before its last boundary",
    ],
  ])("fails on a form %s", async (_, body, type, why) => {
    expect(await messageOf(body, type)).toBe(`the form is invalid: ${why}`);
  });

  test.each([
    [
      "quotes without an end in its headers",
      Array(16)
        .fill(`--b\r\n${head}; x="${'\\"'.repeat(8_000)}\r\n\r\nx\r\n`)
        .join(""),
      "was taken",
    ],
    ["folded header lines", `--b\r\n${head}${"\r\n x".repeat(300_000)}\r\n\r\nx\r\n`, "was taken"],
    ["headers without an end", `--b\r\n${"x: y\r\n".repeat(300_000)}`, "was taken"],
    [
      "parts",
      `--b\r\n${head}\r\n\r\nx\r\n`.repeat(100_000),
      "images must be 1 to 32, got more than 32",
    ],
    [
      "parts without headers",
      "--b\r\n\r\n\r\n".repeat(1_000_000),
      "the form has more than 16 fields",
    ],
    ["line breaks", `--b\r\n${head}\r\n\r\n${"\r".repeat(1_000_000)}\r\n`, "was taken"],
  ])("take linear time with many %s", async (_, parts, outcome) => {
    const startedAt = performance.now();
    expect(await messageOf(`${parts}--b--`)).toBe(outcome);
    expect(performance.now() - startedAt).toBeLessThan(500);
  });

  test("fails only with these errors for any bytes", async () => {
    const pieces = fc.constantFrom(
      "--b",
      "\r\n",
      "--",
      head,
      "\r\n\r\n",
      "x",
      ": ",
      '"',
      ";",
      "\n",
    );
    await fc.assert(
      fc.asyncProperty(fc.array(pieces, { maxLength: 20 }), async (texts) => {
        expect(await messageOf(texts.join(""))).toMatch(
          /^(was taken|the form .*|images must be .*)$/,
        );
      }),
      { numRuns: 2_000 },
    );
  });
});
