import { createReadStream } from "node:fs";
import { copyFile, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { testCertificate } from "../../http/test-certificate.ts";
import { sha256Of } from "../../model-tools/files/model-info.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { exportedTower } from "../../model-tools/graph/test-exported-tower.ts";
import { writeWithExternalData } from "../../model-tools/onnx/test-external-data.ts";
import {
  type FetchWeightsOptions,
  fetchWeights as fetchWith,
  readFetchWeightsArguments,
} from "./fetch-weights.ts";

let folder: string;
let server: Server;
let origin: string;
/** Requested paths. */
let requestedPaths: string[];

const answers: Record<string, RequestListener> = {
  "/model.onnx": async (_request, response) => {
    createReadStream(await tinyModel()).pipe(response);
  },
  "/moved": (_request, response) => {
    response.writeHead(302, { location: "/model.onnx" }).end();
  },
  "/cut": async (_request, response) => {
    response.writeHead(200, { "content-length": "1000000" });
    response.write("half");
    setTimeout(() => response.destroy(), 20);
  },
  "/says-long": (_request, response) => {
    response.writeHead(200, { "content-length": "5000" }).end(Buffer.alloc(5000));
  },
  "/drips": (_request, response) => {
    const drip = setInterval(() => response.write("x"), 20);
    response.on("close", () => clearInterval(drip));
  },
};

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-fetch-"));
  requestedPaths = [];
  server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://127.0.0.1");
    requestedPaths.push(pathname);
    const answer = answers[pathname];
    if (answer === undefined) response.writeHead(404).end("no such file");
    else answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true, force: true });
});

/** Runs the job without delays before retries. */
const fetchWeights = (options: FetchWeightsOptions) =>
  fetchWith(
    options,
    () => {},
    async () => {},
  );

const sha256 = async () => await sha256Of(await tinyModel());
const options = async (path: string) =>
  ({
    url: `${origin}${path}`,
    folder,
    sha256: await sha256(),
    maxBytes: 10_000_000,
    timeoutSeconds: 60,
  }) as const;

/** Returns the printed error. */
const failureOf = async (work: Promise<unknown>): Promise<string> =>
  await work.then(
    () => "nothing",
    (error: Error) => error.message,
  );

/** Starts a server with a trusted certificate until the test ends. */
async function tlsOrigin(listener: RequestListener): Promise<string> {
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  const tls = createTlsServer(testCertificate(), listener);
  await new Promise<void>((resolve) => tls.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    vi.unstubAllEnvs();
    tls.closeAllConnections();
    await new Promise((resolve) => tls.close(resolve));
  });
  return `https://127.0.0.1:${(tls.address() as AddressInfo).port}`;
}

test("a model whose weights are in another file is rejected, also after a restart", async () => {
  const model = join(folder, "exported.onnx");
  await writeWithExternalData(exportedTower(), model, "model.onnx.data");
  answers["/external"] = (_request, response) => {
    createReadStream(model).pipe(response);
  };
  const file = await options("/external");
  for (const attempt of [1, 2]) {
    await expect(
      fetchWeights({ ...file, folder: join(folder, "weights"), sha256: await sha256Of(model) }),
      String(attempt),
    ).rejects.toThrow(
      `${join(folder, "weights", "model.onnx")}: must contain its weights, because one file is downloaded, got external data 'model.onnx.data'; a volume can have both files`,
    );
  }
});

test("downloads another file beside the weights", async () => {
  await fetchWeights(await options("/model.onnx"));
  await fetchWeights({ ...(await options("/moved")), file: "tokenizer.model" });
  expect((await readdir(folder)).sort()).toEqual(["model.onnx", "tokenizer.model"]);
});

