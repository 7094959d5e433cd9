import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect, createServer } from "node:net";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { logVerbosity, setLogVerbosity } from "@grpc/grpc-js";
import { Agent, request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../client/triton/http-transport.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../contract/tensor.ts";
import { type ResolvedTritonFlags, renderTritonCommand } from "../contract/triton-flags.ts";
import { testRepository, tinyConfig } from "./test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "./triton-emulator.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

// one test uses a port that is in use
setLogVerbosity(logVerbosity.NONE);

const model = "openclip_vit_b32";
const options = { timeoutMs: 20_000 };
const image: Fp32Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [1, 3, 224, 224],
  data: new Float32Array(imageElements).fill(0.5),
};

/** Queue delay in milliseconds: a request is in flight for at least this time. */
const holdMs = 1500;
const holding = tinyConfig({
  extra: `dynamic_batching { max_queue_delay_microseconds: ${holdMs * 1000} }`,
});

async function start(
  overrides: Partial<ResolvedTritonFlags> = {},
  config = holding,
): Promise<{ server: RunningTritonEmulator; log: string[] }> {
  const repository = await testRepository({ [`${model}/config.pbtxt`]: config });
  onTestFinished(() => repository.remove());
  const log: string[] = [];
  const server = await startTritonEmulator(repository.flags(overrides), {
    log: (line) => log.push(line),
  });
  onTestFinished(() => server.stop().catch(() => {}));
  return { server, log };
}

function clients({ ports }: RunningTritonEmulator) {
  const opened = [
    openHttpTransport({ url: `http://127.0.0.1:${ports.http}` }),
    openGrpcTransport({ target: `127.0.0.1:${ports.grpc}` }),
  ];
  onTestFinished(async () => void (await Promise.all(opened.map((client) => client.close()))));
  return opened;
}

/** Resolves when this number of requests is queued. */
async function waiting(server: RunningTritonEmulator, requests: number): Promise<void> {
  const series = `nv_inference_pending_request_count{model="${model}",version="1"} ${requests}`;
  for (;;) {
    const { body } = await request(`http://127.0.0.1:${server.ports.metrics}/metrics`);
    if ((await body.text()).includes(series)) return;
  }
}

test("logs the address of each service, as Triton does", async () => {
  const { server, log } = await start();
  const { http, grpc, metrics } = server.ports;
  expect(log).toEqual([
    `successfully loaded '${model}' version 1`,
    `Started GRPCInferenceService at 127.0.0.1:${grpc}`,
    `Started HTTPService at 127.0.0.1:${http}`,
    `Started Metrics Service at 127.0.0.1:${metrics}`,
  ]);
});

test("has no metrics port if metrics are disabled", async () => {
  const { server } = await start({ "allow-metrics": false });
  expect(server.ports.metrics).toBeUndefined();
});

test("serves Prometheus' text format at /metrics", async () => {
  const { server } = await start();
  const { headers, body } = await request(`http://127.0.0.1:${server.ports.metrics}/metrics`);
  expect(headers["content-type"]).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect(await body.text()).toContain("# TYPE nv_inference_count counter\n");
});

test("drops a queued request when its client disconnects, over HTTP and gRPC", async () => {
  const { server } = await start();
  for (const client of clients(server)) {
    const controller = new AbortController();
    const call = client.infer(model, [image], { ...options, signal: controller.signal });
    const cancelled = expect(call).rejects.toMatchObject({ code: "cancelled" });
    await waiting(server, 1);
    controller.abort();
    await cancelled;
    await waiting(server, 0);
  }
  const { body } = await request(`http://127.0.0.1:${server.ports.metrics}/metrics`);
  const text = await body.text();
  expect(text).toContain(
    `nv_inference_request_failure{model="${model}",version="1",reason="CANCELED"} 2`,
  );
  expect(text).toContain(`nv_inference_exec_count{model="${model}",version="1"} 0`);
});

