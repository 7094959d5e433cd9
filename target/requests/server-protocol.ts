import { z } from "zod";
import type { ServerEndpoint } from "../../contract/environment.ts";
import type { Modality } from "../../contract/model-spec.ts";
import type { EncodedImage } from "./embed-requests.ts";
import type { LoadText } from "./load-items.ts";

/** Image file or text. */
type SentItem = EncodedImage | Pick<LoadText, "text">;

/** How embeddings are requested from a server that is not clipstack's: route, body and response. To add a protocol, add a row. */
export interface ServerProtocol {
  /** Route of embeddings. */
  readonly path: string;
  readonly modalities: readonly Modality[];
  /** JSON body. `model` is the name that the server lists. */
  body(items: readonly SentItem[], model: string): unknown;
  /** Vectors in the order of the items. Throws if the response has another shape or order. */
  read(body: unknown): readonly (readonly number[])[];
}

function parseResponse<T>(schema: z.ZodType<T>, body: unknown): T {
  if (body === undefined) throw new Error("the response must be JSON");
  const { data, error } = schema.safeParse(body);
  if (error === undefined) return data as T;
  const [{ path, message } = { path: [], message: "" }] = error.issues;
  throw new Error(`the response must have ${path.join(".") || "embeddings"}: ${message}`);
}

const vector = z.array(z.number()).min(1);
const openAiResponse = z.object({
  data: z.array(z.object({ index: z.int().min(0), embedding: vector })).min(1),
});

/** Row `index` is the embedding of input `index`, whatever the order of the list. */
function readOpenAi(body: unknown): readonly (readonly number[])[] {
  const { data } = parseResponse(openAiResponse, body);
  const rows = Array.from({ length: data.length }, (_, i) => data.find(({ index }) => index === i));
  return rows.map((row, i) => {
    if (row !== undefined) return row.embedding;
    throw new Error(`data must have the indices 0 to ${data.length - 1}, got no ${i}`);
  });
}

const inputOf = (item: SentItem): string =>
  "bytes" in item
    ? `data:${item.contentType};base64,${Buffer.from(item.bytes).toString("base64")}`
    : item.text;

export const serverProtocols: Readonly<Record<ServerEndpoint, ServerProtocol>> = {
  "openai-http": {
    path: "/v1/embeddings",
    modalities: ["image", "text"],
    body: (items, model) => ({ model, input: items.map(inputOf), encoding_format: "float" }),
    read: readOpenAi,
  },
  "infinity-http": {
    path: "/embeddings",
    modalities: ["image", "text"],
    body: (items, model) => ({
      ...{ model, input: items.map(inputOf), encoding_format: "float" },
      modality: items.some((item) => "bytes" in item) ? "image" : "text",
    }),
    read: readOpenAi,
  },
  "tei-http": {
    path: "/embed",
    modalities: ["text"],
    body: (items) => ({ inputs: items.map(inputOf), normalize: true, truncate: true }),
    read: (body) => parseResponse(z.array(vector).min(1), body),
  },
};

export const protocolOf = (endpoint: string): ServerProtocol | undefined =>
  serverProtocols[endpoint as ServerEndpoint];
