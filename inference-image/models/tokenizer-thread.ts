import { join } from "node:path";
import { textTowerOf, tokenizerFile } from "../../contract/model-shapes.ts";
import type { ModelSpec, TextInput } from "../../contract/model-spec.ts";
import { TaskThread } from "../../http/task-thread.ts";
import type { EncodedTexts } from "../../inference/text/tokenizer.ts";
import { InferenceError } from "../../inference/threads/inference-error.ts";

export interface TokenizerTask {
  readonly input: TextInput;
  readonly vocabulary: string | undefined;
  readonly texts: readonly string[];
}

/** Maximum length of the texts of a task, in characters, unless it is one text. Other requests' tasks are performed in between. */
const taskCharacters = 32_768;

/** Tokenizer of a text tower in a thread, so that long texts do not block the event loop. */
export class TokenizerThread {
  readonly #thread = new TaskThread<TokenizerTask>(
    "tokenizer",
    new URL("./tokenizer-worker", import.meta.url),
  );
  readonly #model: Omit<TokenizerTask, "texts">;

  private constructor(input: TextInput, vocabulary: string | undefined) {
    this.#model = { input, vocabulary };
  }

  /** @throws {Error} as `openTokenizer` */
  static async open(input: TextInput, vocabulary?: string): Promise<TokenizerThread> {
    const tokenizer = new TokenizerThread(input, vocabulary);
    try {
      await tokenizer.#run([]);
    } catch (error) {
      await tokenizer.close();
      throw error;
    }
    return tokenizer;
  }

  /**
   * Cleans the texts and returns their token ids.
   *
   * @throws the reason of the signal, before the next texts
   */
  async encode(texts: readonly string[], signal: AbortSignal): Promise<EncodedTexts> {
    const parts: EncodedTexts[] = [];
    for (let first = 0; first < texts.length; ) {
      signal.throwIfAborted();
      let end = first + 1;
      let characters = texts[first]!.length;
      while (end < texts.length && characters + texts[end]!.length <= taskCharacters) {
        characters += texts[end]!.length;
        end += 1;
      }
      parts.push(await this.#run(texts.slice(first, end)));
      first = end;
    }
    return parts.length === 1 ? parts[0]! : joined(parts);
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }

  async #run(texts: readonly string[]): Promise<EncodedTexts> {
    return (await this.#thread.run({ ...this.#model, texts })) as EncodedTexts;
  }
}

/**
 * Opens the tokenizer of a model.
 *
 * @param folder - Folder with the vocabulary, unless a package has it.
 * @throws {InferenceError} `model`
 */
export async function tokenizerOf(spec: ModelSpec, folder: string): Promise<TokenizerThread> {
  const { input } = textTowerOf(spec);
  const file = tokenizerFile(input);
  try {
    return await TokenizerThread.open(input, file && join(folder, file));
  } catch (error) {
    throw new InferenceError("model", `${spec.name}: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** Joins one or more batches of a tokenizer. */
function joined(batches: readonly EncodedTexts[]): EncodedTexts {
  const [, contextLength] = batches[0]!.shape;
  const tokens = batches.flatMap((batch) => batch.tokens);
  const count = tokens.length * contextLength;
  const ids =
    batches[0]!.ids instanceof Int32Array ? new Int32Array(count) : new BigInt64Array(count);
  let at = 0;
  for (const batch of batches) {
    // all batches have the same type
    (ids as Int32Array).set(batch.ids as Int32Array, at);
    at += batch.ids.length;
  }
  return { ids, shape: [tokens.length, contextLength], tokens };
}