describe("a stop", () => {
  test("answers the requests in flight, over HTTP and gRPC", async () => {
    const { server } = await start();
    const transports = clients(server);
    const calls = transports.map((client) => client.infer(model, [image], options));
    await waiting(server, 2);
    const [outputs] = await Promise.all([Promise.all(calls), server.stop()]);
    expect(outputs.map(([output]) => output?.shape)).toEqual([
      [1, 512],
      [1, 512],
    ]);
  });

  test("resets no connection of busy clients: each ends with a response", async () => {
    const { server } = await start({}, tinyConfig());
    const [http] = clients(server);
    let answers = 0;
    let enough = () => {};
    const warm = new Promise<void>((resolve) => {
      enough = resolve;
    });
    const ask = async (): Promise<Error> => {
      for (;;) {
        try {
          await http!.infer(model, [image], options);
        } catch (error) {
          return error as Error;
        }
        answers += 1;
        if (answers === 20) enough();
      }
    };
    const clientsEnd = Promise.all(Array.from({ length: 5 }, ask));
    await warm;
    await server.stop();
    // a connection that was being opened while the listener closed is reset before any request is sent
    for (const { message } of await clientsEnd) {
      expect(message).toMatch(/: connect ECONN(REFUSED|RESET) /);
    }
  });

  test("accepts no new connections", async () => {
    const { server } = await start();
    await server.stop();
    for (const client of clients(server)) {
      await expect(client.infer(model, [image], options)).rejects.toMatchObject({
        code: "unavailable",
      });
    }
  });

  test("does not wait for idle connections", async () => {
    const { server } = await start({ "exit-timeout-secs": 30 });
    const agent = new Agent({ keepAliveTimeout: 60_000 });
    onTestFinished(() => agent.close());
    const { body } = await request(`http://127.0.0.1:${server.ports.http}/v2`, {
      dispatcher: agent,
    });
    await body.dump();
    for (const client of clients(server)) expect(await client.live(options)).toBe(true);
    // rejects if it takes longer than the exit timeout
    await expect(server.stop()).resolves.toBeUndefined();
  });

  test.each([
    ["nothing", ""],
    ["half a head", "POST /v2/models/x/infer HTTP/1.1\r\nhost"],
    ["half a body", "POST /v2/models/x/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"],
  ])("does not wait for a connection on which %s was sent", async (_, text) => {
    const { server } = await start({ "exit-timeout-secs": 30 });
    for (const port of [server.ports.http, server.ports.grpc]) {
      const socket = connect(port, "127.0.0.1").on("error", () => {});
      onTestFinished(() => void socket.destroy());
      await once(socket, "connect");
      if (text !== "" && port === server.ports.http) socket.write(text);
    }
    await expect(server.stop()).resolves.toBeUndefined();
  });

  test("does not wait for an incomplete gRPC call", async () => {
    const { server } = await start({ "exit-timeout-secs": 30 });
    const session = connectHttp2(`http://127.0.0.1:${server.ports.grpc}`).on("error", () => {});
    onTestFinished(() => session.destroy());
    const call = session.request({
      ":method": "POST",
      ":path": "/inference.GRPCInferenceService/ModelInfer",
      "content-type": "application/grpc",
      te: "trailers",
    });
    call.on("error", () => {});
    call.write(Buffer.from([0, 0, 0]));
    await once(session, "remoteSettings");
    await expect(server.stop()).resolves.toBeUndefined();
  });

  test("answers a gRPC call that keeps arriving", async () => {
    const { server } = await start();
    const session = connectHttp2(`http://127.0.0.1:${server.ports.grpc}`);
    onTestFinished(() => session.destroy());
    await once(session, "remoteSettings");
    const call = session.request({
      ":method": "POST",
      ":path": "/inference.GRPCInferenceService/ServerLive",
      "content-type": "application/grpc",
      te: "trailers",
    });
    const trailers = once(call, "trailers");
    // one unknown field of 96 bytes
    const message = Buffer.concat([Buffer.from([0, 0, 0, 0, 98, 0x7a, 96]), Buffer.alloc(96)]);
    call.write(message.subarray(0, 5));
    await setTimeout(100);
    const stopped = server.stop();
    for (let at = 5; at < message.length; at += 10) {
      await setTimeout(500);
      call.write(message.subarray(at, at + 10));
    }
    call.end();
    call.resume();
    expect((await trailers)[0]).toMatchObject({ "grpc-status": "0" });
    await stopped;
  });

  test("fails if requests take longer than the exit timeout, and still closes", async () => {
    const { server } = await start({ "exit-timeout-secs": 0 });
    const [http] = clients(server);
    const call = http!.infer(model, [image], options).catch((error) => error);
    await waiting(server, 1);
    await expect(server.stop()).rejects.toThrow("Exit timeout expired. Exiting immediately.");
    expect(await call).toMatchObject({ code: "unavailable" });
  });

  test("can be called twice", async () => {
    const { server } = await start();
    await Promise.all([server.stop(), server.stop()]);
  });
});

