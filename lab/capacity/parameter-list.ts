import { gatewayMs } from "../../bench/capacity/service-times.ts";
import { initialWindowBytes } from "../../bench/capacity/transfer.ts";
import { computeFigures } from "./calibrate.ts";
import { figuresOf, type PublishedFile, publishedValue } from "./published.ts";
import type { PublishedParameters } from "./published-facts.ts";

/** Parameter of the model, for `npm run lab -- calibrate parameters`. */
export interface Parameter {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly meaning: string;
  /** Source figures (`file/id`) or a description of the source. */
  readonly from: readonly string[];
}

interface ParameterRow extends Omit<Parameter, "value"> {
  readonly value: (parameters: PublishedParameters) => number;
}

const rows: readonly ParameterRow[] = [
  {
    name: "bandwidth",
    value: ({ bandwidthMbps }) => bandwidthMbps,
    unit: "Mbit/s",
    meaning: "the client's link, shared by all its requests; one value for all remote settings",
    from: ["a100-remote/onnx-b32"],
  },
  {
    name: "client's work",
    value: ({ clientBetweenMs }) => clientBetweenMs,
    unit: "ms per request",
    meaning: "between a response and the next request, in one process; not part of a latency",
    from: ["rtx-4080-x4-remote/c1-throughput"],
  },
  {
    name: "JSON text",
    value: ({ jsonMsPerImage }) => jsonMsPerImage,
    unit: "ms per image",
    meaning: "encoding the tensor of one image as text, on the client",
    from: ["serialization/json-b32"],
  },
  {
    name: "JSON bytes",
    value: ({ jsonBytesPerImage }) => jsonBytesPerImage / 1e6,
    unit: "MB per image",
    meaning: "size of that text",
    from: ["serialization/json-b32-bytes"],
  },
  {
    name: "decoding, PyTorch",
    value: ({ decodeMsPerImage }) => decodeMsPerImage,
    unit: "ms per image",
    meaning: "JPEG to tensor in the published PyTorch service, sequential",
    from: ["a100-remote/pytorch-b32"],
  },
  {
    name: "decoding, clipstack",
    value: ({ clipstackDecode }) => clipstackDecode.smallMs,
    unit: "ms per image",
    meaning: "10 kB JPEG to tensor in clipstack's embed server, used for predictions",
    from: ["clipstack-decoding/small"],
  },
  {
    name: "decoding, growth",
    value: ({ clipstackDecode }) => clipstackDecode.power,
    unit: "exponent",
    meaning: "growth of clipstack's decode time with the file size",
    from: ["clipstack-decoding/large"],
  },
  {
    name: "gateway",
    value: (parameters) => gatewayMs(parameters, 10_000),
    unit: "ms per image",
    meaning:
      "processor time of clipstack's gateway for a 10 kB JPEG sent as float32; of other sizes, between the measured ones",
    from: ["small", "photo", "large", "small-fp32"].map((id) => `clipstack-gateway/${id}`),
  },
  {
    name: "ingest, HTTP float32",
    value: ({ ingestPerCore }) => ingestPerCore.ms.httpFp32,
    unit: "ms per image",
    meaning: "processor time of Triton per image, on one core",
    from: ["clipstack-ingest/http-fp32-1"],
  },
  {
    name: "ingest, HTTP pixels",
    value: ({ ingestPerCore }) => ingestPerCore.ms.httpUint8,
    unit: "ms per image",
    meaning: "the same with 8-bit pixels",
    from: ["clipstack-ingest/http-uint8-1"],
  },
  {
    name: "ingest, gRPC float32",
    value: ({ ingestPerCore }) => ingestPerCore.ms.grpcFp32,
    unit: "ms per image",
    meaning: "the same over gRPC, as from the gateway",
    from: ["clipstack-ingest/grpc-fp32-1"],
  },
  {
    name: "ingest, scaling",
    value: ({ ingestPerCore }) => ingestPerCore.scaling,
    unit: "exponent",
    meaning: "growth of the ingest of one Triton with its number of cores, at most 1",
    from: ["clipstack-ingest, one and two cores"],
  },
  {
    name: "Pillow",
    value: ({ pillowDecode }) => pillowDecode.ms,
    unit: "ms per image",
    meaning: "decoding of a 40 kB JPEG in Python, for published programs that use it",
    from: ["clipstack-ingest/pillow-decode"],
  },
  {
    name: "input",
    value: ({ inputMs }) => inputMs,
    unit: "ms per request",
    meaning: "copy of the input by Triton's backend; part of the latency, no limit",
    from: ["rtx-4080-x4-remote/input"],
  },
  {
    name: "server overhead",
    value: ({ overheadMs }) => overheadMs,
    unit: "ms per request",
    meaning: "in Triton besides input and compute, mostly the batcher's queue delay",
    from: ["a100-remote/onnx-overhead"],
  },
  {
    name: "sustained share",
    value: ({ sustainedShare }) => sustainedShare,
    unit: "of the FP16 peak",
    meaning: "reached by large batches; determines the time of each additional image of a batch",
    from: ["model-only/rtx-4090"],
  },
  {
    name: "initial window",
    value: () => initialWindowBytes,
    unit: "bytes",
    meaning: "sent on a new connection before the first acknowledgement",
    from: ["RFC 6928: 10 segments of 1460 bytes; not calibrated"],
  },
];

/** Lists the parameters with their sources. */
export function parameterList(
  published: ReadonlyMap<string, PublishedFile>,
  parameters: PublishedParameters,
): readonly Parameter[] {
  const roundTrips = figuresOf(published, "round-trip").map(({ file, name }) => ({
    name: `round trip, ${file.id}`,
    value: parameters.roundTripMs[file.id] ?? Number.NaN,
    unit: "ms",
    meaning:
      "between client and server; a new connection adds one, and each doubling of its window",
    from: [name],
  }));
  const computes = (["gpu", "setting"] as const)
    .flatMap((scope) => computeFigures(published, scope))
    .map(({ key, name }) => ({
      name: `compute of one image, ${key}`,
      value: publishedValue(published, name),
      unit: "ms",
      meaning: "one execution of the model with batch size 1",
      from: [name],
    }));
  return [
    ...rows.map((row) => ({ ...row, value: row.value(parameters) })),
    ...roundTrips,
    ...computes,
  ];
}
