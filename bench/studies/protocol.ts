import type { LoadShape } from "../../contract/load-shape.ts";
import { type ChannelsOption, withChannels, withChannelsOf } from "../../target/load/channels.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import { clients, type LoadStudy, StudyUnavailable } from "./study.ts";

/**
 * Compares HTTP with gRPC on the same Triton server with the same tensors. Each protocol is measured
 * with one connection per client and with shared connections. Every second load point is measured
 * in reverse order.
 */
export const protocolStudy: LoadStudy = {
  kind: "load",
  id: "protocol",
  async run(run) {
    const pairs = pairsOf(run.endpoints);
    if (pairs.length === 0) {
      throw new StudyUnavailable(
        "no Triton server has both an HTTP and a gRPC endpoint, like onnx-http and onnx-grpc",
      );
    }
    run.addResult({ study: "protocol", environment: run.environment, notes: [] });
    const { batchSizes, concurrency, channels } = run.grid.protocol;
    for (const pair of pairs) {
      const loads = concurrency.flatMap((count) => batchSizes.map((batch) => ({ count, batch })));
      for (const [index, { count, batch }] of loads.entries()) {
        const connections = connectionsOf(pair, count, channels);
        for (const { measured, load } of index % 2 === 0 ? connections : connections.toReversed()) {
          await run.measure("protocol", measured, { batch, load });
        }
      }
    }
  },
};

type Pair = readonly [http: MeasuredEndpoint, grpc: MeasuredEndpoint];

interface ConnectedEndpoint {
  readonly measured: MeasuredEndpoint;
  readonly load: LoadShape;
}

/** Both protocols with each kind of channels that the protocol has. */
function connectionsOf(
  [http, grpc]: Pair,
  count: number,
  channels: readonly ChannelsOption[],
): readonly ConnectedEndpoint[] {
  const connected = (measured: MeasuredEndpoint, transport: "http" | "grpc") =>
    channels.map((each) => ({
      measured,
      // a single client has one connection, however it is shared
      load: withChannelsOf(
        transport,
        withChannels(clients(count), count === 1 ? ownOf(each) : each),
      ),
    }));
  const all = [...connected(http, "http"), ...connected(grpc, "grpc")];
  const keyOf = ({ measured, load }: ConnectedEndpoint) =>
    JSON.stringify([measured.endpoint.endpoint, load.channels]);
  return [...new Map(all.map((each) => [keyOf(each), each])).values()];
}

const ownOf = (channels: ChannelsOption): ChannelsOption => (channels === "new" ? "new" : "each");

/** HTTP and gRPC endpoints of the same service and payload format. */
function pairsOf(endpoints: readonly MeasuredEndpoint[]): readonly Pair[] {
  return endpoints.flatMap((http) => {
    const { target, endpoint } = http;
    if (!endpoint.endpoint.endsWith("-http") || endpoint.serialization === "json") return [];
    const grpc = endpoints.find(
      (other) =>
        other.target.service === target.service &&
        other.endpoint.endpoint === endpoint.endpoint.replace(/-http$/, "-grpc") &&
        other.endpoint.payload === endpoint.payload,
    );
    return grpc === undefined ? [] : [[http, grpc] as const];
  });
}
