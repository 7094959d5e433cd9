import { type PerformedTask, performTasks } from "../../http/perform-tasks.ts";
import { parseBase64Request } from "../embed/base64-images.ts";
import { contentOfForm } from "../embed/form-files.ts";
import { parseTextRequest } from "../embed/parse-body.ts";
import { parseEmbeddingsBody } from "../openai/embeddings-body.ts";
import type { JsonTask } from "./json-thread.ts";

performTasks(async (task: JsonTask): Promise<PerformedTask> => {
  const { buffer, byteOffset, byteLength } = task.body;
  const body = Buffer.from(buffer, byteOffset, byteLength);
  switch (task.kind) {
    case "base64": {
      const value = parseBase64Request(body);
      return { value, transferred: value.images };
    }
    case "form": {
      const value = await contentOfForm(body, task.contentType);
      return { value, transferred: value.images };
    }
    case "text":
      return { value: parseTextRequest(body) };
    case "embeddings": {
      const value = parseEmbeddingsBody(body);
      const files = value.items.flatMap((item) => (item.kind === "image" ? [item.file] : []));
      return { value, transferred: files };
    }
  }
});
