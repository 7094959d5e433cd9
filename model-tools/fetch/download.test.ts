import { createHash, randomBytes } from "node:crypto";
import { lstat, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { sizeOf } from "../files/publish-file.ts";
import { type DownloadOptions, download } from "./download.ts";
import { openProxyDispatcher } from "./proxy-dispatcher.ts";
import {
  type Answer,
  cutOff,
  file,
  redirect,
  startFileServer,
  startProxy,
  status,
  type TestServer,
} from "./test-file-server.ts";

const body = randomBytes(300_000);
const sha256 = createHash("sha256").update(body).digest("hex");
const dispatcher = openProxyDispatcher({});

let folder: string;
let part: string;
let servers: TestServer[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-download-"));
  part = join(folder, "model.pull.onnx.part");
  servers = [];
});
afterEach(async () => {
  await Promise.all(servers.map((server) => server.close()));
  await rm(folder, { recursive: true, force: true });
});

async function serve(...answers: readonly Answer[]): Promise<TestServer> {
  const server = await startFileServer(...answers);
  servers.push(server);
  return server;
}

/** Downloads from a server and records the waiting times instead of waiting. */
async function get(server: TestServer, options: Partial<DownloadOptions> = {}) {
  const waits: number[] = [];
  const lines: string[] = [];
  const { resumed } = await download({
    url: new URL("model.onnx?signature=secret", server.url),
    part,
    bytes: body.length,
    sha256,
    maxBytes: 1e6,
    dispatcher,
    tokenVariable: "HF_TOKEN",
    wait: async (ms) => void waits.push(ms),
    onRetry: (line) => lines.push(line),
    ...options,
  });
  return { resumed, waits, lines, content: await readFile(part) };
}

/** Closes the connection when the part has this number of bytes. */
const cutAt = (bytes: number) => ({
  bytes,
  arrived: async () => ((await sizeOf(part)) ?? 0) >= bytes,
});

const rangesOf = ({ requests }: TestServer) => requests.map(({ headers }) => headers.range);

test("downloads a file with one request and reports progress", async () => {
  const server = await serve(file(body));
  const progress: { bytes: number; total?: number }[] = [];
  const { content, resumed } = await get(server, { onProgress: (at) => progress.push(at) });
  expect(content.equals(body)).toBe(true);
  expect(resumed).toBe(0);
  expect(progress[0]).toEqual({ bytes: 0, total: body.length });
  expect(progress.at(-1)).toEqual({ bytes: body.length, total: body.length });
  expect(server.requests).toHaveLength(1);
  expect(server.requests[0]?.headers["accept-encoding"]).toBe("identity");
});

test("resumes after a lost connection if the file is unchanged", async () => {
  const server = await serve(file(body, { cut: cutAt(100_000) }), file(body));
  const { content, waits, lines } = await get(server);
  expect(content.equals(body)).toBe(true);
  expect(rangesOf(server)).toEqual([undefined, "bytes=100000-"]);
  expect(waits).toEqual([1000]);
  expect(lines).toEqual([expect.stringMatching(/^the connection .*; retrying in 1 s$/)]);
});

test("resumes the download of an earlier process and returns its size", async () => {
  await writeFile(part, body.subarray(0, 200_000));
  const server = await serve(file(body));
  const { content, resumed } = await get(server);
  expect(content.equals(body)).toBe(true);
  expect(resumed).toBe(200_000);
});

test.each(["longer", "complete"])("does not follow a symbolic link to a %s file", async (size) => {
  const target = `${part}-target`;
  const content = size === "complete" ? body : Buffer.alloc(body.length + 1, "x");
  await writeFile(target, content);
  await symlink(target, part);
  const got = await get(await serve(file(body)));
  expect(got.content.equals(body)).toBe(true);
  expect((await lstat(part)).isSymbolicLink()).toBe(false);
  expect((await readFile(target)).equals(content)).toBe(true);
});

test("sends no request if an earlier process downloaded the complete file", async () => {
  await writeFile(part, body);
  const server = await serve(file(body));
  expect((await get(server)).resumed).toBe(body.length);
  expect(server.requests).toHaveLength(0);
});

test("restarts if the server ignores the range", async () => {
  const server = await serve(
    file(body, { cut: cutAt(100_000) }),
    file(body, { ignoresRange: true }),
  );
  expect((await get(server)).content.equals(body)).toBe(true);
  expect(server.requests).toHaveLength(2);
});

