import { expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { sampleTexts } from "../../target/reference/text-reference.ts";
import { unit } from "../../target/requests/infer.ts";
import { embedService } from "./test-embed-service.ts";
import { checkText } from "./text.ts";

const { name: model, embedding } = defaultModel;
const texts = sampleTexts.map((name, i) => ({
  name,
  text: name,
  ids: new Int32Array(),
  embedding: unit(Float32Array.from({ length: embedding.width }, (_, j) => Math.sin(i + j))),
}));
const reference = new Map([[model, texts]]);

/** Results of the check on a server that changes each embedding. */
async function check(change: (vector: Float32Array) => Float32Array): Promise<readonly string[]> {
  const service = await embedService(async (request, response) => {
    const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
    const embeddings = (body.texts as readonly string[]).map((text) => [
      ...change(texts.find(({ name }) => name === text)!.embedding),
    ]);
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ embeddings, model }));
  });
  const results = await checkText(service, reference, "simulation");
  return results.map(({ endpoint, outcome, message }) => `${endpoint} ${outcome}: ${message}`);
}

test("embeddings of texts equal to the reference pass", async () => {
  expect(await check((vector) => vector)).toEqual([
    expect.stringMatching(/^embed-http pass: 5 embeddings: cosine 1\.000000/),
  ]);
});

test("embeddings of other texts fail", async () => {
  const [result] = await check((vector) => unit(vector.map((value, i) => value + (i % 3))));
  expect(result).toMatch(/^embed-http fail: text 1, text 2, text 3, text 4, text 5 differ/);
});
