import { createHash } from "node:crypto";
import { basename } from "node:path";
import { type ModelInfo, sha256Of } from "./model-info.ts";
import { readOnnx } from "./onnx-reader.ts";

/** Who wrote a file with all of its weights inside: those need not be looked for elsewhere. */
const selfContained: readonly ModelInfo["source"][] = ["generated", "derived"];

/**
 * What tells a model from every other: the SHA-256 of its file; where it has weights in other files, as what PyTorch
 * exports, a SHA-256 of theirs too. Without, two models of one architecture would be the same: their graphs are.
 *
 * @throws {Error} one line, when a file is missing, or is not ONNX.
 */
export async function sourceChecksum(
  file: string,
  { sha256, source }: Pick<ModelInfo, "sha256" | "source">,
): Promise<string> {
  if (selfContained.includes(source)) return sha256;
  const others = new Set<string>();
  for (const { bytes } of readOnnx(file).initializers.values()) {
    if (bytes !== undefined && bytes.file !== file) others.add(bytes.file);
  }
  if (others.size === 0) return sha256;
  const hash = createHash("sha256").update(sha256);
  for (const other of [...others].sort()) {
    hash.update(`\n${basename(other)} ${await sha256Of(other)}`);
  }
  return hash.digest("hex");
}
