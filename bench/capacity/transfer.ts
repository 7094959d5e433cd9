/** Way between client and server, as TCP sees it. */
export interface Link {
  /** Shared by all requests of the client, in megabits (10^6) per second. */
  readonly bandwidthMbps: number;
  /** There and back, in milliseconds. */
  readonly roundTripMs: number;
  /**
   * `new`: a connection for each request, which is opened first and then carries a small window of bytes that doubles
   * with each round trip (slow start); so do connections that a server or proxy between resets when idle. `kept`:
   * connections stay open, and so do their windows.
   */
  readonly connections: "new" | "kept";
}

/** What a connection may send before the first answer: ten segments (RFC 6928) of 1460 bytes (IPv4 on Ethernet). */
export const initialWindowBytes = 10 * 1460;

export interface Transfer {
  /** Bytes on the wire, which is shared: what others send meanwhile comes on top. */
  readonly wireMs: number;
  /** Waiting that is not shared: to open the connection, and for the window to open. */
  readonly setUpMs: number;
  readonly rampMs: number;
}

/** Time that a request body takes on a link that is otherwise idle. */
export function transfer(bytes: number, link: Link): Transfer {
  const wireMs = wireTimeMs(bytes, link);
  if (link.connections === "kept") return { wireMs, setUpMs: 0, rampMs: 0 };
  return {
    wireMs,
    setUpMs: link.roundTripMs,
    rampMs: Math.max(0, slowStartMs(bytes, link) - wireMs),
  };
}

export function wireTimeMs(bytes: number, { bandwidthMbps }: Pick<Link, "bandwidthMbps">): number {
  return (bytes * 8) / (bandwidthMbps * 1000);
}

/** From the first byte sent to the last, with a window that starts small and doubles until it fills the link. */
function slowStartMs(bytes: number, link: Link): number {
  let window = initialWindowBytes;
  let left = bytes;
  let ms = 0;
  while (left > window && wireTimeMs(window, link) < link.roundTripMs) {
    ms += link.roundTripMs;
    left -= window;
    window *= 2;
  }
  return ms + wireTimeMs(left, link);
}
