import type { ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { unitVector } from "../../inference/session/embeddings.ts";
import { binaryBody, jsonArray, yieldBefore } from "../embed/response-body.ts";

/** @throws {EmbedError} if the embeddings of the model cannot be truncated to a width */
export function checkDimensions(
  { name, embedding: { width, truncatableTo = [] } }: ModelSpec,
  dimensions: number | undefined,
): void {
  const widths = [...truncatableTo, width];
  if (dimensions === undefined || widths.includes(dimensions)) return;
  throw new EmbedError(
    "bad_request",
    `dimensions must be ${widths.join(" or ")} for ${name}, got ${dimensions}`,
    { param: "dimensions" },
  );
}

/** Returns the first values of a vector, scaled to unit L2 norm; the vector itself if it has that many. */
export function truncated(vector: Float32Array, dimensions: number): Float32Array {
  return vector.length === dimensions ? vector : unitVector(vector.slice(0, dimensions), 0);
}

export interface EmbeddingsResult {
  /** Vectors of unit norm, in the order of the inputs. */
  readonly vectors: readonly Float32Array[];
  readonly format: "float" | "base64";
  readonly model: string;
  /** Token ids of all texts, without padding. */
  readonly tokens: number;
}

/** JSON body of a response of `POST /v1/embeddings`. */
export async function embeddingsBody({
  vectors,
  format,
  model,
  tokens,
}: EmbeddingsResult): Promise<Buffer> {
  const parts: Buffer[] = [Buffer.from('{"object":"list","data":[')];
  for (const [index, vector] of vectors.entries()) {
    await yieldBefore(index);
    const separator = index === 0 ? "" : ",";
    parts.push(
      Buffer.from(`${separator}{"object":"embedding","index":${index},"embedding":`),
      format === "float"
        ? jsonArray(vector)
        : Buffer.from(`"${binaryBody([vector]).toString("base64")}"`),
      closingBrace,
    );
  }
  const usage = { prompt_tokens: tokens, total_tokens: tokens };
  parts.push(Buffer.from(`],"model":${JSON.stringify(model)},"usage":${JSON.stringify(usage)}}`));
  return Buffer.concat(parts);
}

const closingBrace = Buffer.from("}");
