import { benchEndpointName } from "../../contract/bench-endpoint.ts";
import type { LoadShape } from "../../contract/load-shape.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import type { StudyId } from "../record/study-result.ts";
import { type Link, startLinkProxy } from "./link-proxy.ts";
import {
  clients,
  type LoadStudy,
  optionalEndpoint,
  requestedOr,
  type StudyRun,
  StudyUnavailable,
} from "./study.ts";

/** One client behind a link of limited bandwidth and round-trip time, one request at a time. */
export const linkStudy: LoadStudy = {
  kind: "load",
  id: "link",
  // one endpoint per payload format, because the link's effect does not depend on the backend
  endpointsOf: requestedOr(
    optionalEndpoint("embed-http", "jpeg"),
    optionalEndpoint("onnx-http"),
    optionalEndpoint("onnx-http", "uint8"),
    optionalEndpoint("onnx-http", "jpeg"),
  ),
  async run(run) {
    const endpoints = run.endpoints.filter(({ endpoint }) => endpoint.serialization !== "json");
    if (endpoints.length === 0) throw new StudyUnavailable("only JSON endpoints were requested");
    const notes = [
      "A local proxy limited bandwidth and added delay between client and server. Packet loss and TCP slow start are not emulated, so a real link of the same bandwidth and round trip is slower.",
    ];
    run.addResult({ study: "link", environment: run.environment, notes });
    const lateness: number[] = [];
    try {
      for (const bandwidthMbps of run.grid.bandwidthsMbps) {
        for (const roundTripMs of run.grid.roundTripsMs) {
          for (const measured of endpoints) {
            const link = { bandwidthMbps, roundTripMs };
            lateness.push(
              await measureBehindLink(run, "link", measured, { link, load: clients(1) }),
            );
          }
        }
      }
    } finally {
      if (lateness.length > 0) {
        notes.push(
          `The proxy's own delay was ${Math.min(...lateness).toFixed(2)} to ${Math.max(...lateness).toFixed(2)} ms in each direction (median per load point); the latencies include it.`,
        );
      }
    }
  },
};

/** Address of a URL: `http://host:port`, or `host:port` for gRPC; an IPv6 address without its brackets. */
export function hostAndPort(url: string): {
  readonly protocol: string;
  readonly host: string;
  readonly port: number;
} {
  const { protocol, hostname, port } = new URL(url.includes("://") ? url : `grpc://${url}`);
  return { protocol, host: hostname.replace(/^\[(.+)\]$/, "$1"), port: Number(port || 80) };
}

/**
 * Measures single images behind an emulated link.
 *
 * @returns Median delay of the proxy beyond that of the emulated link, in milliseconds.
 */
export async function measureBehindLink(
  run: StudyRun,
  study: StudyId,
  measured: MeasuredEndpoint,
  {
    link,
    load,
    durationSeconds,
  }: {
    readonly link: Required<Link>;
    readonly load: LoadShape;
    readonly durationSeconds?: number;
  },
): Promise<number> {
  const { url } = measured.target;
  const { protocol, host, port } = hostAndPort(url);
  if (protocol === "https:") {
    throw new StudyUnavailable(
      `${benchEndpointName(measured.endpoint)} is at ${url}: links to https addresses cannot be emulated`,
    );
  }
  const proxy = await startLinkProxy({ host, port }, link);
  try {
    const local = `${protocol === "grpc:" ? "" : "http://"}127.0.0.1:${proxy.port}`;
    await run.measure(study, measured, {
      batch: 1,
      load,
      durationSeconds,
      conditions: link,
      url: local,
    });
    return proxy.medianLatenessMs();
  } finally {
    await proxy.close();
  }
}
