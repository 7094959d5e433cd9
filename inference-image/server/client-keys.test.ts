import { mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { tinyRepository } from "../../model-tools/generate/test-model.ts";
import type { RunningEmbedServer } from "./embed-server.ts";
import { startLoaded } from "./test-embed-server.ts";

const alpha = { name: "team-a", key: "alpha-0123456789" };
const beta = { name: "team-b", key: "beta-0123456789-" };

let folder: string;
let modelRepository: string;
let jpeg: Buffer;
let server: RunningEmbedServer | undefined;
const file = (name: string) => join(folder, name);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-keys-"));
  [modelRepository, jpeg] = await Promise.all([tinyRepository(), picture()]);
});
afterEach(async () => {
  await server?.stop();
  server = undefined;
});
afterAll(() => rm(folder, { recursive: true }));

async function start(keys: unknown): Promise<void> {
  await writeFile(file("keys.json"), typeof keys === "string" ? keys : JSON.stringify(keys));
  server = await startLoaded({
    MODEL_REPOSITORY: modelRepository,
    INTRA_OP_THREADS: "1",
    API_KEYS_FILE: file("keys.json"),
  });
}

/** Replaces the file as editors and secret stores do: by a rename. */
async function replaceKeys(keys: unknown): Promise<void> {
  await writeFile(file("next.json"), typeof keys === "string" ? keys : JSON.stringify(keys));
  await rename(file("next.json"), file("keys.json"));
}

function send(key: string, path = "/embed"): Promise<Response> {
  const isEmbed = path === "/embed";
  return fetch(`http://127.0.0.1:${server!.port}${path}`, {
    method: isEmbed ? "POST" : "GET",
    headers: { authorization: `Bearer ${key}`, ...(isEmbed && { "content-type": "image/jpeg" }) },
    body: isEmbed ? new Uint8Array(jpeg) : null,
  });
}

async function statusOf(key: string): Promise<number> {
  const response = await send(key);
  await response.arrayBuffer();
  return response.status;
}

/** Value of a metric; undefined if it does not exist. */
async function metric(name: string, key = alpha.key): Promise<number | undefined> {
  const text = await (await send(key, "/metrics")).text();
  const line = text.split("\n").find((it) => it.startsWith(name));
  return line === undefined ? undefined : Number(line.split(" ").at(-1));
}

test("accepts each key and counts its requests by the name of the client", async () => {
  await start([alpha, beta]);
  expect(await statusOf(alpha.key)).toBe(200);
  expect(await statusOf(beta.key)).toBe(200);
  expect(await statusOf(beta.key)).toBe(200);
  expect(await statusOf("another-0123456789")).toBe(401);
  const text = await (await send(alpha.key, "/metrics")).text();
  const counted = [...text.matchAll(/route="\/embed",status="(\d+)",.*client="(.*)"} (\d+)/g)];
  expect(counted.map((match) => match.slice(1).join(" ")).sort()).toEqual([
    "200 team-a 1",
    "200 team-b 2",
    "401 none 1",
  ]);
  expect(text).not.toContain(alpha.key);
});

test("replaces a key under load without a failed request", async () => {
  await start([alpha]);
  let key = alpha.key;
  let stopped = false;
  const statuses: number[] = [];
  const clients = Array.from({ length: 4 }, async () => {
    while (!stopped) statuses.push(await statusOf(key));
  });
  await replaceKeys([alpha, beta]);
  await expect.poll(() => statusOf(beta.key)).toBe(200);
  key = beta.key;
  const before = statuses.length;
  // every client has read the new key after two more responses of each
  await expect.poll(() => statuses.length).toBeGreaterThan(before + 8);
  await replaceKeys([beta]);
  await expect.poll(() => statusOf(alpha.key)).toBe(401);
  stopped = true;
  await Promise.all(clients);
  expect(new Set(statuses)).toEqual(new Set([200]));
});