test("downloads the file and verifies it", async () => {
  expect(await fetchWeights(await options("/model.onnx"))).toMatch(
    /^downloaded in \d+\.\d s; \/.*\/model\.onnx is sha256 [0-9a-f]{12}, \d+ MB, weights unknown$/,
  );
  expect(await readdir(folder)).toEqual(["model.onnx"]);
  expect(await sha256Of(join(folder, "model.onnx"))).toBe(await sha256());
});

test("creates a missing folder", async () => {
  await fetchWeights({ ...(await options("/model.onnx")), folder: join(folder, "a", "b") });
  expect(await readdir(join(folder, "a", "b"))).toEqual(["model.onnx"]);
});

test("downloads nothing if the file exists", async () => {
  const file = join(folder, "model.onnx");
  await copyFile(await tinyModel(), file);
  const before = await stat(file);
  expect(await fetchWeights(await options("/model.onnx"))).toMatch(/^already downloaded; /);
  expect(requestedPaths).toEqual([]);
  expect((await stat(file)).ino).toBe(before.ino);
});

test("replaces other existing weights", async () => {
  await writeFile(join(folder, "model.onnx"), "older weights");
  await fetchWeights(await options("/model.onnx"));
  expect(await sha256Of(join(folder, "model.onnx"))).toBe(await sha256());
});

test("fails on a file with another checksum and leaves no files", async () => {
  const other = "0".repeat(64);
  const { size } = await stat(await tinyModel());
  const message = `${origin}/model.onnx: sha256 must be ${other}, got ${await sha256()} (${size} bytes)`;
  await expect(
    fetchWeights({ ...(await options("/model.onnx?signature=secret")), sha256: other }),
  ).rejects.toThrow(message);
  expect(await readdir(folder)).toEqual([]);
});

test("uses the proxy of the environment", async () => {
  vi.stubEnv("http_proxy", origin);
  vi.stubEnv("no_proxy", "");
  onTestFinished(() => void vi.unstubAllEnvs());
  await fetchWeights({ ...(await options("")), url: "http://weights.example/model.onnx" });
  expect(requestedPaths).toEqual(["/model.onnx"]);
});

test("keeps the existing weights if the download fails", async () => {
  await writeFile(join(folder, "model.onnx"), "older weights");
  await expect(fetchWeights(await options("/cut"))).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:\d+\/cut: failed after \d+ attempts: the connection /,
  );
  expect(await readFile(join(folder, "model.onnx"), "utf8")).toBe("older weights");
});

test("fails if the folder cannot be created", async () => {
  await writeFile(join(folder, "file"), "");
  await expect(
    fetchWeights({ ...(await options("/model.onnx")), folder: join(folder, "file", "weights") }),
  ).rejects.toThrow(/ENOTDIR/);
});

test("fails on a Content-Length beyond the limit before anything is written", async () => {
  await writeFile(join(folder, "model.onnx"), "older weights");
  expect(
    await failureOf(
      fetchWeights({ ...(await options("/says-long?signature=secret")), maxBytes: 4999 }),
    ),
  ).toBe(`${origin}/says-long: must have at most 4999 bytes, got 5000`);
  expect(await readdir(folder)).toEqual(["model.onnx"]);
});

test("accepts a file of exactly the limit", async () => {
  const { size } = await stat(await tinyModel());
  await fetchWeights({ ...(await options("/model.onnx")), maxBytes: size });
  expect(await readdir(folder)).toEqual(["model.onnx"]);
});

test("fails on an endless response", async () => {
  expect(await failureOf(fetchWeights({ ...(await options("/drips")), timeoutSeconds: 0.3 }))).toBe(
    `${origin}/drips: must be downloaded within 0.3 s`,
  );
  expect(await readdir(folder)).not.toContain("model.onnx");
});

test("fails on a redirect from https to http without printing secrets", async () => {
  const tls = await tlsOrigin((_request, response) => {
    response.writeHead(302, { location: `${origin}/model.onnx?signature=secret` }).end();
  });
  expect(
    await failureOf(fetchWeights({ ...(await options("")), url: `${tls}/m?signature=secret` })),
  ).toBe(`${tls}/m: must not lead from https to http, got ${origin}/model.onnx`);
  expect(requestedPaths).toEqual([]);
  expect(await readdir(folder)).toEqual([]);
});

