import { copyFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { textTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec, TextInput } from "../../contract/model-spec.ts";
import { hubWeightsOf } from "../../contract/models/trained-weights.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { sha256Of } from "../files/model-info.ts";
import { makeFolder, ownSuffix, sizeOf } from "../files/publish-file.ts";
import { displayPath } from "../files/user-errors.ts";
import { downloadChecked } from "./download.ts";
import { hubSource } from "./hub.ts";
import { type Environment, openProxyDispatcher } from "./proxy-dispatcher.ts";

export interface TokenizerFileOptions {
  /**
   * Checkpoint, in whose folder the file is looked for first.
   *
   * @default - none
   */
  readonly checkpoint?: string | undefined;
  readonly env: Environment;
  readonly signal?: AbortSignal;
  readonly onProgress: (line: string) => void;
}

/** Maximum size of a downloaded file in bytes, if the spec states none. */
const maxBytes = 100e6;

/**
 * Writes the file of a model's tokenizer beside its text tower, unless a package has the vocabulary: from the folder of a
 * checkpoint, otherwise from the repository of the weights. A file with the checksum of the spec is kept.
 */
export async function placeTokenizer(
  spec: ModelSpec,
  towerFile: string,
  options: TokenizerFileOptions,
): Promise<void> {
  const { tokenizer } = textTowerOf(spec).input;
  if (tokenizer.kind === "clip-bpe") return;
  const folder = dirname(towerFile);
  const target = join(folder, tokenizer.file);
  if (await isTokenizer(target, tokenizer)) return;
  await makeFolder(folder);
  const part = `${target}.${ownSuffix()}.part`;
  try {
    const own = options.checkpoint && join(dirname(options.checkpoint), tokenizer.file);
    if (own && (await isTokenizer(own, tokenizer))) await copyFile(own, part);
    else await fetchTokenizer(spec, part, options);
    await rename(part, target);
  } catch (error) {
    throw new UserError(
      `the file ${tokenizer.file} of the tokenizer of ${spec.name} is unavailable: ${messageOf(error)}; copy it to ${displayPath(folder)}`,
      { cause: error },
    );
  } finally {
    await rm(part, { force: true });
  }
}

async function isTokenizer(path: string, { sha256 }: TextInput["tokenizer"]): Promise<boolean> {
  if ((await sizeOf(path)) === undefined) return false;
  return sha256 === undefined || (await sha256Of(path)) === sha256;
}

async function fetchTokenizer(
  spec: ModelSpec,
  part: string,
  { env, signal, onProgress }: TokenizerFileOptions,
): Promise<void> {
  const { file, bytes, sha256 } = textTowerOf(spec).input.tokenizer;
  const weights = hubWeightsOf(spec);
  if (weights === undefined) throw new Error("its spec pins no weights on the hub");
  const source = hubSource(weights, file, env);
  const dispatcher = openProxyDispatcher(env);
  onProgress(`downloading ${source.url.href} …`);
  try {
    await downloadChecked({
      ...{ ...source, part, bytes, sha256, maxBytes, dispatcher, signal },
      tokenVariable: "HF_TOKEN",
      onRetry: onProgress,
    });
  } finally {
    await dispatcher.destroy();
  }
}