test("finds new keys behind a symbolic link, as in a Secret's volume", async () => {
  await writeFile(file("old.json"), JSON.stringify([alpha]));
  await writeFile(file("new.json"), JSON.stringify([beta]));
  await rm(file("keys.json"), { force: true });
  await symlink(file("old.json"), file("keys.json"));
  server = await startLoaded({
    MODEL_REPOSITORY: modelRepository,
    API_KEYS_FILE: file("keys.json"),
  });
  expect(await statusOf(alpha.key)).toBe(200);
  await symlink(file("new.json"), file("next.json"));
  await rename(file("next.json"), file("keys.json"));
  await expect.poll(() => statusOf(beta.key)).toBe(200);
  await rm(file("keys.json"));
});

test("keeps the previous keys while the new file is invalid, and reports it in a metric", async () => {
  await start([alpha]);
  const valid = `${embedMetrics.fileValid}{file="keys"}`;
  expect(await metric(valid)).toBe(1);
  await replaceKeys("[{");
  await expect.poll(() => metric(valid)).toBe(0);
  expect(await statusOf(alpha.key)).toBe(200);
  // with the byte order mark and line ends of an editor on Windows
  await replaceKeys(`\uFEFF${JSON.stringify([alpha, beta])}\r\n`);
  await expect.poll(() => metric(valid)).toBe(1);
  expect(await statusOf(beta.key)).toBe(200);
});

test("rejects requests above the rate of a key with 429, and not those of other keys", async () => {
  await start([{ ...alpha, requestsPerSecond: 0.01, burst: 2 }, beta]);
  expect(await statusOf(alpha.key)).toBe(200);
  expect(await statusOf(alpha.key)).toBe(200);
  const rejected = await send(alpha.key);
  expect(rejected.status).toBe(429);
  // one request per 100 s
  expect(Number(rejected.headers.get("retry-after"))).toBeGreaterThan(90);
  expect(await rejected.json()).toEqual({
    error: {
      code: "rate_limited",
      message: "the client team-a may send 0.01 requests per second",
    },
  });
  expect(await statusOf(beta.key)).toBe(200);
  expect((await send(alpha.key, "/metrics")).status).toBe(200);
});

test("keeps the state of a rate limit when the key is replaced", async () => {
  const limited = { ...alpha, requestsPerSecond: 0.01 };
  await start([limited]);
  expect(await statusOf(alpha.key)).toBe(200);
  await replaceKeys([{ ...limited, key: beta.key }]);
  await expect.poll(() => statusOf(beta.key)).not.toBe(401);
  expect(await statusOf(beta.key)).toBe(429);
});

test.each<[string, unknown, string]>([
  ["no JSON", "key", "API_KEYS_FILE must be JSON, got"],
  ["no list", {}, "API_KEYS_FILE: keys must be a list of keys, in"],
  ["no key", [], "API_KEYS_FILE: keys must list at least one key, in"],
  [
    "a short key",
    [{ name: "a", key: "hunter2" }],
    "API_KEYS_FILE: keys.0.key must be at least 16 printable ASCII characters without spaces, in",
  ],
  [
    "an invalid name",
    [{ ...alpha, name: "a b" }],
    "API_KEYS_FILE: keys.0.name must be 1 to 64 letters, digits, '.', '_' or '-', in",
  ],
  ["equal names", [alpha, { ...beta, name: "team-a" }], "keys.1.name must not be that of keys.0"],
  ["equal keys", [alpha, { ...alpha, name: "b" }], "keys.1.key must not be that of keys.0"],
  ["a burst without a rate", [{ ...alpha, burst: 2 }], "keys.0.burst requires requestsPerSecond"],
  [
    "a rate of 0",
    [{ ...alpha, requestsPerSecond: 0 }],
    "keys.0.requestsPerSecond must be a number",
  ],
  ["another field", [{ ...alpha, rate: 1 }], "keys.0 must not have the field 'rate'"],
])("fails on a file with %s, without its content", async (_, keys, message) => {
  const error = await start(keys).catch((reason: Error) => reason);
  expect((error as Error).message).toContain(message);
  expect((error as Error).message).not.toMatch(/hunter2|0123456789/);
});
