import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";

/** API server for tests in this process, and its kubeconfig. */

export interface ApiRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  /** Header `authorization`. */
  readonly authorization?: string;
  // biome-ignore lint/suspicious/noExplicitAny: bodies of several kinds
  readonly body: any;
}

/** Response: an object, text, a rejection with a status, or a closed connection. */
export type ApiAnswer =
  | object
  | string
  | { readonly rejected: number; readonly message: string }
  | "closed";

export interface TestCluster {
  readonly kubeconfig: string;
  readonly url: string;
  readonly requests: ApiRequest[];
  close(): void;
}

export interface ClusterUser {
  readonly token?: string;
  readonly exec?: object;
}

/** Starts the API server. A request for which `answer` returns undefined gets status 404. */
export async function testCluster(
  answer: (request: ApiRequest) => ApiAnswer | undefined,
  user: ClusterUser = {},
): Promise<TestCluster> {
  const requests: ApiRequest[] = [];
  const server = createServer(async (incoming, response) => {
    const { pathname, searchParams } = new URL(incoming.url ?? "", "http://cluster");
    const request = {
      method: incoming.method ?? "GET",
      path: pathname,
      query: searchParams,
      authorization: incoming.headers.authorization,
      body: await jsonBody(incoming),
    };
    requests.push(request);
    const reply = answer(request) ?? { rejected: 404, message: `${pathname} not found` };
    if (reply === "closed") {
      incoming.socket.destroy();
      return;
    }
    if (typeof reply === "string") {
      response.end(reply);
      return;
    }
    const rejected = "rejected" in reply ? reply : undefined;
    response.writeHead(rejected?.rejected ?? 200, { "content-type": "application/json" });
    response.end(
      JSON.stringify(
        rejected === undefined
          ? reply
          : { kind: "Status", code: rejected.rejected, message: rejected.message },
      ),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const folder = mkdtempSync(join(tmpdir(), "clipstack-cluster-"));
  const kubeconfig = join(folder, "config");
  writeFileSync(
    kubeconfig,
    stringify({
      apiVersion: "v1",
      kind: "Config",
      "current-context": "mine",
      contexts: [{ name: "mine", context: { cluster: "it", user: "me" } }],
      clusters: [{ name: "it", cluster: { server: url } }],
      users: [{ name: "me", user }],
    }),
  );
  return {
    kubeconfig,
    url,
    requests,
    close() {
      server.closeAllConnections();
      server.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function jsonBody(incoming: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString("utf8");
  return text === "" ? undefined : JSON.parse(text);
}
