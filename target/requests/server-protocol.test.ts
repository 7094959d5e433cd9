import { expect, test } from "vitest";
import { serverProtocols } from "./server-protocol.ts";

const openai = serverProtocols["openai-http"];
const row = (index: number) => ({ index, embedding: [index, 1] });

test("a row belongs to the input of its index, whatever the order of the list", () => {
  expect(openai.read({ data: [row(1), row(0)] })).toEqual([
    [0, 1],
    [1, 1],
  ]);
});

test("fails if an index is missing", () => {
  expect(() => openai.read({ data: [row(0), row(2)] })).toThrow(
    "data must have the indices 0 to 1, got no 1",
  );
});

test("images are sent as data URIs, with infinity's modality", () => {
  const image = { bytes: Buffer.from("abc"), contentType: "image/png" };
  expect(serverProtocols["infinity-http"].body([image], "clip")).toEqual({
    model: "clip",
    input: ["data:image/png;base64,YWJj"],
    encoding_format: "float",
    modality: "image",
  });
});

test("texts are sent to TEI as inputs, and its rows have no names", () => {
  const tei = serverProtocols["tei-http"];
  expect(tei.body([{ text: "a" }], "ignored")).toMatchObject({ inputs: ["a"], normalize: true });
  expect(tei.read([[1, 2]])).toEqual([[1, 2]]);
});

test.each([
  [undefined, "the response must be JSON"],
  [{ error: "overloaded" }, "the response must have data: "],
  [{ data: [{ index: 0, embedding: [null] }] }, "the response must have data.0.embedding.0: "],
])("a response %j without embeddings fails in one line", (body, message) => {
  expect(() => openai.read(body)).toThrow(new RegExp(`^${message}.*$`));
});