test("restarts after a lost connection if no checksum identifies the file", async () => {
  const server = await serve(file(body, { cut: cutAt(100_000) }), file(body));
  const { content } = await get(server, { sha256: undefined, bytes: undefined });
  expect(content.equals(body)).toBe(true);
  expect(rangesOf(server)).toEqual([undefined, undefined]);
});

test("accepts a complete part whose size is not known in advance", async () => {
  await writeFile(part, body);
  const server = await serve(file(body));
  expect((await get(server, { bytes: undefined })).resumed).toBe(body.length);
  expect(rangesOf(server)).toEqual([`bytes=${body.length}-`]);
});

test("restarts if the response has a different range than requested", async () => {
  const wrong: Answer = (_request, response) => {
    const range = `bytes 0-${body.length - 1}/${body.length}`;
    response.writeHead(206, { "content-range": range }).end(body);
  };
  const server = await serve(file(body, { cut: cutAt(100_000) }), wrong, file(body));
  expect((await get(server)).content.equals(body)).toBe(true);
});

test("resumes after an unrequested partial response", async () => {
  const some: Answer = (_request, response) => {
    const range = `bytes 0-999/${body.length}`;
    response.writeHead(206, { "content-range": range }).end(body.subarray(0, 1000));
  };
  const server = await serve(some, file(body));
  expect((await get(server, { bytes: undefined })).content.equals(body)).toBe(true);
  expect(rangesOf(server)).toEqual([undefined, "bytes=1000-"]);
});

test("keeps the part if the response is a web page", async () => {
  await writeFile(part, body.subarray(0, 200_000));
  const page: Answer = (_request, response) => {
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end("<h1>Log in</h1>");
  };
  const login = await serve(page);
  await expect(get(login)).rejects.toThrow("must be a model, got a web page (text/html)");
  expect(login.requests).toHaveLength(1);
  expect((await get(await serve(file(body)))).resumed).toBe(200_000);
});

test("does not read the body of a redirect or an error", async () => {
  const endless =
    (code: number, headers: Record<string, string>): Answer =>
    (_request, response) => {
      response.writeHead(code, headers).write("a little");
    };
  const store = await serve(file(body));
  const hub = await serve(endless(302, { location: store.url.href }));
  expect((await get(hub)).content.equals(body)).toBe(true);
  await rm(part);
  await expect(get(await serve(endless(404, {})))).rejects.toThrow("responded with 404");
});

test("waits for Retry-After, or with exponential backoff without it", async () => {
  const server = await serve(
    status(503),
    status(429, { "retry-after": "7" }),
    status(408),
    file(body),
  );
  const { waits, lines } = await get(server);
  expect(waits).toEqual([1000, 7000, 4000]);
  expect(lines[1]).toBe(`${server.url.host} responded with 429; retrying in 7 s`);
});

test("fails if Retry-After is an hour", async () => {
  const server = await serve(status(503, { "retry-after": "3600" }));
  await expect(get(server)).rejects.toThrow(
    `${server.url}model.onnx: ${server.url.host} responded with 503, and requires a wait of 3600 s`,
  );
});

test("fails after five attempts without progress and keeps the part", async () => {
  const server = await serve(file(body, { cut: cutAt(100_000) }), status(502));
  await expect(get(server)).rejects.toThrow(
    `${server.url}model.onnx: failed after 5 attempts: ${server.url.host} responded with 502; 0.1 MB are kept, run the command again to resume`,
  );
  expect(server.requests).toHaveLength(5);
  expect((await readFile(part)).equals(body.subarray(0, 100_000))).toBe(true);
});

test("fails with one line after several refused connections", async () => {
  const server = await startFileServer(file(body));
  await server.close();
  await expect(get(server)).rejects.toThrow(
    /model\.onnx: failed after 5 attempts: the connection failed: .*ECONNREFUSED.*$/,
  );
});

