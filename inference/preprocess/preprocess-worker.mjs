// Decodes and resizes images in a worker thread. Plain JavaScript, so that the thread starts without a TypeScript loader.
import { parentPort, workerData } from "node:worker_threads";
import { createThreadResources, preprocessImage } from "./preprocess-image.mjs";

/** @type {{ kernel: WebAssembly.Module }} */
const { kernel } = workerData;
const resources = createThreadResources(kernel);

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
    parentPort.postMessage({ pixels }, [pixels.buffer]);
  } catch (error) {
    parentPort.postMessage({ failure: error instanceof Error ? error.message : String(error) });
  }
});
parentPort.postMessage({ ready: true });
