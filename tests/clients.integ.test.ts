import { execFile, spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../artefact/free-ports.ts";
import { startClipstack } from "../cli/test-programs.ts";
import { ciScript, pythonWithTritonClient } from "../client/triton/test-python.ts";
import { readPage } from "../docs/markdown.ts";
import { testRepository } from "../emulator/test-repository.ts";
import { startTritonEmulator } from "../emulator/triton-emulator.ts";
import { trainedModel } from "../model-tools/fetch/test-trained-model.ts";

/**
 * The samples of the guide for clients, and OpenAI's, LangChain's, LiteLLM's and LlamaIndex's clients, unmodified, against `clipstack serve` with random
 * weights of the default model and trained weights of EfficientNet-Lite0.
 */

const run = promisify(execFile);
const root = fileURLToPath(new URL("../", import.meta.url));
const samples = join(root, "model-tools/samples");
const trained = await trainedModel();
const triton = await pythonWithTritonClient();
const { path: venv, missing } = await ciScript("python-venv", "openai");
const { blocks } = readPage(await readFile(join(root, "docs/guides/clients.md"), "utf8"));
const apiKey = "a-key-for-the-openai-clients";
/** Key with one request per four seconds: without a pause, every request but the first is answered with 429. */
const slowKey = "a-key-with-a-low-rate";

let server: ReturnType<typeof startClipstack>;
let url: string;
/** Working directory of the samples: `photo.jpg`, `photos/*.jpg`, and the packages of this project. */
let folder: string;
let photos: readonly string[];

beforeAll(async () => {
  const [port] = await freePorts(1);
  url = `http://127.0.0.1:${port}`;
  const trainedModels =
    trained.missing === "" ? ["--model", `${trained.spec.name}=${trained.path}`] : [];
  folder = await mkdtemp(join(tmpdir(), "clipstack-client-samples-"));
  const keys = join(folder, "keys.json");
  const slow = { name: "slow", key: slowKey, requestsPerSecond: 0.25, burst: 1 };
  await writeFile(keys, JSON.stringify([{ name: "openai", key: apiKey }, slow]));
  server = startClipstack(
    ["serve", "--model", "tiny", ...trainedModels, "--http-port", String(port)],
    { API_KEYS_FILE: keys, LOG_LEVEL: "warn" },
  );
  await ready();
  await mkdir(join(folder, "photos"));
  await symlink(join(root, "node_modules"), join(folder, "node_modules"));
  photos = (await readdir(samples)).filter((file) => file.endsWith(".jpg")).sort();
  for (const photo of photos) await copyFile(join(samples, photo), join(folder, "photos", photo));
  await copyFile(join(samples, "sunset.jpg"), join(folder, "photo.jpg"));
});
afterAll(async () => {
  server?.child.kill("SIGTERM");
  await server?.done;
});

/** Waits until the server can embed. */
async function ready(): Promise<void> {
  const exited = server.done.then(({ stderr }) => {
    throw new Error(`clipstack serve has exited: ${stderr}`);
  });
  const isReady = async () => (await fetch(`${url}/readyz`).catch(() => undefined))?.ok === true;
  while (!(await Promise.race([isReady(), exited]))) await sleep(100);
}

/** Lines that a program prints. */
async function linesOf(program: string, ...args: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await run(program, args, {
    cwd: folder,
    timeout: 120_000,
    env: {
      ...process.env,
      OPENAI_BASE_URL: `${url}/v1`,
      OPENAI_API_KEY: apiKey,
      INFERENCE_SERVICE_URL: url,
      INFERENCE_API_KEY: slowKey,
      // the package is not built
      TSX_TSCONFIG_PATH: join(root, "tsconfig.json"),
    },
  });
  return stdout.trim().split("\n");
}

/** Code of the only block of the page in a language that contains `text`. */
function sampleOf(language: string, text: string): string {
  const found = blocks.filter(
    (block) => block.language === language && block.lines.join("\n").includes(text),
  );
  expect(found).toHaveLength(1);
  return `${found[0]!.lines.join("\n")}\n`;
}

/** Lines of a program whose first request is answered with 429, which the server counts. */
async function retried(program: string, ...args: readonly string[]): Promise<readonly string[]> {
  const send = () => embed("/embed/text", { texts: ["a photo"] }, slowKey);
  while (
    await send().then(
      () => true,
      () => false,
    )
  )
    await sleep(1);
  const before = await rejectedRequests();
  const lines = await linesOf(program, ...args);
  expect(await rejectedRequests()).toBeGreaterThan(before);
  return lines;
}

/** Number of 429 responses to the slow key. */
async function rejectedRequests(): Promise<number> {
  const text = await (await fetch(`${url}/metrics`, authorized(apiKey))).text();
  const counts = text.matchAll(/^clipstack_embed_requests_total\{(.*)\} (\d+)$/gm);
  return [...counts]
    .filter(([, labels = ""]) => labels.includes('"429"') && labels.includes('"slow"'))
    .reduce((sum, [, , count]) => sum + Number(count), 0);
}

test("the samples for curl embed a photo and a text", async () => {
  const lines = sampleOf("sh", "--retry").trim().split("\n");
  expect(lines).toHaveLength(2);
  for (const line of lines) {
    await retried("sh", "-c", line);
    const [, file = ""] = /--output (\S+)/.exec(line) ?? [];
    const { embeddings } = JSON.parse(await readFile(join(folder, file), "utf8"));
    expect(embeddings[0]).toHaveLength(512);
  }
});

test("the sample for our client embeds all photos", async () => {
  await writeFile(join(folder, "client.mjs"), sampleOf("js", "@clipstack/client"));
  const lines = await retried(process.execPath, "--import", "tsx", "client.mjs");
  expect(lines).toEqual([`${photos.length} 512`]);
});

const lacks = (program: string) => spawnSync(program, ["-version"]).error !== undefined;

test.skipIf(lacks("go"))("the sample for Go embeds all photos", async () => {
  await writeFile(join(folder, "embed.go"), sampleOf("go", "package main"));
  await run("go", ["build", "-o", "embed", "embed.go"], {
    cwd: folder,
    env: { ...process.env, CGO_ENABLED: "0" },
  });
  expect(await retried(join(folder, "embed"))).toEqual([`${photos.length} 512`]);
});

test.skipIf(lacks("javac"))("the sample for Java embeds a photo", async () => {
  await writeFile(join(folder, "Embed.java"), sampleOf("java", "class Embed"));
  await run("javac", ["Embed.java"], { cwd: folder });
  expect(await retried("java", "Embed")).toEqual(["512"]);
});

describe.skipIf(triton.missing !== "")(
  `tritonclient and requests${triton.missing === "" ? "" : ` (not here: ${triton.missing})`}`,
  () => {
    test("the sample for requests embeds all photos", async () => {
      await writeFile(join(folder, "requests_sample.py"), sampleOf("python", "import requests"));
      const lines = await retried(triton.path, "requests_sample.py");
      expect(lines).toEqual([`(${photos.length}, 512)`]);
    });

    test("the sample for tritonclient returns the embeddings of the embed server", async () => {
      await writeFile(join(folder, "triton_sample.py"), sampleOf("python", "tritonclient"));
      const repository = await testRepository();
      const emulator = await startTritonEmulator(repository.flags(), { log: () => {} });
      process.env.TRITON_GRPC_URL = `127.0.0.1:${emulator.ports.grpc}`;
      const [line = ""] = await linesOf(triton.path, "triton_sample.py").finally(async () => {
        delete process.env.TRITON_GRPC_URL;
        await emulator.stop();
        await repository.remove();
      });
      const images = photos.map((photo) => readFile(join(samples, photo), "base64"));
      const expected = await embed("/embed/base64", { images: await Promise.all(images) });
      const vectors = JSON.parse(line) as readonly (readonly number[])[];
      expect(vectors).toHaveLength(photos.length);
      for (const [at, vector] of vectors.entries()) {
        const cosine = vector.reduce((sum, value, i) => sum + value * expected[at]![i]!, 0);
        expect(cosine, photos[at]).toBeCloseTo(1, 5);
      }
    });
  },
);

test("the sample of openai for Node prints the width", async () => {
  await writeFile(join(folder, "sample.mjs"), sampleOf("js", '"openai"'));
  expect(await linesOf(process.execPath, "sample.mjs")).toEqual(["512"]);
});

describe.skipIf(missing !== "")(
  `Python packages from PyPI${missing === "" ? "" : ` (not here: ${missing})`}`,
  () => {
    const python = join(venv, "bin", "python");

    test("OpenAI's client: texts, images, base64 and errors", async () => {
      const facts = await linesOf(python, join(root, "tests/openai-client.py"), "photo.jpg");
      console.log(facts.join("\n"));
      expect(facts).toHaveLength(14);
    });

    test("LiteLLM, LlamaIndex, LangChain, and the requests of Jina, infinity, NVIDIA NIM and vLLM", async () => {
      const facts = await linesOf(python, join(root, "tests/other-clients.py"), "photo.jpg");
      console.log(facts.join("\n"));
      expect(facts).toHaveLength(15);
    });

    test("the sample for OpenAI's client prints the width", async () => {
      await writeFile(join(folder, "sample.py"), sampleOf("python", "import OpenAI\n"));
      expect(await linesOf(python, "sample.py")).toEqual(["512"]);
    });

    test("the sample for LangChain finds the photos nearest to a text", async () => {
      const sample = sampleOf("python", "a sunset at the beach");
      const [, text] = /similarity_search\("([^"]+)"/.exec(sample)!;
      await writeFile(join(folder, "langchain.py"), sample);
      expect(await linesOf(python, "langchain.py")).toEqual(await nearestPhotos(text!, 3));
    });

    test.skipIf(trained.missing !== "")(
      `the sample for LangChain finds the near-duplicate of a photo with trained weights${trained.missing}`,
      async () => {
        await writeFile(join(folder, "similar.py"), sampleOf("python", trained.spec.name));
        const lines = await linesOf(python, "similar.py");
        console.log(lines.join("\n"));
        const nearest = new Map(
          lines.map((line) => line.split(" ", 2) as [name: string, other: string]),
        );
        expect([...nearest.keys()]).toEqual(photos);
        const pairs = await nearDuplicates();
        expect(pairs.length).toBeGreaterThan(3);
        for (const [copy, original] of pairs)
          expect([copy, nearest.get(copy)]).toEqual([copy, original]);
      },
    );
  },
);

