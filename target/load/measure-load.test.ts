import { createServer, type Server, type Socket } from "node:net";
import { afterAll, describe, expect, test } from "vitest";
import type { LoadShape } from "../../contract/load-shape.ts";
import {
  type NullServer,
  startNullGrpcServer,
  startNullHttpServer,
} from "../../lab/load/null-server.ts";
import { measureLoad } from "./measure-load.ts";
import type { MeasureOptions } from "./measured-load.ts";
import { listen, requestsTo } from "./test-requests.ts";

const servers: NullServer[] = [];
const others: { close(): unknown }[] = [];
const sockets: Socket[] = [];
afterAll(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of others.splice(0)) server.close();
});

const start = { http: startNullHttpServer, grpc: startNullGrpcServer };

async function serverOf(
  transport: "http" | "grpc",
  options: Parameters<typeof startNullHttpServer>[0] = {},
): Promise<NullServer> {
  const server = await start[transport](options);
  servers.push(server);
  return server;
}

/** Starts a server that passes each connection to `onConnection`. */
async function socketServer(onConnection: (socket: Socket) => void): Promise<string> {
  const server: Server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    onConnection(socket);
  });
  others.push(server);
  return `http://127.0.0.1:${await listen(server)}`;
}

/** Requests of two sizes, of four images each. */
const requestsOf = (url: string, transport: "http" | "grpc") =>
  requestsTo(url, {
    transport,
    requests: [100, 200].map((size) => ({ headers: {}, body: new Uint8Array(size) })),
    imagesPerRequest: 4,
  });

const closedLoop: LoadShape = { kind: "closed loop", concurrency: 2 };

function optionsOf(options: Partial<MeasureOptions> = {}): MeasureOptions {
  return {
    load: closedLoop,
    windowSeconds: 0.1,
    windows: 3,
    durationSeconds: 5,
    workers: 1,
    signal: new AbortController().signal,
    ...options,
  };
}

/** Measures a load of a server over HTTP. */
const measure = (url: string, options: Partial<MeasureOptions> = {}) =>
  measureLoad(requestsOf(url, "http"), optionsOf(options));

test.each(["http", "grpc"] as const)(
  "a closed loop over %s counts every answer of its windows",
  async (transport) => {
    const server = await serverOf(transport, { delayMs: 5, responseBytes: 300 });
    const measured = await measureLoad(requestsOf(server.url, transport), optionsOf());
    expect(measured.outcome).toBe("complete");
    expect(measured.windows).toHaveLength(3);
    expect(measured.errorsWithWarmup).toEqual({});
    expect(measured.requestBytes).toBe(150);
    expect(measured.responseBytes).toBe(300);
    expect(measured.samples).toBeGreaterThan(10);
    expect(measured.samples).toBe(measured.histogram.reduce((sum, [, count]) => sum + count, 0));
    expect(measured.imagesPerSecond).toBeCloseTo(4 * measured.requestsPerSecond);
    expect(measured.latencyMs?.p50).toBeGreaterThanOrEqual(4);
  },
);

test("the number of windows is fixed and all of them count, however much they differ", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const onWindow = (_window: unknown, index: number) => {
    if (index === 0) server.pause(150);
  };
  const measured = await measure(server.url, { windows: 4, onWindow });
  expect(measured.windows).toHaveLength(4);
  const all = measured.windows.reduce((sum, { requests }) => sum + requests, 0);
  // two clients: requests outstanding at the start are excluded, those outstanding at the end included
  expect(Math.abs(measured.samples - all)).toBeLessThanOrEqual(2);
  expect(measured.latencyMs?.max).toBeGreaterThan(100);
});

test("the warm-up has its length, whatever the server does", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const measured = await measure(server.url, { warmupSeconds: 0.6 });
  expect(measured.warmup.seconds).toBeGreaterThanOrEqual(0.59);
  expect(measured.warmup.requests).toBeGreaterThan(10);
});

test("a duration limit too short for enough windows is reported", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const measured = await measure(server.url, {
    durationSeconds: 1,
    windowSeconds: 0.3,
    windows: 10,
  });
  expect(measured.outcome).toBe("short");
  expect(measured.samples).toBeGreaterThan(0);
});

test("a window is extended until it has the minimum number of responses", async () => {
  const server = await serverOf("http", { delayMs: 100 });
  const measured = await measure(server.url, { windowSeconds: 0.1 });
  for (const { requests } of measured.windows) expect(requests).toBeGreaterThanOrEqual(3);
});

