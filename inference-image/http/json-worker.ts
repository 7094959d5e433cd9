import { parentPort } from "node:worker_threads";
import { decodeInferRequest } from "../../client/triton/wire-http.ts";
import { imagesOfBase64 } from "../embed/base64-images.ts";
import type { JsonFailure, JsonResult, JsonTask } from "./json-thread.ts";

parentPort?.on("message", (task: JsonTask) => {
  let result: JsonResult;
  let transferred: readonly Uint8Array[] = [];
  try {
    const { buffer, byteOffset, byteLength } = task.body;
    const body = Buffer.from(buffer, byteOffset, byteLength);
    if (task.kind === "base64") {
      transferred = imagesOfBase64(body);
      result = { value: transferred };
    } else {
      const request = decodeInferRequest(body, task.headerLength, task.model);
      transferred = request.inputs.map(({ bytes }) => bytes);
      result = { value: request };
    }
  } catch (error) {
    const { name, message, code, image } = error as JsonFailure;
    result = { failure: { name, message, code, image } };
  }
  // inputs that follow the JSON share the buffer of the body
  const buffers = new Set(transferred.map(({ buffer }) => buffer as ArrayBuffer));
  parentPort?.postMessage(result, [...buffers]);
});
