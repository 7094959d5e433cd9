import type { LookupAddress, lookup as resolveName } from "node:dns";
import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { testCertificate } from "../../http/test-certificate.ts";
import { DownloadMemory } from "./download-memory.ts";
import { isPublicAddress, RemoteImages, type RemoteImagesOptions } from "./remote-images.ts";

const file = Buffer.from("an image file");
const never = new AbortController().signal;

/** Requests that reached the server, as `host path`. */
let requests: string[];
let server: Server;
let port: number;
let images: RemoteImages | undefined;

const routes: Readonly<Record<string, RequestListener>> = {
  "/image": (_request, response) => response.end(file),
  "/large": (_request, response) => response.end(Buffer.alloc(5_000)),
  "/endless": async (_request, response) => {
    response.on("error", () => {});
    while (!response.destroyed) {
      response.write(Buffer.alloc(1_000));
      await sleep(1);
    }
  },
  "/silent": () => {},
  "/slow": (_request, response) => void response.write("a"),
  "/missing": (_request, response) => response.writeHead(404).end("none"),
  "/once": (_request, response) => response.writeHead(302, { location: "/image" }).end(),
  "/loop": (_request, response) => response.writeHead(302, { location: "/loop" }).end(),
  "/elsewhere": (_request, response) =>
    response.writeHead(302, { location: `http://localhost:${port}/image` }).end(),
  "/to-file": (_request, response) =>
    response.writeHead(302, { location: "file:///etc/passwd" }).end(),
};