describe("a start", () => {
  test.each([
    ["HTTP", "http-port"],
    ["GRPC", "grpc-port"],
    ["Metrics", "metrics-port"],
  ] as const)(
    "fails if the %s port is in use and leaves nothing running",
    async (service, flag) => {
      const blocker = createServer().listen(0, "127.0.0.1");
      await once(blocker, "listening");
      onTestFinished(() => void blocker.close());
      const address = blocker.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      await expect(start({ [flag]: port })).rejects.toThrow(
        `failed to start ${service} service: Socket '127.0.0.1:${port}' already in use`,
      );
    },
  );

  test("fails on an invalid model with its name and the reason", async () => {
    const repository = await testRepository({
      [`${model}/config.pbtxt`]: tinyConfig().replace("512", "256"),
    });
    onTestFinished(() => repository.remove());
    await expect(startTritonEmulator(repository.flags(), { log: () => {} })).rejects.toThrow(
      `failed to load model '${model}': model '${model}': output 'embedding' must have the model's shape [-1,512], got [-1,256]`,
    );
  });

  test("rejects an unsupported model control mode", async () => {
    await expect(start({ "model-control-mode": "poll" })).rejects.toThrow(
      "--model-control-mode must be none or explicit with this server, got 'poll'",
    );
  });
});

describe("the program", () => {
  const program = `import { runTritonEmulator } from ${JSON.stringify(new URL("./triton-emulator.ts", import.meta.url).href)}; await runTritonEmulator(process.argv.slice(1));`;

  function run(args: readonly string[]) {
    const child = spawn(
      process.execPath,
      ["--import", "tsx", "--input-type=module", "--eval", program, "--", ...args],
      {
        cwd: fileURLToPath(new URL("../", import.meta.url)),
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    let stderr = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    const exited = once(child, "exit").then(([code]) => code as number | null);
    onTestFinished(() => void child.kill("SIGKILL"));
    return { child, exited, stderr: () => stderr };
  }

  async function freePorts(count: number): Promise<readonly number[]> {
    const servers = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
    await Promise.all(servers.map((server) => once(server, "listening")));
    const ports = servers.map((server) => (server.address() as { port: number }).port);
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    return ports;
  }

  test("serves with a command line of the stacks and exits with 0 on SIGTERM", async () => {
    const repository = await testRepository();
    onTestFinished(() => repository.remove());
    const [http, grpc, metrics] = await freePorts(3);
    const [, ...args] = renderTritonCommand(
      repository.flags({ "http-port": http, "grpc-port": grpc, "metrics-port": metrics }),
    );
    const { child, exited, stderr } = run(args);
    const transport = openHttpTransport({ url: `http://127.0.0.1:${http}` });
    onTestFinished(() => transport.close());
    while (!(await transport.ready(model, options)) && child.exitCode === null)
      await setTimeout(20);
    expect((await transport.infer(model, [image], options))[0]?.shape).toEqual([1, 512]);
    child.kill("SIGTERM");
    expect(await exited).toBe(0);
    expect(stderr()).toMatch(
      new RegExp(
        `^I\\d{4} [\\d:.]+ ${child.pid}\\] Started HTTPService at 127.0.0.1:${http}$`,
        "m",
      ),
    );
  });

  test("exits with 2 and one line on an invalid command line", async () => {
    const { exited, stderr } = run(["--model-repository=/models", "--http-prot=1"]);
    expect(await exited).toBe(2);
    expect(stderr()).toBe("tritonserver: unrecognized option '--http-prot=1'\n");
  });

  test("exits with 1 and one error line on an invalid model", async () => {
    const repository = await testRepository({
      [`${model}/config.pbtxt`]: tinyConfig().replace("8, 16, 32", "64"),
    });
    onTestFinished(() => repository.remove());
    const { exited, stderr } = run([`--model-repository=${repository.path}`]);
    expect(await exited).toBe(1);
    const lines = stderr().trimEnd().split("\n");
    expect(lines.at(-1)).toBe(
      `error: creating server: failed to load model '${model}': dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64`,
    );
    expect(stderr()).not.toMatch(/^\s+at /m);
  });
});
