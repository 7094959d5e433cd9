import { describe, expect, test } from "vitest";
import { picture } from "../../inference/preprocess/test-images.ts";
import { parseEmbeddingsBody } from "./embeddings-body.ts";

const parsed = (body: object) => parseEmbeddingsBody(Buffer.from(JSON.stringify(body)));
const itemsOf = (body: object) => parsed(body).items;
const text = (value: string) => ({ kind: "text", text: value });
const image = (file: Buffer) => ({ kind: "image", file });

const photo = await picture("jpeg", { width: 40, height: 30 });
const [png, webp] = (await Promise.all(
  (["png", "webp"] as const).map(async (format) =>
    (await picture(format, { width: 8, height: 8 })).toString("base64"),
  ),
)) as [string, string];
const base64 = photo.toString("base64");
const dataUri = `data:image/jpeg;base64,${base64}`;
const url = "https://images.example.com/cat.jpg";

describe("fields that other clients send", () => {
  test("optional fields may be null", () => {
    const nulls = [
      "encoding_format",
      "dimensions",
      "user",
      "model",
      "modality",
      "truncate",
      "messages",
      "none",
    ];
    const body = { input: ["a dog"], ...Object.fromEntries(nulls.map((name) => [name, null])) };
    expect(parsed(body)).toEqual({
      items: [text("a dog")],
      model: undefined,
      format: "float",
      dimensions: undefined,
      truncate: true,
      ignored: [],
    });
  });

  test("unknown fields are named", () => {
    expect(parsed({ input: "a", task: "retrieval", priority: 1 }).ignored).toEqual([
      "task",
      "priority",
    ]);
    expect(parsed({ input: "a", input_type: "query", user: "u" }).ignored).toEqual([]);
  });

  test("embedding_type is another name of encoding_format", () => {
    expect(parsed({ input: "a", embedding_type: "base64" }).format).toBe("base64");
    expect(parsed({ input: "a", embedding_type: "base64", encoding_format: "float" }).format).toBe(
      "float",
    );
  });

  test.each<[value: unknown, truncate: boolean]>([
    ["END", true],
    [true, true],
    ["NONE", false],
    [false, false],
  ])("truncate: %s", (value, truncate) => {
    expect(parsed({ input: "a", truncate: value }).truncate).toBe(truncate);
  });
});

describe("inputs", () => {
  test.each<[client: string, input: unknown, item: object]>([
    ["Jina: text", { text: "a lake" }, text("a lake")],
    ["Jina: base64", { image: base64 }, image(photo)],
    ["Jina: URL", { image: url }, { kind: "url", url }],
    ["vLLM: text", { type: "text", text: "a lake" }, text("a lake")],
    [
      "vLLM: data URI",
      { type: "image_url", image_url: { url: dataUri, detail: "auto" } },
      image(photo),
    ],
    ["vLLM: URL", { type: "image_url", image_url: { url } }, { kind: "url", url }],
    ["a part with the URL itself", { type: "image_url", image_url: url }, { kind: "url", url }],
    ["NVIDIA NIM: data URI", dataUri, image(photo)],
  ])("of %s", (_client, input, item) => {
    expect(itemsOf({ input })).toEqual([item]);
    expect(itemsOf({ input: ["a dog", input] })).toEqual([text("a dog"), item]);
  });

  test("infinity's modality makes strings images", () => {
    expect(itemsOf({ input: [url, dataUri, base64], modality: "image" })).toEqual([
      { kind: "url", url },
      image(photo),
      image(photo),
    ]);
  });

  test("one modality per input, as of NVIDIA NIM", () => {
    expect(itemsOf({ input: [url, "a lake", url], modality: ["image", "text", "text"] })).toEqual([
      { kind: "url", url },
      text("a lake"),
      text(url),
    ]);
  });
});

describe("messages", () => {
  const part = { type: "image_url", image_url: { url: dataUri } };
  const chat = (...content: readonly object[]) => ({ messages: [{ role: "user", content }] });

  test("one image, also beside the empty text of vllm bench", () => {
    expect(itemsOf(chat(part))).toEqual([image(photo)]);
    expect(itemsOf(chat({ type: "text", text: "" }, part))).toEqual([image(photo)]);
  });

  test("one text", () => {
    expect(itemsOf(chat({ type: "text", text: "a lake" }))).toEqual([text("a lake")]);
    expect(itemsOf({ messages: [{ role: "user", content: "a lake" }] })).toEqual([text("a lake")]);
  });

  test("fails on a text with an image, because the model has one embedding for each", () => {
    expect(() => itemsOf(chat({ type: "text", text: "a lake" }, part))).toThrow(
      "messages must contain one text or one image, got 2: the model has one embedding for each",
    );
    expect(() => itemsOf(chat({ type: "text", text: "" }))).toThrow("got 0");
  });
});

describe("a string that is an image is not embedded as a text", () => {
  const hint = 'send {"image": "…"} for the image, or {"text": "…"} for the text';
  const bytes = (hex: string) => Buffer.from(hex.padEnd(100, "0"), "hex").toString("base64");
  test.each<[kind: string, input: string, form: string]>([
    ["URL", url, "a URL"],
    ["URL without extension", "http://10.0.0.7:9000/photo?id=1", "a URL"],
    ["address of an object store", "s3://bucket/cat.png", "a URL"],
    ["URL between spaces", ` ${url}\n`, "a URL"],
    ["JPEG", base64, "an image in base64"],
    ["JPEG in base64 of URLs", photo.toString("base64url"), "an image in base64"],
    ["JPEG in lines", base64.replace(/.{76}/g, "$&\n"), "an image in base64"],
    ["JPEG with a part of a data URI", `image/jpeg;base64,${base64}`, "an image in base64"],
    ["PNG", png, "an image in base64"],
    ["WebP", webp, "an image in base64"],
    ["GIF", bytes("474946383961"), "an image in base64"],
    ["AVIF", bytes("0000001c6674797061766966"), "an image in base64"],
    ["TIFF", bytes("49492a00"), "an image in base64"],
    ["data: URI in percent encoding", "data:image/svg+xml,%3Csvg%3E", "a data: URI without base64"],
  ])("%s", (_kind, input, form) => {
    expect(() => itemsOf({ input: ["a dog", input] })).toThrow(`input 1 is ${form}: ${hint}`);
    expect(itemsOf({ input: { text: input } })).toEqual([text(input)]);
  });

  test.each([
    "a dog",
    "see https://images.example.com/cat.jpg for a cat",
    "https:// is the prefix of a URL",
    "data:image is a media type",
    "/9j/",
    "R0lGODlhAQAB",
    "antidisestablishmentarianismus",
    "寺の写真",
    "data: 1, 2, 3",
  ])("%s is a text", (input) => {
    expect(itemsOf({ input })).toEqual([text(input)]);
  });
});
