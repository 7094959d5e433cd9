import { decodeInferRequest } from "../client/triton/wire-http.ts";
import { performTasks } from "../http/perform-tasks.ts";
import type { InferTask } from "./infer-thread.ts";

performTasks(({ body, headerLength, model }: InferTask) => {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  // inputs that follow the JSON share the buffer of the body
  const value = decodeInferRequest(bytes, headerLength, model);
  return { value, transferred: value.inputs.map((input) => input.bytes) };
});