test.each([
  ["a file of another size", file(body.subarray(1)), `must have 300000 bytes, got 299999`],
  [
    "a login page",
    status(200, { "content-type": "text/html", "content-length": "2" }),
    "must have 300000 bytes, got 2 of text/html",
  ],
  [
    "a file with another checksum in the headers of the hub",
    redirect("/elsewhere", { "x-linked-etag": `"${"0".repeat(64)}"` }),
    `sha256 must be ${sha256}, got ${"0".repeat(64)}`,
  ],
  [
    "a redirect to another protocol than HTTP",
    redirect("file:///etc/passwd"),
    "must lead to http://… or https://… without a user or a password",
  ],
  [
    "a redirect to a URL with a password",
    redirect("http://user:pa55word@127.0.0.1/model.onnx"),
    "must lead to http://… or https://… without a user or a password",
  ],
  ["redirects without end", redirect("/again"), "must end after 10 redirects"],
  ["a missing file", status(404), "responded with 404"],
  [
    "a response that is not HTTP",
    (_request, response) => void response.socket?.end("SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "the response is not HTTP",
  ],
  [
    "a hub that requires a token",
    status(401),
    "responded with 401: HF_TOKEN may be needed, or a proxy or a mirror is in the way",
  ],
  [
    "a compressed response",
    file(body, { headers: { "content-encoding": "gzip" } }),
    "must be sent without compression, got gzip",
  ],
])("fails at once on %s", async (_name, answer, message) => {
  const server = await serve(answer);
  const error = await get(server).catch((cause: Error) => cause);
  expect((error as Error).message).toMatch(new RegExp(`^${server.url}model.onnx: `));
  expect((error as Error).message).toContain(message);
  // the query is a secret
  expect((error as Error).message).not.toContain("signature");
});

test("fails if the response is longer than the file", async () => {
  const endless: Answer = (_request, response) => {
    response.writeHead(200);
    response.write(body);
    response.end("more");
  };
  await expect(get(await serve(endless))).rejects.toThrow("must have 300000 bytes, got more");
});

test("resumes if the response is shorter than its Content-Length", async () => {
  const lies: Answer = (_request, response) => {
    response.writeHead(200, { "content-length": String(body.length) });
    void cutOff(response, body.subarray(0, 1000), cutAt(1000).arrived);
  };
  const server = await serve(lies, file(body));
  expect((await get(server)).content.equals(body)).toBe(true);
  expect(rangesOf(server)).toEqual([undefined, "bytes=1000-"]);
});

test("sends the token to the hub and not to redirect targets", async () => {
  const store = await serve(file(body));
  const hub = await serve(redirect(new URL("cdn?signature=s", store.url).href));
  const { content } = await get(hub, { token: "hf_secret" });
  expect(content.equals(body)).toBe(true);
  expect(hub.requests[0]?.headers.authorization).toBe("Bearer hf_secret");
  expect(store.requests[0]?.headers.authorization).toBeUndefined();
});

test("follows a redirect with the range", async () => {
  const store = await serve(file(body, { cut: cutAt(50_000) }), file(body));
  const hub = await serve(redirect(store.url.href));
  expect((await get(hub)).content.equals(body)).toBe(true);
  expect(rangesOf(store)).toEqual([undefined, "bytes=50000-"]);
});

test("uses a proxy for http URLs", async () => {
  const proxy = await startProxy("user:pass word");
  servers.push(proxy);
  const server = await serve(file(body));
  const uri = `http://user:pass%20word@${proxy.url.host}`;
  const through = openProxyDispatcher({ http_proxy: uri });
  const { content } = await get(server, { dispatcher: through });
  await through.close();
  expect(content.equals(body)).toBe(true);
  expect(proxy.requests.map(({ path }) => path)).toEqual([
    `${server.url}model.onnx?signature=secret`,
  ]);
});

test("fails at once if the proxy rejects the user", async () => {
  const proxy = await startProxy("user:right");
  servers.push(proxy);
  const server = await serve(file(body));
  const through = openProxyDispatcher({ HTTP_PROXY: `http://user:wrong@${proxy.url.host}` });
  await expect(get(server, { dispatcher: through })).rejects.toThrow(
    "the proxy responded with 407",
  );
  await through.close();
  expect(server.requests).toHaveLength(0);
});

test("bypasses the proxy for the hosts of NO_PROXY", async () => {
  const server = await serve(file(body));
  const dispatchers = { HTTP_PROXY: "http://127.0.0.1:9", NO_PROXY: "example.org,127.0.0.1" };
  const direct = openProxyDispatcher(dispatchers);
  expect((await get(server, { dispatcher: direct })).content.equals(body)).toBe(true);
  await direct.close();
});

test.each(["proxy:3128", "socks5://proxy:1080", "//user:secret@proxy"])(
  "rejects the proxy '%s' without printing it",
  (value) => {
    expect(() => openProxyDispatcher({ https_proxy: value })).toThrow(
      /^https_proxy must be like http:\/\/host:port or http:\/\/user:password@host:port$/,
    );
  },
);
