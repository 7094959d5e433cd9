// Decodes and resizes images in a worker thread. Plain JavaScript, so that the thread starts without a TypeScript loader.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { parentPort, workerData } from "node:worker_threads";
import { createThreadResources, preprocessImage } from "./preprocess-image.mjs";

/** @type {{ kernel: WebAssembly.Module }} */
const { kernel } = workerData;
const resources = createThreadResources(kernel);

setFlagsFromString("--expose-gc");
/** Frees decoded images, which are too few objects for a collection of their own. */
const collect = runInNewContext("gc");
/** Pixels of an image whose memory is worth a collection, which takes a few milliseconds. */
const minCollectedPixels = 4_000_000;

let granted = () => {};

function reserve(needsPixels) {
  return /** @type {Promise<void>} */ (
    new Promise((resolve) => {
      granted = resolve;
      parentPort.postMessage({ needsPixels });
    })
  );
}

// one image at a time: the pool sends the next one after the response
parentPort.on("message", async ({ granted: isGranted, bytes, ...task }) => {
  if (isGranted) {
    granted();
    return;
  }
  try {
    const pixels = await preprocessImage(bytes, { ...task, reserve }, resources);
    if (task.header.width * task.header.height >= minCollectedPixels) collect();
    parentPort.postMessage({ pixels }, [pixels.buffer]);
  } catch (error) {
    parentPort.postMessage({ failure: error instanceof Error ? error.message : String(error) });
  }
});
parentPort.postMessage({ ready: true });
