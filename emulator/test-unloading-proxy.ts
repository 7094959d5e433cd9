import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

/** Time for which a model is not served while it is loaded again, in milliseconds. */
export const unloadedMs = 6_000;

/** Proxy of a Triton server that unloads a model before it loads it again, as NVIDIA's manual advises since 2026. */
export async function unloadingFirst(url: string) {
  const proxy = createServer(async (request, response) => {
    const { method, url: path = "" } = request;
    const body = await buffer(request);
    const { host: _, connection: __, "content-length": ___, ...headers } = request.headers;
    const send = (to: string) =>
      fetch(`${url}${to}`, {
        method,
        headers: headers as Record<string, string>,
        ...(method === "POST" && { body: new Uint8Array(body) }),
      });
    if (path.endsWith("/load")) {
      const { ok } = await send(path.replace(/load$/, "unload"));
      if (ok) await sleep(unloadedMs);
    }
    const answer = await send(path);
    response.writeHead(answer.status).end(Buffer.from(await answer.arrayBuffer()));
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, close: () => proxy.close() };
}
