import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { ClientError } from "../../client/embedding/client-error.ts";
import {
  type InferenceClient,
  type InferenceClientOptions,
  openInferenceClient,
} from "../../client/embedding/inference-client.ts";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import {
  type RunningEmbedServer,
  startEmbedServer,
} from "../../inference-image/server/embed-server.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel, tinyRepository } from "../../model-tools/generate/test-model.ts";
import { copySide, type EmbedOptions, embed } from "./embed.ts";
import { cosine, findModel } from "./index-model.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { scan } from "./scan.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";

let modelPath: string;
let modelRepository: string;
let otherModelPath: string;
let server: RunningEmbedServer;
let repository: TestRepository;
let triton: RunningTritonEmulator;

beforeAll(async () => {
  [modelPath, modelRepository] = await Promise.all([tinyModel(), tinyRepository()]);
  otherModelPath = join(temporaryFolder(), "other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: otherModelPath });
  server = await startServer(0);
  repository = await fullTestRepository();
  triton = await startTritonEmulator(repository.flags(), { log: () => {} });
});

afterAll(async () => {
  await server?.stop();
  await triton?.stop();
  await repository?.remove();
});

async function startServer(port: number): Promise<RunningEmbedServer> {
  const started = await startEmbedServer({
    ...serverEnv.parse({
      HOST: "127.0.0.1",
      MODEL_REPOSITORY: modelRepository,
      LOG_LEVEL: "silent",
    }),
    PORT: port,
  });
  await started.loaded;
  return started;
}

let folder: string;
let file: string;
let database: PhotoDatabase;

beforeEach(() => {
  folder = join(temporaryFolder(), "photos");
  mkdirSync(folder);
  file = join(folder, "../photos.db");
  database = openPhotoDatabase(file, "create");
});

const cleanups: (() => Promise<unknown> | undefined)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  database.close();
});

async function open(options: Partial<InferenceClientOptions> = {}): Promise<InferenceClient> {
  const client = await openInferenceClient({
    backend: "embed",
    mode: "local",
    modelPath,
    ...options,
  });
  cleanups.push(() => client.close());
  return client;
}

/** Adds photos 0 to `count` - 1 to the database. */
async function photos(count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    await picture(i)
      .jpeg()
      .toFile(join(folder, `${String(i).padStart(3, "0")}.jpg`));
  }
  await scan(database, { folder, progress: silent });
}

const notes: string[] = [];
const embedAll = (client: InferenceClient, options: Partial<EmbedOptions> = {}) => {
  notes.length = 0;
  return embed(database, {
    client,
    model: "example",
    location: "this machine",
    waitSeconds: 60,
    replace: false,
    progress: { ...silent, note: (text) => notes.push(text.replace(`${folder}/`, "")) },
    ...options,
  });
};

const vectors = (model = "example") =>
  database
    .all<{ readonly vector: ArrayBuffer }>(
      `SELECT e.vector FROM embeddings e JOIN photos p ON p.md5 = e.md5 JOIN models m ON m.id = e.model
       WHERE m.name = ? ORDER BY p.path`,
      model,
    )
    .map(({ vector }) => new Float32Array(vector));

test("embeds every photo once", async () => {
  await photos(70);
  const client = await open();
  expect(await embedAll(client)).toMatchObject({ embedded: 70, failed: 0, remaining: 0 });
  expect(vectors()).toHaveLength(70);
  expect(await embedAll(client)).toMatchObject({ embedded: 0, remaining: 0 });
});

test("sends photos with the same bytes once", async () => {
  for (const name of ["a", "b", "c"])
    await picture(1)
      .jpeg()
      .toFile(join(folder, `${name}.jpg`));
  await scan(database, { folder, progress: silent });
  expect(await embedAll(await open())).toMatchObject({ embedded: 1, remaining: 0 });
  expect(vectors()).toHaveLength(3);
});

