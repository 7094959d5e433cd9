import { benchPathName } from "../record/bench-record.ts";
import { measureSerialization } from "./client-serialization.ts";
import { startLinkProxy } from "./link-proxy.ts";
import { clients, type StudyPath, type StudyRun, StudyUnavailable } from "./study-run.ts";

/** The studies that load an environment as it is. Each is a list of cells; what they mean is the report's. */

/** One client; a larger batch in each request. */
export async function studyBatch(run: StudyRun): Promise<void> {
  run.keep({ study: "batch", environment: run.environment, notes: [] });
  for (const at of run.paths) {
    for (const batch of run.grid.batchSizes) {
      await run.measure("batch", at, { batch, load: clients(1) });
    }
  }
}

/** One image in each request; more clients. */
export async function studyConcurrency(run: StudyRun): Promise<void> {
  run.keep({ study: "concurrency", environment: run.environment, notes: [] });
  for (const at of run.paths) {
    for (const concurrency of run.grid.concurrency.concurrency) {
      await run.measure("concurrency", at, { batch: 1, load: clients(concurrency) });
    }
  }
}

/** The same Triton and the same tensors over HTTP and over gRPC, the order reversed with each batch. */
export async function studyProtocol(run: StudyRun): Promise<void> {
  const pairs = run.paths.flatMap((http) => {
    const { target, path } = http;
    if (!path.path.endsWith("-http") || path.serialization === "json") return [];
    const grpc = run.paths.find(
      (other) =>
        other.target.service === target.service &&
        other.path.path === path.path.replace(/-http$/, "-grpc") &&
        other.path.payload === path.payload,
    );
    return grpc === undefined ? [] : [[http, grpc] as const];
  });
  if (pairs.length === 0) {
    throw new StudyUnavailable(
      "no Triton is reached over HTTP and over gRPC, like onnx-http and onnx-grpc",
    );
  }
  run.keep({ study: "protocol", environment: run.environment, notes: [] });
  for (const [http, grpc] of pairs) {
    for (const [index, batch] of run.grid.batchSizes.entries()) {
      for (const at of index % 2 === 0 ? [http, grpc] : [grpc, http]) {
        await run.measure("protocol", at, { batch, load: clients(1) });
      }
    }
  }
}

/** JSON of a larger batch is tens of megabytes in each request: the client's own cost says enough of it. */
const largestJsonBatch = 8;

/** What the client itself spends on tensors, and the same requests sent both ways. */
export async function studySerialization(run: StudyRun): Promise<void> {
  const [image] = run.context.images;
  if (image === undefined) throw new StudyUnavailable("there is no image");
  const result = run.keep({
    study: "serialization" as const,
    environment: run.environment,
    client: [] as Awaited<ReturnType<typeof measureSerialization>>[number][],
    notes: [
      "The client's own time is that of this project's client in Node.js: binary tensors are views that are not copied, JSON is text of 32-bit numbers.",
    ],
  });
  run.context.onEvent({
    kind: "phase",
    environment: run.environment,
    text: "write and read tensors",
  });
  result.client.push(
    ...(await measureSerialization({
      batches: run.grid.batchSizes,
      tensor: image.tensor,
      signal: run.context.signal,
    })),
  );
  for (const json of run.paths.filter(({ path }) => path.serialization === "json")) {
    const binary = run.paths.find(
      ({ target, path }) =>
        target.service === json.target.service &&
        path.path === json.path.path &&
        path.payload === json.path.payload &&
        path.serialization === "binary",
    );
    const both = binary === undefined ? [json] : [binary, json];
    const batches = run.grid.batchSizes.filter((batch) => batch <= largestJsonBatch);
    for (const [index, batch] of batches.entries()) {
      for (const at of index % 2 === 0 ? both : both.toReversed()) {
        await run.measure("serialization", at, { batch, load: clients(1) });
      }
    }
  }
}

/** One client behind a link of some bandwidth and round trip: one request after the other, so that nothing but it counts. */
export async function studyLink(run: StudyRun): Promise<void> {
  const paths = run.paths.filter(({ path }) => path.serialization !== "json");
  if (paths.length === 0) throw new StudyUnavailable("no path but JSON was asked for");
  const notes = [
    "A local proxy with a rate and a delay stood between client and server. Lost packets and TCP's slow start are not emulated: they make a real link of that bandwidth and round trip slower.",
  ];
  run.keep({ study: "link", environment: run.environment, notes });
  const lateness: number[] = [];
  try {
    for (const bandwidthMbps of run.grid.bandwidthsMbps) {
      for (const roundTripMs of run.grid.roundTripsMs) {
        for (const at of paths) {
          lateness.push(await measureBehind(run, at, { bandwidthMbps, roundTripMs }));
        }
      }
    }
  } finally {
    if (lateness.length > 0) {
      notes.push(
        `The proxy itself passed bytes on late, in each direction: by ${Math.min(...lateness).toFixed(2)} to ${Math.max(...lateness).toFixed(2)} ms in the median of a load. That is in the latencies.`,
      );
    }
  }
}

/** Where an address leads: `http://host:port`, `host:port` of gRPC, an IPv6 address without its brackets. */
export function hostAndPort(url: string): {
  readonly protocol: string;
  readonly host: string;
  readonly port: number;
} {
  const { protocol, hostname, port } = new URL(url.includes("://") ? url : `grpc://${url}`);
  return { protocol, host: hostname.replace(/^\[(.+)\]$/, "$1"), port: Number(port || 80) };
}

/** @returns {@link LinkProxy.medianLatenessMs} of the load. */
async function measureBehind(
  run: StudyRun,
  at: StudyPath,
  link: { readonly bandwidthMbps: number; readonly roundTripMs: number },
): Promise<number> {
  const { url } = at.target;
  const { protocol, host, port } = hostAndPort(url);
  if (protocol === "https:") {
    throw new StudyUnavailable(
      `${benchPathName(at.path)} is at ${url}: a link before https cannot be emulated`,
    );
  }
  const proxy = await startLinkProxy({ host, port }, link);
  try {
    const local = `${protocol === "grpc:" ? "" : "http://"}127.0.0.1:${proxy.port}`;
    await run.measure("link", at, { batch: 1, load: clients(1), conditions: link, url: local });
    return proxy.medianLatenessMs();
  } finally {
    await proxy.close();
  }
}
