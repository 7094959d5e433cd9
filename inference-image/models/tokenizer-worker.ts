import { performTasks } from "../../http/perform-tasks.ts";
import { openTokenizer, type TextTokenizer } from "../../inference/text/tokenizer.ts";
import type { TokenizerTask } from "./tokenizer-thread.ts";

let tokenizer: TextTokenizer | undefined;

performTasks(async ({ input, vocabulary, texts }: TokenizerTask) => {
  tokenizer ??= await openTokenizer(input, vocabulary);
  const value = tokenizer.encode(texts);
  return { value, transferred: [value.ids] };
});
