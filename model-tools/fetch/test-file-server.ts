import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";

/** Handles one request in a test. */
export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

export interface TestServer {
  readonly url: URL;
  /** Received requests, in order. */
  readonly requests: readonly {
    readonly method: string;
    readonly path: string;
    readonly headers: IncomingMessage["headers"];
  }[];
  close(): Promise<void>;
}

/** Starts a server that uses the answers in order, the last one for all later requests. */
export async function startFileServer(...answers: readonly Answer[]): Promise<TestServer> {
  const { requests, listener } = inOrder(answers);
  return { ...(await listening(createServer(listener))), requests };
}

/** Starts the same server with TLS, as `localhost`. */
export async function startTlsFileServer(
  certificate: { readonly cert: string; readonly key: string },
  ...answers: readonly Answer[]
): Promise<TestServer> {
  const { requests, listener } = inOrder(answers);
  const { url, close } = await listening(createTlsServer(certificate, listener));
  return { url: new URL(`https://localhost:${url.port}/`), close, requests };
}

function inOrder(answers: readonly Answer[]) {
  const requests: TestServer["requests"][number][] = [];
  const listener: Answer = (incoming, response) => {
    const { method = "", url = "", headers } = incoming;
    requests.push({ method, path: url, headers });
    answers[Math.min(requests.length, answers.length) - 1]!(incoming, response);
  };
  return { requests, listener };
}

interface FileAnswer {
  /** Ignores the range and sends the complete file. */
  readonly ignoresRange?: boolean;
  /** Sends this number of bytes and closes the connection when they have arrived. */
  readonly cut?: { readonly bytes: number; readonly arrived: () => Promise<boolean> };
  readonly headers?: Readonly<Record<string, string>>;
}

/** Serves a file like an object store: complete, the requested range, or `416`. */
export function file(body: Buffer, options: FileAnswer = {}): Answer {
  const { ignoresRange = false, cut, headers = {} } = options;
  return ({ headers: asked }, response) => {
    const range = /^bytes=(\d+)-$/.exec(asked.range ?? "");
    const from = range !== null && !ignoresRange ? Number(range[1]) : 0;
    if (from > 0 && from >= body.length) {
      response.writeHead(416, { "content-range": `bytes */${body.length}` }).end();
      return;
    }
    const part = body.subarray(from);
    response.writeHead(from > 0 ? 206 : 200, {
      "content-length": String(part.length),
      ...headers,
      ...(from > 0 && { "content-range": `bytes ${from}-${body.length - 1}/${body.length}` }),
    });
    if (cut === undefined) response.end(part);
    else void cutOff(response, part.subarray(0, cut.bytes), cut.arrived);
  };
}

/** Sends bytes and closes the connection after the client has read them, because unread bytes would be lost. */
export async function cutOff(
  response: ServerResponse,
  piece: Buffer,
  arrived: () => Promise<boolean>,
): Promise<void> {
  response.write(piece);
  while (!(await arrived())) await new Promise((resolve) => setTimeout(resolve, 2));
  response.socket?.destroy();
}

export function status(code: number, headers: Readonly<Record<string, string>> = {}): Answer {
  return (_request, response) => void response.writeHead(code, headers).end("no");
}

export function redirect(to: string, headers: Readonly<Record<string, string>> = {}): Answer {
  return status(302, { location: to, ...headers });
}

export interface TestProxy extends TestServer {
  /** `host:port` of each tunnel. */
  readonly tunnels: readonly string[];
}

/** Starts a proxy that forwards requests with an absolute URL and opens tunnels. */
export async function startProxy(credentials?: string): Promise<TestProxy> {
  const requests: TestServer["requests"][number][] = [];
  const tunnels: string[] = [];
  const expected =
    credentials === undefined ? undefined : `Basic ${Buffer.from(credentials).toString("base64")}`;
  const isKnown = ({ headers }: IncomingMessage) => headers["proxy-authorization"] === expected;
  const server = createServer((incoming, response) => {
    const { method = "", url = "", headers } = incoming;
    requests.push({ method, path: url, headers });
    if (!isKnown(incoming)) {
      response.writeHead(407).end();
      return;
    }
    const onward = request(url, { method, headers: { ...headers, connection: "close" } });
    onward.on("response", (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    onward.end();
  });
  server.on("connect", (incoming, socket: Socket) => {
    if (!isKnown(incoming)) {
      socket.end("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
      return;
    }
    tunnels.push(incoming.url ?? "");
    // every name resolves to this machine, so that no traffic leaves it
    const port = Number(incoming.url?.split(":").at(-1));
    const onward = connect(port, "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      onward.pipe(socket).pipe(onward);
    });
    for (const end of [onward, socket]) end.on("error", () => socket.destroy());
  });
  return { ...(await listening(server)), requests, tunnels };
}

async function listening(
  server: ReturnType<typeof createServer | typeof createTlsServer>,
): Promise<Pick<TestServer, "url" | "close">> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: new URL(`http://127.0.0.1:${port}/`),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