test("computes the same embeddings on this machine, with the embed server and with Triton", async () => {
  await photos(4);
  await embedAll(await open());
  const local = vectors();
  const serviceUrl = `http://127.0.0.1:${triton.ports.http}`;
  for (const options of [
    { backend: "embed", serviceUrl: `http://127.0.0.1:${server.port}` },
    { backend: "triton", serviceUrl },
    { backend: "triton_grpc", serviceUrl, tritonGrpcUrl: `127.0.0.1:${triton.ports.grpc}` },
  ] as const) {
    database.run("DELETE FROM embeddings");
    // accepted, because it is the same model
    await embedAll(await open({ mode: "remote", ...options }));
    for (const [i, vector] of vectors().entries()) {
      expect(cosine(vector, local[i]!), options.backend).toBeGreaterThan(0.999);
    }
  }
});

test("reports that the weights of the project's own models are random", async () => {
  await photos(1);
  expect((await embedAll(await open())).weights).toBe("random");
  expect(findModel(database)).toMatchObject({ name: "example", weights: "random" });
});

test("fails if the photos were embedded with other weights of the model", async () => {
  await photos(3);
  await embedAll(await open());
  await expect(embedAll(await open({ modelPath: otherModelPath }))).rejects.toThrow(
    `'${file}' has embeddings by another 'example' than that of this machine: use that one, or embed all again with --replace`,
  );
  expect(vectors()).toHaveLength(3);
});

test("fails if the model changes during the run, and keeps earlier embeddings", async () => {
  await photos(70);
  const client = await open();
  const other = await open({ modelPath: otherModelPath });
  let calls = 0;
  const redeployed: InferenceClient = {
    ...client,
    embed: (images) => (++calls > 2 ? other : client).embed(images),
  };
  await expect(embedAll(redeployed, { replace: true })).rejects.toThrow("by another 'example'");
  expect(vectors()).toHaveLength(62);
});

test("replaces the embeddings of other weights with --replace", async () => {
  await photos(3);
  await embedAll(await open());
  const before = vectors();
  const other = await open({ modelPath: otherModelPath });
  expect(await embedAll(other, { replace: true })).toMatchObject({ embedded: 3 });
  expect(cosine(vectors()[0]!, before[0]!)).toBeLessThan(0.5);
});

test("keeps the embeddings of each model", async () => {
  await photos(3);
  await embedAll(await open());
  const before = vectors();
  const other = await open({ modelPath: otherModelPath });
  expect(await embedAll(other, { model: "other" })).toMatchObject({ embedded: 3, remaining: 0 });
  expect(vectors("example")).toEqual(before);
  expect(vectors("other")).toHaveLength(3);
  expect(() => findModel(database)).toThrow("--model is required: must be one of example, other");
});

test("accepts a model of any width", async () => {
  await photos(1);
  const client: InferenceClient = {
    embed: async (images) => images.map(() => new Float32Array([0.6, 0.8, 0])),
    embedText: async () => [],
    close: async () => {},
  };
  await embedAll(client, { model: "narrow" });
  expect(findModel(database)).toMatchObject({ width: 3 });
});

test("a copy is at least twice the input of every model of the catalogue", () => {
  for (const { name, towers } of modelCatalogue.values()) {
    const { width, height } = towers.image!.input.size;
    expect(copySide, name).toBeGreaterThanOrEqual(2 * Math.max(width, height));
  }
});

test("lists photos that have changed or disappeared since the scan and embeds the others", async () => {
  await photos(3);
  await picture(9).jpeg().toFile(join(folder, "000.jpg"));
  database.run("UPDATE photos SET path = path || 'x' WHERE path LIKE '%001.jpg'");
  expect(await embedAll(await open())).toMatchObject({ embedded: 1, failed: 2, remaining: 2 });
  expect(notes.sort()).toEqual([
    "000.jpg: has changed since the scan: scan again",
    "001.jpgx: no such file or directory",
  ]);
});

test("lists a photo that the service cannot read and embeds the others", async () => {
  await photos(40);
  const client = await open();
  const bad = readFileSync(join(folder, "035.jpg"));
  const rejecting: InferenceClient = {
    ...client,
    embed: async (images) => {
      const image = images.findIndex((image) => bad.equals(image));
      if (image >= 0) throw new ClientError("image", `image ${image} is odd`, { image });
      return client.embed(images);
    },
  };
  expect(await embedAll(rejecting)).toMatchObject({ embedded: 39, failed: 1, remaining: 1 });
  expect(notes).toEqual(["035.jpg: is odd"]);
});

