import { performTasks } from "../../http/perform-tasks.ts";
import { base64Parser } from "../embed/base64-images.ts";
import type { BodyParser, BodyTask } from "../embed/body-thread.ts";
import { formParser } from "../embed/form-files.ts";
import { textParser } from "../embed/parse-body.ts";
import { embeddingsParser } from "../openai/embeddings-body.ts";

const parsers: readonly BodyParser<unknown>[] = [
  base64Parser,
  formParser,
  textParser,
  embeddingsParser,
];

performTasks(async ({ kind, body, contentType }: BodyTask) => {
  const { buffer, byteOffset, byteLength } = body;
  const parser = parsers.find((other) => other.kind === kind)!;
  const value = await parser.parse(Buffer.from(buffer, byteOffset, byteLength), contentType);
  return { value, transferred: parser.transferred(value) };
});
