/** Network path between client and server at the TCP level. */
export interface Link {
  /** Bandwidth shared by all requests of the client, in 10^6 bits per second. */
  readonly bandwidthMbps: number;
  /** Round-trip time in milliseconds. */
  readonly roundTripMs: number;
  /**
   * `new`: a new connection for each request, with a handshake and slow start; also applies to connections that a server or
   * proxy resets when idle. `kept`: persistent connections with fully open windows.
   */
  readonly connections: "new" | "kept";
}

/** Initial congestion window: ten segments (RFC 6928) of 1460 bytes (IPv4 on Ethernet). */
export const initialWindowBytes = 10 * 1460;

export interface Transfer {
  /** Transmission time on the shared link, without queueing. */
  readonly wireMs: number;
  /** Time to open the connection; not shared. */
  readonly setUpMs: number;
  /** Time for the congestion window to open; not shared. */
  readonly rampMs: number;
}

/** Transfer time of a request body on an idle link. */
export function transfer(bytes: number, link: Link): Transfer {
  const wireMs = wireTimeMs(bytes, link);
  if (link.connections === "kept") return { wireMs, setUpMs: 0, rampMs: 0 };
  return {
    wireMs,
    setUpMs: link.roundTripMs,
    rampMs: Math.max(0, slowStartMs(bytes, link) - wireMs),
  };
}

function wireTimeMs(bytes: number, { bandwidthMbps }: Pick<Link, "bandwidthMbps">): number {
  return (bytes * 8) / (bandwidthMbps * 1000);
}

/** Time from the first to the last byte sent, with a window that doubles until it fills the link. */
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
