import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSocketServer, type Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Tensor } from "../../contract/tensor.ts";
import { listen, listenHttp } from "../../http/test-listener.ts";
import { openHttpTransport } from "./http-transport.ts";
import type { Transport } from "./transport.ts";
import { TritonError } from "./transport.ts";

const options = { timeoutMs: 5_000 };
const image: Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [1, 2],
  data: new Float32Array([1, 2]),
};

/** A client of a server that responds as the test specifies. */
async function clientOf(
  respond: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Transport> {
  const { url, stop } = await listenHttp((request, response) => {
    request.resume();
    request.on("end", () => respond(request, response));
  });
  onTestFinished(stop);
  const transport = openHttpTransport({ url });
  onTestFinished(() => transport.close());
  return transport;
}

/** Inference response: JSON, then binary tensors. */
function respond(json: unknown, binary = new Uint8Array(), headerLength?: number) {
  return (_request: IncomingMessage, response: ServerResponse) => {
    const head = Buffer.from(JSON.stringify(json));
    response
      .setHeader("inference-header-content-length", headerLength ?? head.byteLength)
      .end(Buffer.concat([head, binary]));
  };
}

const output = {
  name: "embedding",
  datatype: "FP32",
  shape: [1, 2],
  parameters: { binary_data_size: 8 },
};

async function failure(call: Promise<unknown>): Promise<TritonError> {
  const error = await call.catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(TritonError);
  return error as TritonError;
}

describe("fails with 'protocol' for a response that violates the protocol", () => {
  test.each(
    Object.entries<Parameters<typeof respond>>({
      "[protocol] m: unexpected size for output 'embedding', expecting 4 additional bytes": [
        { outputs: [output] },
        new Uint8Array(4),
      ],
      "[protocol] m: byte size mismatch for 'embedding': FP32 [1,3] has 12 bytes, got 8": [
        { outputs: [{ ...output, shape: [1, 3] }] },
        new Uint8Array(8),
      ],
      "[protocol] m: Unable to parse 'outputs': Invalid input: expected array, received undefined":
        [{ id: "7" }],
      "[protocol] m: expected output 'embedding', got 'logits'": [
        { id: "7", outputs: [{ ...output, name: "logits" }] },
        new Uint8Array(8),
      ],
      "[protocol] m: expected the response to request '7', got '8'": [
        { id: "8", outputs: [output] },
        new Uint8Array(8),
      ],
    }),
  )("%s", async (message, response) => {
    const transport = await clientOf(respond(...response));
    const error = await failure(
      transport.infer("m", [image], { ...options, requestId: "7", outputs: ["embedding"] }),
    );
    expect([error.code, error.message]).toEqual(["protocol", message]);
  });

  test("metadata that is not JSON, or lacks a field", async () => {
    const html = await clientOf((_request, response) => response.end("<html>"));
    expect((await failure(html.modelMetadata("m", options))).message).toBe(
      "[protocol] m: the response is not JSON",
    );
    const partial = await clientOf((_request, response) => response.end('{"name":"m"}'));
    expect((await failure(partial.modelMetadata("m", options))).message).toMatch(
      /^\[protocol\] m: (platform|inputs): /,
    );
    expect((await failure(partial.statistics("m", options))).message).toMatch(
      /^\[protocol\] m: model_stats: /,
    );
  });
});

describe("maps HTTP statuses to error codes", () => {
  test.each([
    [400, '{"error":"no"}', "[rejected] m: no (HTTP 400 from URL)"],
    [404, '{"error":"gone"}', "[rejected] m: gone (HTTP 404 from URL)"],
    [500, '{"error":"broken"}', "[rejected] m: broken (HTTP 500 from URL)"],
    [502, "<h1>Bad\n Gateway</h1>", "[unavailable] m: <h1>Bad Gateway</h1> (HTTP 502 from URL)"],
    [
      503,
      '{"error":"Exceeds maximum queue size"}',
      "[unavailable] m: Exceeds maximum queue size (HTTP 503 from URL)",
    ],
    [504, "", "[timeout] m: no reason given (HTTP 504 from URL)"],
    [204, "", "[protocol] m: no reason given (HTTP 204 from URL)"],
  ])("%i", async (status, body, message) => {
    const transport = await clientOf((_request, response) => {
      response.statusCode = status;
      response.end(body);
    });
    const error = await failure(transport.infer("m", [image], options));
    expect(error.message.replace(transport.target, "URL")).toBe(message);
  });
});

test("fails with 'unavailable' when the connection breaks before the response", async () => {
  const transport = await clientOf((_request, response) => response.destroy());
  const error = await failure(transport.infer("m", [image], options));
  expect(error.code).toBe("unavailable");
  expect(error.message).toMatch(/^\[unavailable\] m: cannot reach http:\/\/127\.0\.0\.1:\d+: /);
});

test("fails with 'timeout' when the response starts and never ends", async () => {
  const transport = await clientOf((_request, response) => response.write("{"));
  const error = await failure(transport.infer("m", [image], { timeoutMs: 100 }));
  expect(error.code).toBe("timeout");
});

test("limits the number of connections", async () => {
  let open = 0;
  let most = 0;
  const server = createServer((request, response) => {
    request.resume();
    setTimeout(() => response.end(), 5);
  });
  server.on("connection", (socket) => {
    open += 1;
    most = Math.max(most, open);
    socket.on("close", () => {
      open -= 1;
    });
  });
  const { port, stop } = await listen(server);
  onTestFinished(stop);
  const transport = openHttpTransport({ url: `http://127.0.0.1:${port}`, connections: 2 });
  await Promise.all(Array.from({ length: 10 }, () => transport.live(options)));
  await transport.close();
  expect(most).toBe(2);
});

test("closes its connections", async () => {
  // a bare socket: an HTTP server would close idle connections itself
  const server = createSocketServer();
  const { port, stop } = await listen(server);
  onTestFinished(stop);
  const closed = once(server, "connection").then(async ([socket]: Socket[]) => {
    socket?.on("data", () => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    await once(socket!, "close");
  });
  const transport = openHttpTransport({ url: `http://127.0.0.1:${port}` });
  expect(await transport.live(options)).toBe(true);
  await transport.close();
  await closed;
});

test.each(["localhost:8000", "http://host:8000/v2", "ftp://host", "nonsense"])(
  "fails to open '%s'",
  (url) => {
    expect(() => openHttpTransport({ url })).toThrow(
      new RegExp(`^url must be http://host:port, .*got '${url}'$`),
    );
  },
);