/** Photos that are a copy of another one, and that one. */
async function nearDuplicates(): Promise<readonly (readonly [copy: string, original: string])[]> {
  const { images } = JSON.parse(await readFile(join(samples, "samples.json"), "utf8")) as {
    images: readonly { readonly file: string; readonly nearDuplicateOf?: string }[];
  };
  return images.flatMap(({ file, nearDuplicateOf: original }) =>
    original === undefined ? [] : [[file, original] as const],
  );
}

/** Names of the photos with the highest cosine to a text, from the vectors of the embed API. */
async function nearestPhotos(text: string, count: number): Promise<readonly string[]> {
  const [query] = await embed("/embed/text", { texts: [text] });
  const scores: { readonly photo: string; readonly score: number }[] = [];
  for (const photo of photos) {
    const file = await readFile(join(samples, photo), "base64");
    const [vector] = await embed("/embed/base64", { images: [file] });
    const score = vector!.reduce((sum, value, index) => sum + value * query![index]!, 0);
    scores.push({ photo, score });
  }
  scores.sort((first, second) => second.score - first.score);
  return scores.slice(0, count).map(({ photo }) => photo);
}

function authorized(key: string) {
  return { headers: { authorization: `Bearer ${key}`, "content-type": "application/json" } };
}

async function embed(
  path: string,
  body: unknown,
  key = apiKey,
): Promise<readonly (readonly number[])[]> {
  const init = { method: "POST", body: JSON.stringify(body), ...authorized(key) };
  const response = await fetch(`${url}${path}`, init);
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  const { embeddings } = (await response.json()) as { embeddings: readonly number[][] };
  return embeddings;
}
