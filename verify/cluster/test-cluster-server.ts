import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";

/** For tests: an API server in this process, and a kubeconfig that leads to it. */

export interface ApiRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  /** `authorization` of the request. */
  readonly authorization?: string;
  // biome-ignore lint/suspicious/noExplicitAny: of many kinds, and tests look into all of them
  readonly body: any;
}

/** Answer with an object, with text, with a status of the API, or by closing the connection. */
export type ApiAnswer =
  | object
  | string
  | { readonly refused: number; readonly message: string }
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

/** Serves until it is closed. What `answer` does not know is not there: 404. */
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
    const said = answer(request) ?? { refused: 404, message: `${pathname} not found` };
    if (said === "closed") {
      incoming.socket.destroy();
      return;
    }
    if (typeof said === "string") {
      response.end(said);
      return;
    }
    const refused = "refused" in said ? said : undefined;
    response.writeHead(refused?.refused ?? 200, { "content-type": "application/json" });
    response.end(
      JSON.stringify(
        refused === undefined
          ? said
          : { kind: "Status", code: refused.refused, message: refused.message },
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
