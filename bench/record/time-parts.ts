import type { LoadPoint } from "./bench-record.ts";

/** Parts of a request's mean latency, in processing order, with their names in reports. */
export const timePartNames = {
  network: {
    label: "network",
    phrase: "transfer and network",
    title: "Transfer and network stacks: latency at the client minus time in the server",
  },
  decode: { label: "decode", phrase: "decoding the images" },
  queue: { label: "queue", phrase: "the batcher's queue" },
  input: { label: "input", phrase: "preparing the model's input" },
  infer: { label: "model", phrase: "the model itself" },
  output: { label: "output", phrase: "preparing the output" },
  server: {
    label: "other",
    phrase: "other server time",
    title: "Time in the server minus its other parts",
  },
  unknown: { label: "unknown", phrase: "the request", title: "The server reports no times" },
} as const satisfies Readonly<
  Record<string, { readonly label: string; readonly phrase: string; readonly title?: string }>
>;

export type TimePartId = keyof typeof timePartNames;

export interface TimePart {
  readonly id: TimePartId;
  /** Mean milliseconds, above 0. */
  readonly ms: number;
}

/** Parts of the mean latency, in processing order; only `unknown` if the server reports no times. */
export function timeParts({ latencyMs, server }: LoadPoint): readonly TimePart[] {
  if (latencyMs === undefined) return [];
  const known = (
    [
      ["decode", server?.decodeMs],
      ["queue", server?.queueMs],
      ["input", server?.inputMs],
      ["infer", server?.inferMs],
      ["output", server?.outputMs],
    ] as const
  ).flatMap(([id, ms]) => (ms === undefined ? [] : [{ id, ms }]));
  if (known.length === 0) return [{ id: "unknown", ms: latencyMs.mean }];
  const sum = known.reduce((total, { ms }) => total + ms, 0);
  const inServer = Math.max(sum, server?.requestMs ?? sum);
  return [
    { id: "network" as const, ms: Math.max(0, latencyMs.mean - inServer) },
    ...known,
    { id: "server" as const, ms: inServer - sum },
  ].filter(({ ms }) => ms > 0);
}
