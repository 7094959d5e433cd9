import { parentPort } from "node:worker_threads";
import { decodeInferRequest } from "../../client/triton/wire-http.ts";
import { imagesOfBase64 } from "../embed/base64-images.ts";
import type { JsonFailure, JsonResult, JsonTask } from "./json-thread.ts";

parentPort?.on("message", (task: JsonTask) => {
  let answer: JsonResult;
  let moved: readonly Uint8Array[] = [];
  try {
    const { buffer, byteOffset, byteLength } = task.body;
    const body = Buffer.from(buffer, byteOffset, byteLength);
    if (task.kind === "base64") {
      moved = imagesOfBase64(body);
      answer = { value: moved };
    } else {
      const request = decodeInferRequest(body, task.headerLength, task.model);
      moved = request.inputs.map(({ bytes }) => bytes);
      answer = { value: request };
    }
  } catch (error) {
    const { name, message, code, image } = error as JsonFailure;
    answer = { failure: { name, message, code, image } };
  }
  // inputs that follow the JSON are views of one body
  const memory = new Set(moved.map(({ buffer }) => buffer as ArrayBuffer));
  parentPort?.postMessage(answer, [...memory]);
});