test("an interrupted load returns the measurements so far", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const interrupt = new AbortController();
  const measured = await measure(server.url, {
    windows: 10,
    signal: interrupt.signal,
    onWindow: (_window, index) => {
      if (index === 1) interrupt.abort();
    },
  });
  expect(measured.outcome).toBe("interrupted");
  expect(measured.windows).toHaveLength(2);
  expect(measured.samples).toBeGreaterThan(0);
  expect(measured.errorsWithWarmup).toEqual({});
});

test("the counters are read at the boundaries of the measured windows", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const measured = await measure(server.url, {
    windows: 5,
    readCounters: async () => server.responses,
  });
  const { before, after } = measured.counters ?? {};
  // two clients may each have one outstanding response
  expect(Math.abs(Number(after) - Number(before) - measured.samples)).toBeLessThanOrEqual(4);
});

test("a server without counters is still measured", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const measured = await measure(server.url, {
    readCounters: () => Promise.reject(new Error("no")),
  });
  expect(measured).not.toHaveProperty("counters");
  expect(measured.samples).toBeGreaterThan(0);
});

test("Ctrl-C does not wait for missing counters", async () => {
  const server = await serverOf("http", { delayMs: 5 });
  const interrupt = new AbortController();
  const startedAt = performance.now();
  const measured = await measure(server.url, {
    signal: interrupt.signal,
    readCounters: () => {
      setTimeout(() => interrupt.abort(), 100);
      return new Promise((resolve) => setTimeout(resolve, 20_000).unref());
    },
  });
  expect(measured.outcome).toBe("interrupted");
  expect(performance.now() - startedAt).toBeLessThan(10_000);
});

test("failed requests are counted per code and excluded from percentiles", async () => {
  let count = 0;
  const url = await socketServer((socket) => {
    socket.on("data", () => {
      count += 1;
      socket.write(
        `HTTP/1.1 ${count % 4 === 0 ? "503 Busy" : "200 OK"}\r\ncontent-length: 0\r\n\r\n`,
      );
    });
  });
  const measured = await measure(url, { load: { kind: "closed loop", concurrency: 1 } });
  expect(Object.keys(measured.errors)).toEqual(["503"]);
  const failed = measured.errors["503"] ?? 0;
  expect(failed / (failed + measured.samples)).toBeCloseTo(0.25, 1);
  expect(measured.errorsWithWarmup["503"]).toBeGreaterThan(failed);
  expect(measured.samples).toBe(measured.histogram.reduce((sum, [, n]) => sum + n, 0));
});

test.each([
  ["http", (port: number) => `http://127.0.0.1:${port}`],
  ["grpc", (port: number) => `127.0.0.1:${port}`],
] as const)("fails in one line when nothing listens for %s", async (transport, urlOf) => {
  const server = await serverOf("http");
  const port = Number(new URL(server.url).port);
  await servers.pop()?.close();
  await expect(measureLoad(requestsOf(urlOf(port), transport), optionsOf())).rejects.toThrow(
    `${urlOf(port)}: connection refused`,
  );
});

const openLoop: LoadShape = { kind: "open loop", arrivals: "poisson", ratePerSecond: 100, seed: 1 };

test.each([
  ["http", 3],
  ["grpc", 1],
] as const)(
  "an open loop over %s, with workers: %d, has the requested rate",
  async (transport, workers) => {
    const server = await serverOf(transport, { delayMs: 50 });
    const measured = await measureLoad(
      requestsOf(server.url, transport),
      optionsOf({ load: { ...openLoop, arrivals: "constant" }, workers, windowSeconds: 1 }),
    );
    expect(measured.client.workers).toBe(workers);
    // requests due, but `seconds` omits a silence at the end of a window, which weighs less in long ones
    expect(measured.samples / measured.seconds).toBeGreaterThan(85);
    expect(measured.samples / measured.seconds).toBeLessThan(115);
    expect(measured.achievedShare).toBe(1);
    expect(measured.errorsWithWarmup).toEqual({});
  },
);

