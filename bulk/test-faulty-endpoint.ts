import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Proxy in front of an S3 server that rejects requests, as AWS does. Runs without a build step, so it imports nothing of the project. */
export class FaultyEndpoint {
  /** Returns the error of a request; undefined forwards it. */
  reject: () => { readonly status: number; readonly code: string } | undefined = () => undefined;
  requests = 0;
  rejections = 0;
  readonly #server: Server;

  constructor(port: number) {
    this.#server = createServer((incoming, response) => {
      this.requests += 1;
      const error = this.reject();
      if (error !== undefined) {
        this.rejections += 1;
        incoming.resume();
        response.writeHead(error.status, { "content-type": "application/xml" });
        response.end(`<Error><Code>${error.code}</Code><Message>injected</Message></Error>`);
        return;
      }
      const { method, url: path, headers } = incoming;
      const upstream = request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
        response.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(response);
      });
      upstream.on("error", () => response.destroy());
      incoming.pipe(upstream);
    });
  }

  async listen(port = 0, host = "127.0.0.1"): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(port, host, resolve));
    return `http://${host}:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
