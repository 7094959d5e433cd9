import type { LoadShape } from "../../contract/load-shape.ts";
import { type ChannelsOption, withChannels, withChannelsOf } from "../../target/load/channels.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import { measureBehindLink } from "./link.ts";
import { clients, type LoadStudy, type StudyRun, StudyUnavailable } from "./study.ts";

/**
 * The same Triton and tensors over HTTP and over gRPC, with a connection for each client and with shared ones, in reverse order
 * for every second load; then many clients behind a link, where the connections decide.
 */
export const protocolStudy: LoadStudy = {
  kind: "load",
  id: "protocol",
  async run(run) {
    const pairs = pairsOf(run.endpoints);
    if (pairs.length === 0) {
      throw new StudyUnavailable(
        "no Triton has both an HTTP and a gRPC endpoint, like onnx-http and onnx-grpc",
      );
    }
    const notes: string[] = [];
    run.addResult({ study: "protocol", environment: run.environment, notes });
    const { batchSizes, concurrency, channels } = run.grid.protocol;
    for (const pair of pairs) {
      const loads = concurrency.flatMap((count) => batchSizes.map((batch) => ({ count, batch })));
      for (const [index, { count, batch }] of loads.entries()) {
        const variants = variantsOf(pair, count, channels);
        for (const { measured, load } of index % 2 === 0 ? variants : variants.toReversed()) {
          await run.measure("protocol", measured, { batch, load });
        }
      }
    }
    // one pair, because the link's effect does not depend on the backend
    await measureLink(run, pairs[0]!, notes);
  },
};

/** Factor of the maximum duration, because many clients of a slow channel need long for the responses of a window. */
const slowLoads = 6;

async function measureLink(run: StudyRun, pair: Pair, notes: string[]): Promise<void> {
  const { concurrency, channels, link } = run.grid.protocol;
  const lateness: number[] = [];
  for (const { measured, load } of variantsOf(pair, Math.max(...concurrency), channels)) {
    const durationSeconds = slowLoads * run.context.settings.durationSeconds;
    const options = { link, load, durationSeconds };
    lateness.push(await measureBehindLink(run, "protocol", measured, options));
  }
  notes.push(
    `A local proxy emulated the link of ${link.bandwidthMbps} Mbit/s and ${link.roundTripMs} ms; its own delay was at most ${Math.max(...lateness).toFixed(2)} ms in each direction (median per load point). Packet loss and TCP slow start are not emulated.`,
  );
}

type Pair = readonly [http: MeasuredEndpoint, grpc: MeasuredEndpoint];

interface Variant {
  readonly measured: MeasuredEndpoint;
  readonly load: LoadShape;
}

/** Both protocols with each kind of channels that the protocol has. */
function variantsOf(
  [http, grpc]: Pair,
  count: number,
  channels: readonly ChannelsOption[],
): readonly Variant[] {
  const variantOf = (measured: MeasuredEndpoint, transport: "http" | "grpc") =>
    channels.map((each) => ({
      measured,
      // a single client has one connection, however it is shared
      load: withChannelsOf(
        transport,
        withChannels(clients(count), count === 1 ? ownOf(each) : each),
      ),
    }));
  const all = [...variantOf(http, "http"), ...variantOf(grpc, "grpc")];
  const keyOf = ({ measured, load }: Variant) =>
    JSON.stringify([measured.endpoint.endpoint, load.channels]);
  return [...new Map(all.map((variant) => [keyOf(variant), variant])).values()];
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
