import type { LoadShape } from "../../contract/load-shape.ts";

/**
 * Connections of the clients of a load: one channel shared by all, a new connection for each request, or a number of
 * connections. A gRPC channel is one HTTP/2 connection that carries any number of requests; an HTTP/1.1 connection carries one
 * at a time, so that `shared` does not apply to HTTP, and a number is the size of a keep-alive pool.
 *
 * Absent: one per outstanding request, kept open.
 */
export type Channels = NonNullable<LoadShape["channels"]>;

/** Value of `--channels`. */
export type ChannelsOption = Channels | "each";

/** Load with the connections of `--channels`. */
export function withChannels(load: LoadShape, channels: ChannelsOption): LoadShape {
  return channels === "each" ? load : { ...load, channels };
}

/** Returns the load without `shared` channels if the protocol is HTTP: its clients use the keep-alive pool of one HTTP client. */
export function withChannelsOf(
  transport: "http" | "grpc",
  { channels, ...load }: LoadShape,
): LoadShape {
  if (channels === undefined || (channels === "shared" && transport === "http")) return load;
  return { ...load, channels };
}

/** Maximum number of connections, which bounds the number of workers; `undefined` if there is no maximum. */
export function connectionLimit({ channels }: LoadShape): number | undefined {
  return channels === "shared" ? 1 : channels === "new" ? undefined : channels;
}

/** Channels of one of several workers that share a load. */
export function channelsOfWorker(
  { channels }: LoadShape,
  index: number,
  workers: number,
): Channels | undefined {
  return typeof channels === "number"
    ? Math.floor((channels + workers - 1 - index) / workers)
    : channels;
}