test("follows a redirect from http to https", async () => {
  const tls = await tlsOrigin(answers["/model.onnx"]!);
  answers["/to-tls"] = (_request, response) => {
    response.writeHead(307, { location: `${tls}/model.onnx` }).end();
  };
  await fetchWeights(await options("/to-tls"));
  expect(await readdir(folder)).toEqual(["model.onnx"]);
});

test("does not print the password of a URL", async () => {
  const url = "http://user:pa55word@127.0.0.1:1/m?signature=secret";
  expect(await failureOf(fetchWeights({ ...(await options("")), url }))).toBe(
    "http://127.0.0.1:1/m: failed after 5 attempts: the connection failed: connect ECONNREFUSED 127.0.0.1:1",
  );
});

const given = {
  url: "https://example.org/m?signature=secret",
  folder: "/weights",
  sha256: "0".repeat(64),
  "max-bytes": "1073741824",
};
const read = (args: Readonly<Record<string, string>>) =>
  readFetchWeightsArguments(Object.entries(args).map(([name, value]) => `--${name}=${value}`));

test("parses its options", () => {
  const read900 = {
    url: given.url,
    folder: "/weights",
    sha256: given.sha256,
    maxBytes: 2 ** 30,
    timeoutSeconds: 900,
  };
  expect(read(given)).toEqual(read900);
  expect(read({ ...given, "timeout-seconds": "30" })).toEqual({ ...read900, timeoutSeconds: 30 });
});

const httpOnly = "fetch-weights: --url must be http://… or https://…";
const noUser = "fetch-weights: --url must have no user and no password";

test.each<[string, Readonly<Record<string, string>>, string]>([
  ["a URL that is not HTTP", { url: "ftp://example.org/m?signature=secret" }, httpOnly],
  ["a URL without a scheme", { url: "user:pa55word@example.org/m" }, httpOnly],
  ["an invalid URL", { url: "https://user:pa55word@example.org:port/m" }, httpOnly],
  ["a password", { url: "https://user:pa55word@example.org/m?signature=secret" }, noUser],
  ["a user", { url: "https://token@example.org/m" }, noUser],
  [
    "a short checksum",
    { sha256: "abc" },
    "fetch-weights: --sha256 must be 64 digits, lower-case hexadecimal, got 'abc'",
  ],
  [
    "a size with a unit",
    { "max-bytes": "1Gi" },
    "fetch-weights: --max-bytes must be a whole number, 1 or more, got '1Gi'",
  ],
  [
    "a size of zero",
    { "max-bytes": "0" },
    "fetch-weights: --max-bytes must be a whole number, 1 or more, got '0'",
  ],
  [
    "a timeout beyond the limit",
    { "timeout-seconds": "14401" },
    "fetch-weights: --timeout-seconds must be a whole number, 1 to 14400, got '14401'",
  ],
])("rejects %s", async (_name, args, message) => {
  expect(await failureOf((async () => read({ ...given, ...args }))())).toBe(message);
});

const usage =
  "usage: fetch-weights --url … --folder … --sha256 … --max-bytes … [--timeout-seconds …] [--file …]";

test.each<[string, readonly string[], string]>([
  ["a missing URL", ["--folder=/weights"], "--url must be given"],
  ["a missing limit", ["--url=http://a", "--folder=/w", "--sha256=0"], "--max-bytes must be given"],
  [
    "a URL without its option, which is not printed",
    ["https://user:pa55word@example/m?signature=secret"],
    "every value requires its option",
  ],
])("rejects %s", async (_name, args, problem) => {
  expect(await failureOf((async () => readFetchWeightsArguments(args))())).toBe(
    `fetch-weights: ${problem}; ${usage}`,
  );
});
