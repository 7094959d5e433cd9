import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { PGlite } from "@electric-sql/pglite";
import { vector } from "@electric-sql/pglite-pgvector";
import { PGLiteSocketServer } from "@electric-sql/pglite-socket";
import { chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { plannedJob, tinyWorker } from "../../bulk/test-job.ts";
import { runBulkWorker } from "../../bulk/work/worker.ts";
import {
  type InferenceClient,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import {
  type RunningEmbedServer,
  startEmbedServer,
} from "../../inference-image/server/embed-server.ts";
import { axe, axeViolations, chromiumPath } from "../../inference-image/server/test-browser.ts";
import { ensureTinyModel, generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { picture } from "../photo-dedupe/test-photos.ts";
import { cosine } from "./query-client.ts";
import { buildSearchApp } from "./search-server.ts";
import { readTable } from "./table.ts";
import { openIndex, openPostgres, type VectorIndex } from "./vector-index.ts";

/** A table of a real bulk job, searched with a usearch index and with pgvector (Postgres in this process, over its protocol), and an embed server. */

const program = fileURLToPath(new URL("clipstack-search.mjs", import.meta.url));
const run = (...args: readonly string[]) =>
  new Promise<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>(
    (resolve) => {
      execFile(process.execPath, [program, ...args], (error, stdout, stderr) =>
        resolve({ code: error?.code ?? 0, stdout, stderr }),
      );
    },
  );

let folder: string;
let job: string;
let server: RunningEmbedServer;
let client: InferenceClient;
let database: PGlite;
let socket: PGLiteSocketServer;
let postgres: string;
const photo = (name: string) => join(folder, "photos", name);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "search-"));
  job = join(folder, "job");
  await mkdir(join(folder, "photos"));
  for (let i = 0; i < 30; i++)
    await picture(i)
      .jpeg()
      .toFile(photo(`${i}.jpg`));
  // planted: the same picture, smaller and recompressed; and a copy
  await picture(7, 480, 320).jpeg({ quality: 60 }).toFile(photo("7-large.jpg"));
  await copyFile(photo("3.jpg"), photo("3-copy.jpg"));
  await plannedJob(join(folder, "photos"), job);
  await runBulkWorker(await tinyWorker(job));
  const MODEL_REPOSITORY = join(folder, "models");
  for (const tower of ["image", "text"] as const) {
    const name = `openclip_vit_b32${tower === "text" ? "_text" : ""}`;
    const version = join(MODEL_REPOSITORY, name, "1");
    await mkdir(version, { recursive: true });
    await copyFile(await ensureTinyModel(defaultModel, tower), join(version, "model.onnx"));
  }
  const MODELS = JSON.stringify([{ name: defaultModel.name, modalities: ["image", "text"] }]);
  const variables = { HOST: "127.0.0.1", LOG_LEVEL: "silent", MODEL_REPOSITORY, MODELS };
  server = await startEmbedServer({ ...serverEnv.parse(variables), PORT: 0 });
  await server.loaded;
  const serviceUrl = `http://127.0.0.1:${server.port}`;
  client = await openInferenceClient({ mode: "remote", serviceUrl });
  database = await PGlite.create({ extensions: { vector } });
  socket = new PGLiteSocketServer({ db: database, host: "127.0.0.1", port: 0 });
  await socket.start();
  postgres = `postgres://postgres@${socket.getServerConn()}/postgres`;
});

afterAll(async () => {
  await client?.close();
  await server?.stop();
  await socket?.stop();
  await database?.close();
  await rm(folder, { recursive: true, force: true });
});

test("near-duplicates prints the planted pairs", async () => {
  const { code, stdout } = await run("near-duplicates", job, "--threshold", "0.9");
  expect(code).toBe(0);
  const [copies, ...others] = stdout.split("\n").map((line) => line.split("\t"));
  expect(copies).toEqual(["1.0000", photo("3-copy.jpg"), photo("3.jpg")]);
  expect(others.map((pair) => pair.slice(1))).toContainEqual([
    photo("7-large.jpg"),
    photo("7.jpg"),
  ]);
});

/** The closest images by comparing all. */
async function exact(query: Float32Array, count: number): Promise<readonly string[]> {
  const { uris, data, width } = await readTable(job);
  return uris
    .map((uri, i) => ({ uri, cosine: cosine(query, data.subarray(i * width, (i + 1) * width)) }))
    .sort((a, b) => b.cosine - a.cosine)
    .slice(0, count)
    .map(({ uri }) => uri);
}

