import { afterAll, beforeAll, expect, test } from "vitest";
import { maxTextLength } from "../../contract/embed-api.ts";
import { embedRoutes } from "../../contract/embed-routes.ts";
import { textTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { testTexts } from "../../inference/text/test-texts.ts";
import { openTokenizer } from "../../inference/text/tokenizer.ts";
import { startOpenAiServer } from "../openai/test-openai-server.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { TokenizerThread } from "./tokenizer-thread.ts";

const { input } = textTowerOf(defaultModel);
const never = new AbortController().signal;
let server: RunningEmbedServer;
let tokenizer: TokenizerThread;

beforeAll(async () => {
  server = await startOpenAiServer([defaultModel]);
  tokenizer = await TokenizerThread.open(input);
});
afterAll(async () => {
  await server.stop();
  await tokenizer.close();
});

test("returns the ids of the tokenizer, also of texts that are tokenized one after the other", async () => {
  const texts = [...testTexts(300), "dog ".repeat(20_000), "", "cat ".repeat(20_000)];
  const expected = (await openTokenizer(input)).encode(texts);
  expect(await tokenizer.encode(texts, never)).toEqual(expected);
});

test("stops with the reason of the signal before the next text", async () => {
  const controller = new AbortController();
  const texts = Array.from({ length: 1_000 }, () => "😂".repeat(maxTextLength / 2));
  const result = tokenizer.encode(texts, controller.signal);
  setTimeout(() => controller.abort(new Error("the client disconnected")), 20);
  await expect(result).rejects.toThrow("the client disconnected");
});

test("fails if the vocabulary is invalid", async () => {
  await expect(TokenizerThread.open({ ...input, vocabularySize: 3 })).rejects.toThrow(
    "tokenizer clip-bpe: vocabularySize must be 49408, the size of CLIP's vocabulary, got 3",
  );
});

test("the largest body of texts delays neither its deadline nor other requests", async () => {
  const url = `http://127.0.0.1:${server.port}`;
  const texts = Array.from({ length: 500 }, () => "a".repeat(maxTextLength));
  const startedAt = performance.now();
  const response = fetch(`${url}${embedRoutes.embedText.path}?timeout=500000`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ texts }),
  });
  let slowest = 0;
  let ended = false;
  const done = response.finally(() => {
    ended = true;
  });
  while (!ended) {
    const sentAt = performance.now();
    await (await fetch(`${url}${embedRoutes.healthz.path}`)).text();
    slowest = Math.max(slowest, performance.now() - sentAt);
  }
  expect([200, 504]).toContain((await done).status);
  // on the event loop, these texts took more than 60 s
  expect(performance.now() - startedAt).toBeLessThan(15_000);
  expect(slowest).toBeLessThan(2_000);
});