// concurrent, because these tests wait for seconds and use little CPU
describe.concurrent("over seconds", () => {
  test("an open loop that exceeds the server's capacity achieves less than the due rate", async () => {
    // 20 per second, independent of the load
    let free = 0;
    const url = await socketServer((socket) => {
      socket.on("data", () => {
        free = Math.max(free, performance.now()) + 50;
        setTimeout(
          () => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
          free - performance.now(),
        );
      });
    });
    const measured = await measure(url, { load: openLoop, windowSeconds: 0.5, durationSeconds: 4 });
    expect(measured.requestsPerSecond).toBeLessThan(40);
    expect(measured.achievedShare).toBeLessThan(0.9);
  });

  test("a stall of one second shows in full in the p99 of an open loop and is hidden in a closed loop", async () => {
    const stallMs = 1_000;
    const during = async (load: LoadShape) => {
      const server = await serverOf("http", { delayMs: 5 });
      const measured = await measure(server.url, {
        load,
        windowSeconds: 1,
        durationSeconds: 20,
        windows: 5,
        onWindow: (_window, index) => {
          if (index === 1) server.pause(stallMs);
        },
      });
      expect(measured.latencyMs?.max).toBeGreaterThan(0.9 * stallMs);
      return measured.latencyMs;
    };
    const [open, closed] = await Promise.all([
      during(openLoop),
      during({ kind: "closed loop", concurrency: 1 }),
    ]);
    // 100 of 500 requests were due during the stall; all of them waited
    expect(open?.p99).toBeGreaterThan(0.8 * stallMs);
    // one client sent one request during the stall and the next one after it
    expect(closed?.p95).toBeLessThan(0.5 * stallMs);
  });

  /** Responds after 5 ms, except during a silence of a given length; `Infinity`: forever. */
  async function silenceable() {
    let untilMs = 0;
    const url = await socketServer((socket) => {
      socket.on("data", () => {
        const waitMs = Math.max(5, untilMs - performance.now());
        if (waitMs === Number.POSITIVE_INFINITY) return;
        setTimeout(() => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), waitMs);
      });
    });
    return {
      url,
      silence: (ms: number) => {
        untilMs = performance.now() + ms;
      },
    };
  }

  /** Server that stops responding within the last window. */
  async function silentInTheEnd(load: LoadShape, ms: number) {
    const server = await silenceable();
    const silentAt = { ms: Number.NaN };
    const measured = await measure(server.url, {
      load,
      // on a slow machine the silence starts later in the window
      windowSeconds: 1,
      durationSeconds: 20,
      onWindow: (_window, index) => {
        if (index !== 1) return;
        setTimeout(() => {
          silentAt.ms = performance.now();
          server.silence(ms);
        }, 200);
      },
    });
    expect(silentAt.ms).toBeGreaterThan(0);
    return measured;
  }

  const oneClient: LoadShape = { kind: "closed loop", concurrency: 1 };

  test.each([
    ["an open loop", { ...openLoop, arrivals: "constant" }],
    ["a closed loop", oneClient],
  ] as const)(
    "a stall in the last window of %s is in its latency and its rate, though the answers come later",
    async (_what, load) => {
      const measured = await silentInTheEnd(load, 1_000);
      expect(measured.latencyMs?.max).toBeGreaterThan(600);
      expect(measured.errorsWithWarmup).toEqual({});
      const [first, , last] = measured.windows;
      expect(last?.imagesPerSecond).toBeLessThan(0.8 * (first?.imagesPerSecond ?? 0));
      // of about 300 requests, 80 were due in the rest of the window; one client had one outstanding
      if (load.kind === "open loop") {
        expect(measured.latencyMs?.p99).toBeGreaterThan(600);
        expect(last?.p99Ms).toBeGreaterThan(600);
      }
    },
  );

  test.each([
    ["an open loop", { ...openLoop, arrivals: "constant" }, 20],
    ["a closed loop", oneClient, 1],
  ] as const)(
    "requests of %s that a server never answers are errors",
    async (_what, load, least) => {
      const measured = await silentInTheEnd(load, Number.POSITIVE_INFINITY);
      expect(measured.errors["no response before the load ended"]).toBeGreaterThanOrEqual(least);
      expect(measured.errorsWithWarmup["no response before the load ended"]).toBeGreaterThanOrEqual(
        least,
      );
      expect(measured.latencyMs?.max).toBeLessThan(900);
      if (load.kind === "open loop") expect(measured.achievedShare).toBeLessThan(0.95);
    },
  );

  test("Ctrl-C does not wait for missing responses", async () => {
    const server = await silenceable();
    const interrupt = new AbortController();
    let lastWindowAt = 0;
    const measured = await measure(server.url, {
      load: openLoop,
      windowSeconds: 0.5,
      signal: interrupt.signal,
      onWindow: (_window, index) => {
        if (index === 1) setTimeout(() => server.silence(Number.POSITIVE_INFINITY), 300);
        if (index !== 2) return;
        lastWindowAt = performance.now();
        setTimeout(() => interrupt.abort(), 200);
      },
    });
    expect(measured.outcome).toBe("interrupted");
    expect(measured.errorsWithWarmup).toEqual({});
    expect(performance.now() - lastWindowAt).toBeLessThan(4_000);
  });
});