test("sends a smaller copy of a large photo, with nearly the same embedding", async () => {
  const large = picture(3, 1600, 1200);
  await large.clone().png().toFile(join(folder, "large.png"));
  await large.clone().png({ compressionLevel: 0 }).toFile(join(folder, "larger.png"));
  await scan(database, { folder, progress: silent });
  const client = await open();
  const sent: number[] = [];
  await embedAll({
    ...client,
    embed: (images) => {
      sent.push(...images.map((image) => image.length));
      return client.embed(images);
    },
  });
  expect(Math.max(...sent)).toBeLessThan(512 * 1024);
  expect(cosine(vectors()[0]!, vectors()[1]!)).toBeGreaterThan(0.99);
});

test("retries while the service is unavailable", async () => {
  await photos(80);
  let own = await startServer(0);
  cleanups.push(() => own.stop());
  const port = own.port;
  const client = await open({ mode: "remote", serviceUrl: `http://127.0.0.1:${port}` });
  let calls = 0;
  const result = await embedAll({
    ...client,
    embed: async (images) => {
      if (++calls === 3) {
        await own.stop();
        setTimeout(async () => {
          own = await startServer(port);
        }, 100);
      }
      return client.embed(images);
    },
  });
  expect(result).toMatchObject({ embedded: 80, remaining: 0 });
  expect(notes).toEqual([
    `cannot reach http://127.0.0.1:${port}: connection refused: retrying for up to 60 s`,
  ]);
});

test("fails if the service stays unavailable, and keeps earlier embeddings", async () => {
  await photos(70);
  const client = await open();
  let calls = 0;
  const leaving: InferenceClient = {
    ...client,
    embed: async (images) => {
      if (++calls > 2) throw new ClientError("unavailable", "cannot reach it");
      return client.embed(images);
    },
  };
  await expect(embedAll(leaving, { waitSeconds: 0 })).rejects.toThrow(
    "cannot reach it: gave up after 0 s; run the same command again to resume",
  );
  expect(vectors()).toHaveLength(62);
});

test("resumes a killed run", async () => {
  await photos(100);
  database.close();
  const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
  const args = ["embed", "--db", file, "--mode", "remote"];
  const child = spawn(
    process.execPath,
    [program, ...args, "--url", `http://127.0.0.1:${server.port}`],
    { stdio: "ignore" },
  );
  const ended = once(child, "exit");
  database = openPhotoDatabase(file);
  await expect.poll(() => vectors(defaultModel.name).length, { interval: 5 }).toBeGreaterThan(0);
  child.kill("SIGKILL");
  await ended;
  const before = vectors(defaultModel.name).length;
  expect(before).toBeGreaterThan(0);
  expect(await embedAll(await open(), { model: defaultModel.name })).toMatchObject({
    embedded: 100 - before,
    remaining: 0,
  });
});

test("the command embeds with the model that --model names", async () => {
  await photos(2);
  database.close();
  const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
  const modelFile = await tinyModel(modelCatalogue.get("efficientnet-lite0"));
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, [
    program,
    ...["embed", "--db", file, "--mode", "local", "--model", "efficientnet-lite0"],
    ...["--model-file", modelFile],
  ]);
  database = openPhotoDatabase(file);
  expect(stdout).toContain("2 photos embedded");
  expect(findModel(database)).toMatchObject({ name: "efficientnet-lite0", width: 1280 });
});

test("the command falls back to this machine and reports it", async () => {
  await photos(2);
  database.close();
  const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
  const child = spawn(
    process.execPath,
    [program, "embed", "--db", file, "--url", "http://127.0.0.1:9", "--model-file", modelPath],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let text = "";
  child.stdout.on("data", (chunk) => (text += chunk));
  child.stderr.on("data", (chunk) => (text += chunk));
  const [code] = await once(child, "close");
  database = openPhotoDatabase(file);
  expect(text).toContain(
    "cannot reach http://127.0.0.1:9: connection refused: using the model on this machine",
  );
  expect(text).toContain("2 photos embedded");
  expect(text).toContain("the model has random weights");
  expect(code).toBe(0);
});
