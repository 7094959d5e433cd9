import { once } from "node:events";
import { createServer } from "node:net";
import { loopback } from "./simulation-types.ts";

/**
 * Below the ports that Linux (32768 and up) and macOS (49152 and up) give to outgoing connections: one of those could
 * take a port between the moment it is found free and the moment it is listened on.
 */
const range = { first: 20_000, last: 32_000 } as const;

/** Ports of this machine that were free a moment ago, all different, and none of `except`. */
export async function freePorts(
  count: number,
  except: ReadonlySet<number> = new Set(),
): Promise<readonly number[]> {
  const found = new Set<number>();
  while (found.size < count) {
    const port = range.first + Math.floor(Math.random() * (range.last - range.first + 1));
    if (found.has(port) || except.has(port) || (await isPortInUse(port))) continue;
    found.add(port);
  }
  return [...found];
}

/** Whether another program listens on a port. */
export async function isPortInUse(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, loopback), "listening");
    server.close();
    await once(server, "close");
    return false;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return true;
    throw error;
  }
}
