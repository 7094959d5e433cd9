import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { ClientError } from "../../inference-image/src/client/client-error.ts";
import {
  type InferenceClient,
  type InferenceClientOptions,
  openInferenceClient,
} from "../../inference-image/src/client/inference-client.ts";
import { serverEnv } from "../../inference-image/src/contract/server-env.ts";
import { generateModel } from "../../inference-image/src/model/generate.ts";
import { tinyModel } from "../../inference-image/src/model/test-model.ts";
import {
  type RunningEmbedServer,
  startEmbedServer,
} from "../../inference-image/src/server/embed-server.ts";
import {
  type TestRepository,
  wholeRepository,
} from "../../inference-image/src/server/test-repository.ts";
import {
  type RunningTritonServer,
  startTritonServer,
} from "../../inference-image/src/server/triton-server.ts";
import { type EmbedOptions, embed } from "./embed.ts";
import { modelInUse } from "./model-identity.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { cosine } from "./probe.ts";
import { type Skipped, scan } from "./scan.ts";
import { picture, silent, temporaryFolder } from "./test-photos.ts";
import { vectorOf } from "./vectors.ts";

let modelPath: string;
let otherModelPath: string;
let server: RunningEmbedServer;
let repository: TestRepository;
let triton: RunningTritonServer;

beforeAll(async () => {
  modelPath = await tinyModel();
  otherModelPath = join(temporaryFolder(), "other.onnx");
  await generateModel({ profile: "tiny", seed: 2, file: otherModelPath });
  server = await startServer(0);
  repository = await wholeRepository();
  triton = await startTritonServer(repository.flags(), { log: () => {} });
});

afterAll(async () => {
  await server?.stop();
  await triton?.stop();
  await repository?.remove();
});

