import { once } from "node:events";
import type { AddressInfo, Server } from "node:net";
import type { PreparedRequests } from "../requests/prepared-requests.ts";

/** One request of 100 bytes to a server, for tests of the load generator. */
export function requestsTo(url: string, changes: Partial<PreparedRequests> = {}): PreparedRequests {
  return {
    transport: "http",
    url,
    path: "/any",
    headers: {},
    requests: [{ headers: {}, body: new Uint8Array(100) }],
    imagesPerRequest: 1,
    ...changes,
  };
}

/** Lets a server listen on a free port, which is returned. */
export async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}
