import { parentPort } from "node:worker_threads";
import { decodeInferRequest } from "../../client/triton/wire-http.ts";
import { parseBase64Request } from "../embed/base64-images.ts";
import { contentOfForm } from "../embed/form-files.ts";
import { parseTextRequest } from "../embed/parse-body.ts";
import { parseEmbeddingsBody } from "../openai/embeddings-body.ts";
import type { JsonFailure, JsonResult, JsonTask } from "./json-thread.ts";

/** Tasks are performed one at a time: their results have the order of the tasks. */
let previous: Promise<void> = Promise.resolve();
parentPort?.on("message", (task: JsonTask) => {
  previous = previous.then(() => perform(task));
});

async function perform(task: JsonTask): Promise<void> {
  let result: JsonResult;
  let transferred: readonly Uint8Array[] = [];
  try {
    const { buffer, byteOffset, byteLength } = task.body;
    const body = Buffer.from(buffer, byteOffset, byteLength);
    if (task.kind === "base64") {
      const request = parseBase64Request(body);
      transferred = request.images;
      result = { value: request };
    } else if (task.kind === "form") {
      const form = await contentOfForm(body, task.contentType);
      transferred = form.images;
      result = { value: form };
    } else if (task.kind === "text") {
      result = { value: parseTextRequest(body) };
    } else if (task.kind === "embeddings") {
      const request = parseEmbeddingsBody(body);
      transferred = request.items.flatMap((item) => (item.kind === "image" ? [item.file] : []));
      result = { value: request };
    } else {
      const request = decodeInferRequest(body, task.headerLength, task.model);
      transferred = request.inputs.map(({ bytes }) => bytes);
      result = { value: request };
    }
  } catch (error) {
    const { name, message, code, image, text, param } = error as JsonFailure;
    result = { failure: { name, message, code, image, text, param } };
  }
  // inputs that follow the JSON share the buffer of the body
  const buffers = new Set(transferred.map(({ buffer }) => buffer as ArrayBuffer));
  parentPort?.postMessage(result, [...buffers]);
}
