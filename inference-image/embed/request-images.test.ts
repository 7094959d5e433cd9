import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { filesOfForm } from "./request-images.ts";

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
    const part = fc.record({ content, name: fc.string({ maxLength: 8 }), isFile: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.array(part, { maxLength: 10 }), async (parts) => {
        const data = new FormData();
        for (const { content, name, isFile } of parts) {
          if (isFile) data.append("images", new File([new Uint8Array(content)], name));
          else data.append("note", name);
        }
        const { body, type } = await written(data);
        const files = await filesOfForm(body, type);
        const expected = parts.filter(({ isFile }) => isFile).map(({ content }) => [...content]);
        expect(files.map((file) => [...file])).toEqual(expected);
      }),
      { numRuns: 500 },
    );
  });

  test("may contain the beginning of their boundary", async () => {
    const body = `--b\r\n${head}\r\n\r\nx\r\n--bb\r\n--b--`;
    const [file] = await filesOfForm(Buffer.from(body), "multipart/form-data; boundary=b");
    expect(Buffer.from(file!).toString()).toBe("x\r\n--bb");
  });

  test("are views of the body, not copies", async () => {
    const data = new FormData();
    data.append("a", new File([Buffer.alloc(100)], "a.jpg"));
    const { body, type } = await written(data);
    expect((await filesOfForm(body, type))[0]?.buffer).toBe(body.buffer);
  });

  test("are parsed after a preamble, with a quoted boundary", async () => {
    const body = `hello\r\n--b c \r\n${head}\r\n\r\nx\r\n--b c--\r\nbye`;
    const files = await filesOfForm(Buffer.from(body), 'multipart/form-data; boundary="b c"');
    expect(files.map(String)).toEqual(["x"]);
  });

  test.each([
    ["without a boundary", "x", "multipart/form-data", "its content type has no boundary"],
    ["of another format", "hello", undefined, "it ends before its last boundary"],
    [
      "truncated in the headers of a part",
      `--b\r\n${head}`,
      undefined,
      "the headers of a part have no end",
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
