import { once } from "node:events";
import { createServer } from "node:net";
import { loopback } from "./simulation-types.ts";

/**
 * Range below the ephemeral ports of Linux (from 32768) and macOS (from 49152), because an outgoing connection could
 * otherwise use a port between the check and the listen.
 */
const range = { first: 20_000, last: 32_000 } as const;

/** Returns distinct free ports of this machine, none of them in `except`. */
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

/** Returns whether a program listens on a port. */
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