async function startServer(port: number): Promise<RunningEmbedServer> {
  const started = await startEmbedServer({
    ...serverEnv.parse({ HOST: "127.0.0.1", MODEL_PATH: modelPath, LOG_LEVEL: "silent" }),
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
  database = openPhotoDatabase(file, { missing: "create" });
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

/** Photos 0 to `count` - 1, in the database. */
async function photos(count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    await picture(i)
      .jpeg()
      .toFile(join(folder, `${String(i).padStart(3, "0")}.jpg`));
  }
  await scan(database, { folder, progress: silent });
}

const skipped: Skipped[] = [];
const embedAll = (client: InferenceClient, options: Partial<EmbedOptions> = {}) => {
  skipped.length = 0;
  return embed(database, {
    client,
    where: "this machine",
    otherModel: "refuse",
    firstRetryMs: 1,
    progress: silent,
    onSkipped: (photo) => skipped.push(photo),
    ...options,
  });
};

const vectors = () =>
  database
    .all<{ readonly vector: Uint8Array }>(
      "SELECT e.vector FROM embeddings e JOIN photos p ON p.id = e.photo_id ORDER BY p.path",
    )
    .map(({ vector }) => vectorOf(vector));

test("embeds every photo, in requests of 32 images", async () => {
  await photos(70);
  const client = await open();
  const sizes: number[] = [];
  const counting: InferenceClient = {
    ...client,
    embed: (images) => {
      sizes.push(images.length);
      return client.embed(images);
    },
  };
  expect(await embedAll(counting)).toMatchObject({ embedded: 70, failed: 0, remaining: 0 });
  expect(sizes.sort((a, b) => a - b)).toEqual([1, 9, 32, 32]);
  expect(vectors()).toHaveLength(70);
});

test("asks for nothing that it has", async () => {
  await photos(3);
  const client = await open();
  await embedAll(client);
  expect(await embedAll(client)).toMatchObject({ embedded: 0, remaining: 0 });
});

test("takes over the embedding of a photo with the same bytes", async () => {
  await photos(2);
  const client = await open();
  await embedAll(client);
  await picture(0).jpeg().toFile(join(folder, "copy of 000.jpg"));
  await scan(database, { folder, progress: silent });
  expect(await embedAll(client)).toMatchObject({ embedded: 0, copied: 1 });
  expect(vectors()[2]).toEqual(vectors()[0]);
});

test("sends photos with the same bytes once", async () => {
  for (const name of ["a", "b", "c"])
    await picture(1)
      .jpeg()
      .toFile(join(folder, `${name}.jpg`));
  await scan(database, { folder, progress: silent });
  expect(await embedAll(await open())).toMatchObject({ embedded: 1, copied: 2, remaining: 0 });
});

test("gets the same embeddings from this machine, the embed server and a Triton", async () => {
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
    // not refused: it is one model, wherever it runs
    await embedAll(await open({ mode: "remote", ...options }));
    for (const [i, vector] of vectors().entries()) {
      expect(cosine(vector, local[i]!), options.backend).toBeGreaterThan(0.999);
    }
  }
});

test("says that the weights of the project's own models are random", async () => {
  await photos(1);
  expect((await embedAll(await open())).model.weights).toBe("random");
  expect(modelInUse(database)?.weights).toBe("random");
});

test("fails when the photos were embedded with another model", async () => {
  await photos(3);
  await embedAll(await open());
  await expect(embedAll(await open({ modelPath: otherModelPath }))).rejects.toThrow(
    "3 photos were embedded with another model than that of this machine: use that one, or embed all again with --replace",
  );
  expect(vectors()).toHaveLength(3);
});

test("replaces the embeddings of another model when it is told to", async () => {
  await photos(3);
  await embedAll(await open());
  const before = vectors();
  const other = await open({ modelPath: otherModelPath });
  expect(await embedAll(other, { otherModel: "replace" })).toMatchObject({ embedded: 3 });
  expect(cosine(vectors()[0]!, before[0]!)).toBeLessThan(0.5);
});

test("fails when another model answers in the middle of the run", async () => {
  await photos(40);
  const [first, second] = [await open(), await open({ modelPath: otherModelPath })];
  let requests = 0;
  const changing: InferenceClient = {
    ...first,
    embed: (images) => (++requests <= 2 ? first : second).embed(images),
  };
  await expect(embedAll(changing, { concurrency: 1 })).rejects.toThrow(
    "another model answers than at the start: what it embedded was not kept",
  );
  expect(vectors()).toHaveLength(31);
});

test("lists a photo that has changed since the scan, or is gone, and embeds the rest", async () => {
  await photos(3);
  await picture(9).jpeg().toFile(join(folder, "000.jpg"));
  database.run("UPDATE photos SET path = path || 'x' WHERE path LIKE '%001.jpg'");
  expect(await embedAll(await open())).toMatchObject({ embedded: 1, failed: 2, remaining: 2 });
  expect(skipped.map(({ problem }) => problem).sort()).toEqual([
    "does not exist",
    "has changed since the scan: scan again",
  ]);
});

test("lists a photo that the service cannot read, and embeds the rest", async () => {
  await photos(40);
  const client = await open();
  const refusing: InferenceClient = {
    ...client,
    embed: async (images) => {
      const bad = images.findIndex((image, i) => i > 0 && image.length === badLength);
      if (bad >= 0) throw new ClientError("image", `image ${bad} is odd`, { image: bad });
      return client.embed(images);
    },
  };
  const badLength = database.get<{ readonly bytes: number }>(
    "SELECT bytes FROM photos WHERE id = 7",
  )!.bytes;
  const bad = database.all("SELECT 1 FROM photos WHERE bytes = ?", [badLength]).length;
  expect(await embedAll(refusing)).toMatchObject({ embedded: 40 - bad, failed: bad });
  expect(skipped[0]?.problem).toBe("is odd");
});

test("sends a smaller copy of a large photo, of nearly the same embedding", async () => {
  const large = picture(3, 1600, 1200);
  await large.clone().png().toFile(join(folder, "large.png"));
  await large.clone().png({ compressionLevel: 0 }).toFile(join(folder, "larger.png"));
  await scan(database, { folder, progress: silent });
  const client = await open();
  const sent: number[] = [];
  await embedAll({
    ...client,
    embed: (images) => {
      sent.push(...images.slice(1).map((image) => image.length));
      return client.embed(images);
    },
  });
  expect(Math.max(...sent)).toBeLessThan(512 * 1024);
  expect(cosine(vectors()[0]!, vectors()[1]!)).toBeGreaterThan(0.99);
});

test("waits for a service that goes away, and goes on when it is back", async () => {
  await photos(80);
  let own = await startServer(0);
  cleanups.push(() => own.stop());
  const port = own.port;
  const client = await open({ mode: "remote", serviceUrl: `http://127.0.0.1:${port}` });
  const notes: string[] = [];
  let requests = 0;
  const result = await embedAll(
    {
      ...client,
      embed: async (images) => {
        if (++requests === 3) {
          await own.stop();
          setTimeout(async () => {
            own = await startServer(port);
          }, 100);
        }
        return client.embed(images);
      },
    },
    { concurrency: 1, progress: { ...silent, note: (text) => notes.push(text) } },
  );
  expect(result).toMatchObject({ embedded: 80, remaining: 0 });
  expect(notes).toEqual([
    `cannot reach http://127.0.0.1:${port}: connection refused: waiting for up to 10 min 0 s`,
    "the service answers again",
  ]);
});

test("fails when the service stays away, and keeps what it has", async () => {
  await photos(40);
  const client = await open();
  let requests = 0;
  const leaving: InferenceClient = {
    ...client,
    embed: async (images) => {
      if (++requests > 2) throw new ClientError("unavailable", "cannot reach it");
      return client.embed(images);
    },
  };
  await expect(embedAll(leaving, { concurrency: 1, waitSeconds: 0 })).rejects.toThrow(
    "cannot reach it: gave up after 0 s; what was embedded is kept, run the same command again to go on",
  );
  expect(vectors()).toHaveLength(31);
});

test("a run that is killed goes on where it was", async () => {
  await photos(100);
  database.close();
  const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));
  const args = ["embed", "--db", file, "--concurrency", "1", "--mode", "remote"];
  const child = spawn(
    process.execPath,
    [program, ...args, "--url", `http://127.0.0.1:${server.port}`],
    { stdio: "ignore" },
  );
  const ended = once(child, "exit");
  // while it runs the file is its own: how far it is shows in the file's size
  await expect.poll(() => bytesOf(file), { interval: 5 }).toBeGreaterThan(140_000);
  child.kill("SIGKILL");
  await ended;
  database = openPhotoDatabase(file);
  const before = vectors().length;
  expect(before).toBeGreaterThan(0);
  expect(await embedAll(await open())).toMatchObject({ embedded: 100 - before, remaining: 0 });
});

test("the command falls back to this machine, and says so", async () => {
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

function bytesOf(path: string): number {
  return statSync(path).size;
}