for (const kind of ["usearch", "pgvector"] as const) {
  test(`${kind}: an index of the table finds images by image and by text`, async () => {
    const options = kind === "pgvector" ? ["--postgres", postgres] : [];
    const built = await run("build", job, ...options);
    expect(built).toMatchObject({ code: 0, stderr: "" });
    expect(built.stdout).toContain(`32 embeddings of ${defaultModel.name} indexed`);
    const index = kind === "pgvector" ? await openPostgres(postgres) : await openIndex(job);
    const app = buildSearchApp(index, client);
    try {
      const headers = { host: "127.0.0.1", origin: "http://127.0.0.1" };
      const body = await picture(7).jpeg().toBuffer();
      const byImage = await app.inject({
        ...{ method: "POST", url: "/api/search?limit=2", body },
        headers: { ...headers, "content-type": "image/jpeg" },
      });
      const uris = byImage.json().hits.map(({ uri }: { readonly uri: string }) => uri);
      expect(uris).toEqual([photo("7.jpg"), photo("7-large.jpg")]);
      expect(byImage.json().hits[0].cosine).toBeCloseTo(1, 2);

      const text = "a red cat";
      const [query] = await client.embedText([text]);
      const url = `/api/search?limit=5&text=${encodeURIComponent(text)}`;
      const byText = (await app.inject({ url, headers })).json();
      const found = byText.hits.map(({ uri }: { readonly uri: string }) => uri);
      // half precision may exchange neighbours
      expect((await exact(query!, 7)).filter((uri) => found.includes(uri))).toHaveLength(5);

      const shown = (uri: string) =>
        app.inject({ url: `/image?uri=${encodeURIComponent(uri)}`, headers });
      expect((await shown(photo("7.jpg"))).headers["content-type"]).toBe("image/jpeg");
      expect((await shown("/etc/passwd")).statusCode).toBe(404);
      expect((await app.inject({ url, headers: { host: "evil.example" } })).statusCode).toBe(403);
      expect((await app.inject({ url: "/api/search", headers })).statusCode).toBe(400);
    } finally {
      await app.close();
      await index.close();
    }
  });
}

test.skipIf(chromiumPath === undefined)("the page searches by text and by image", async () => {
  const index: VectorIndex = await openIndex(job);
  const app = buildSearchApp(index, client);
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  const browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox"] });
  try {
    const page: Page = await browser.newPage({ viewport: { width: 390, height: 844 } });
    await page.goto(url);
    await page.getByLabel("Text").fill("a red cat");
    await page.keyboard.press("Enter");
    await page.getByText("24 images").waitFor();
    await page.getByLabel("or image").setInputFiles(photo("3.jpg"));
    await page.locator("#hits li:first-child", { hasText: "3" }).waitFor();
    await expect.poll(() => page.locator("#hits img").count()).toBe(24);
    await page.evaluate(axe);
    expect(await page.evaluate(axeViolations)).toEqual([]);
    const wide = "document.documentElement.scrollWidth > innerWidth";
    expect(await page.evaluate(wide)).toBe(false);
    expect(await page.getByLabel("Text").inputValue()).toBe("");
    await page.getByLabel("Text").fill(" ");
    await page.keyboard.press("Enter");
    await page.getByText("text: must have 1 to 1,000 characters").waitFor();
    expect(await page.locator("#hits li").count()).toBe(0);
  } finally {
    await browser.close();
    app.server.closeAllConnections();
    await app.close();
  }
});

test("wrong usage and other weights end with one line", async () => {
  const otherWeights = join(folder, "other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: otherWeights });
  const text = ["--text-model-file", await ensureTinyModel(defaultModel, "text")];
  const local = ["--mode", "local", ...text, "--port", "0"];
  for (const [args, code, line] of [
    [["build", folder], 2, `'${folder}' must contain the table of a bulk job, got no rows`],
    [["serve", folder], 2, `'${folder}' has no index: run 'clipstack-search build' first`],
    [
      ["build", job, "--postgres", "postgres://127.0.0.1:9/x"],
      1,
      "--postgres: cannot connect: connect ECONNREFUSED 127.0.0.1:9",
    ],
    [
      ["serve", job, ...local, "--model-file", otherWeights],
      1,
      `'${job}', ${defaultModel.name}: the model of the service or file has other weights than that of the table`,
    ],
  ] as const) {
    const result = await run(...args);
    expect([result.code, result.stderr]).toEqual([code, `clipstack-search: ${line}\n`]);
  }
  const port = ["--port", "70000", "--model-file", await tinyModel()];
  expect((await run("serve", job, ...port)).code).toBe(2);
});