beforeEach(async () => {
  requests = [];
  server = createServer((request, response) => {
    requests.push(`${request.headers.host} ${request.url}`);
    routes[request.url!]!(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  port = (server.address() as AddressInfo).port;
});
afterEach(async () => {
  await images?.close();
  images = undefined;
  server.closeAllConnections();
  server.close();
});

function open(options: Partial<RemoteImagesOptions> = {}): RemoteImages {
  images = new RemoteImages({
    origins: [`http://127.0.0.1:${port}`],
    maxBytes: 4_000,
    timeoutMs: 5_000,
    maxRedirects: 2,
    maxBytesInFlight: 10_000,
    ...options,
  });
  return images;
}

async function download(path: string, remote = open()): Promise<Uint8Array> {
  const url = path.startsWith("/") ? `http://127.0.0.1:${port}${path}` : path;
  return await remote.download(remote.check(url), never, {});
}

test("downloads from an allowed origin", async () => {
  expect(Buffer.from(await download("/image"))).toEqual(file);
});

test("follows redirects within the allowed origins", async () => {
  expect(Buffer.from(await download("/once"))).toEqual(file);
  expect(requests).toEqual([`127.0.0.1:${port} /once`, `127.0.0.1:${port} /image`]);
});

test.each([
  ["/missing", "bad_request", "cannot be downloaded: its server responds 404"],
  ["/large", "too_large", "is larger than 4000 bytes"],
  ["/endless", "too_large", "is larger than 4000 bytes"],
  ["/loop", "bad_request", "has more than 2 redirects"],
  ["/to-file", "bad_request", "is a URL of file:, which this server does not allow"],
])("fails on %s", async (path, code, message) => {
  await expect(download(path)).rejects.toMatchObject({ code, message });
});

test("fails on a redirect to another origin, without a request to it", async () => {
  await expect(download("/elsewhere")).rejects.toThrow(
    `is a URL of http://localhost:${port}, which this server does not allow`,
  );
  expect(requests).toEqual([`127.0.0.1:${port} /elsewhere`]);
});

test("fails when the time limit passes", async () => {
  await expect(download("/slow", open({ timeoutMs: 50 }))).rejects.toThrow(
    "cannot be downloaded: it takes longer than 50 ms",
  );
});

test("stops with the reason of the request's signal", async () => {
  const controller = new AbortController();
  const remote = open();
  const url = remote.check(`http://127.0.0.1:${port}/slow`);
  const result = remote.download(url, controller.signal, {});
  setTimeout(() => controller.abort(new Error("the client disconnected")), 20);
  await expect(result).rejects.toThrow("the client disconnected");
});

describe("check", () => {
  const allowed = ["https://images.example.com", "http://10.0.0.7:9000"];

  test.each([
    "https://images.example.com/a.jpg?size=2",
    "https://images.example.com:443/a.jpg",
    "http://10.0.0.7:9000/bucket/a.jpg",
  ])("accepts %s", (url) => {
    expect(open({ origins: allowed }).check(url).href).toBeDefined();
  });

  test.each([
    ["http://images.example.com/a.jpg", "is a URL of http://images.example.com, which"],
    ["https://images.example.com:8443/", "is a URL of https://images.example.com:8443, which"],
    ["https://images.example.com.evil.test/", "is a URL of https://images.example.com.evil.test,"],
    ["https://images.example.com./a.jpg", "is a URL of https://images.example.com., which"],
    ["https://images.example.com@evil.test/", "is a URL with a user or password"],
    ["https://user:secret@images.example.com/", "is a URL with a user or password"],
    ["http://0x0a000007:9001/", "is a URL of http://10.0.0.7:9001, which"],
    ["https://", "is not a valid URL"],
  ])("fails on %s", (url, message) => {
    expect(() => open({ origins: allowed }).check(url)).toThrow(message);
  });

  test("fails on every URL without an allowed origin", () => {
    expect(() => open({ origins: [] }).check("https://images.example.com/a.jpg")).toThrow(
      "is a URL: this server downloads no images; send the file as a data: URI",
    );
  });
});

describe("host names", () => {
  /** Resolver that returns the next list of addresses at each call. */
  function resolver(...results: readonly (readonly string[])[]) {
    const asked: string[] = [];
    const lookup = ((
      name: string,
      _options: unknown,
      done: (error: null, all: LookupAddress[]) => void,
    ) => {
      const addresses = results[Math.min(asked.length, results.length - 1)]!;
      asked.push(name);
      done(
        null,
        addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
      );
    }) as unknown as typeof resolveName;
    return { lookup, asked };
  }

  const named = () => ({ origins: [`http://images.test:${port}`] });
  const notPublic = "cannot be downloaded: its host has an address that is not public";

  test.each([
    ["the loopback interface", ["127.0.0.1"]],
    ["a private network", ["192.168.1.20"]],
    ["the metadata service of a cloud", ["169.254.169.254"]],
    ["a private address beside a public one", ["93.184.216.34", "10.0.0.1"]],
    ["IPv6 loopback", ["::1"]],
  ])("fails if the name resolves to %s", async (_name, addresses) => {
    const remote = open({ ...named(), lookup: resolver(addresses).lookup });
    await expect(download(`http://images.test:${port}/image`, remote)).rejects.toThrow(notPublic);
    expect(requests).toEqual([]);
  });

  test("a name is resolved once per connection, so a second answer is not used", async () => {
    const { lookup, asked } = resolver(["192.0.2.1"], ["127.0.0.1"]);
    const remote = open({ ...named(), lookup, timeoutMs: 300 });
    await expect(download(`http://images.test:${port}/image`, remote)).rejects.toThrow(notPublic);
    expect(asked).toEqual(["images.test"]);
    // the name now points to the loopback interface
    await expect(download(`http://images.test:${port}/image`, remote)).rejects.toThrow(notPublic);
    expect(requests).toEqual([]);
  });

  test("fails on localhost with the resolver of the operating system", async () => {
    const remote = open({ origins: [`http://localhost:${port}`] });
    await expect(download(`http://localhost:${port}/image`, remote)).rejects.toThrow(notPublic);
    expect(requests).toEqual([]);
  });
});

test("fails on a certificate that is not trusted", async () => {
  const tls = createTlsServer(testCertificate(), (_request, response) => response.end(file));
  tls.listen(0, "127.0.0.1");
  await once(tls, "listening");
  const origin = `https://127.0.0.1:${(tls.address() as AddressInfo).port}`;
  try {
    const remote = open({ origins: [origin] });
    await expect(download(`${origin}/image`, remote)).rejects.toThrow(
      "cannot be downloaded: DEPTH_ZERO_SELF_SIGNED_CERT",
    );
  } finally {
    tls.close();
  }
});

test("requests wait for memory once the size of a file is known, and stop waiting when aborted", async () => {
  const remote = open({ maxBytes: 4_000, maxBytesInFlight: 2 * file.length, timeoutMs: 2_000 });
  const url = remote.check(`http://127.0.0.1:${port}/image`);
  const [first, second, third] = [{}, {}, {}];
  // servers that do not respond hold no memory
  const slow = remote.check(`http://127.0.0.1:${port}/silent`);
  const silent = Array.from({ length: 4 }, () => remote.download(slow, never, {}));
  const timedOut = Promise.all(
    silent.map((download) => expect(download).rejects.toThrow("longer than")),
  );
  await Promise.all([remote.download(url, never, first), remote.download(url, never, first)]);
  await timedOut;
  const controller = new AbortController();
  const aborted = remote.download(url, controller.signal, second);
  const waiting = remote.download(url, never, third);
  await sleep(2_500); // longer than the time limit, which does not include this
  controller.abort(new Error("the client disconnected"));
  await expect(aborted).rejects.toThrow("the client disconnected");
  remote.release(first);
  expect(Buffer.from(await waiting)).toEqual(file);
});

test("a request exceeds the memory if all that hold a part wait for more", async () => {
  const memory = new DownloadMemory(10);
  const [first, second] = [{}, {}];
  await Promise.all([memory.claim(first, 5, never), memory.claim(second, 5, never)]);
  const done: string[] = [];
  const more = [
    memory.claim(second, 5, never).then(() => done.push("second")),
    memory.claim(first, 5, never).then(() => done.push("first")),
  ];
  await more[1];
  expect(done).toEqual(["first"]);
  memory.release(first);
  await more[0];
});

test.each([
  ["93.184.216.34", true],
  ["2606:4700::1111", true],
  ["::ffff:8.8.8.8", true],
  ["0.0.0.0", false],
  ["10.1.2.3", false],
  ["100.64.0.1", false],
  ["172.16.0.1", false],
  ["198.18.0.1", false],
  ["224.0.0.1", false],
  ["255.255.255.255", false],
  ["::", false],
  ["::ffff:127.0.0.1", false],
  ["::127.0.0.1", false],
  ["64:ff9b::a00:1", false],
  ["2002:7f00:1::", false],
  ["fc00::1", false],
  ["fe80::1", false],
  ["not an address", false],
])("%s is public: %s", (address, expected) => {
  expect(isPublicAddress(address)).toBe(expected);
});
