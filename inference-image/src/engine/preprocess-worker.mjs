// Decodes and resizes images in a thread of its own: either would hold up the event loop of the process. Plain JavaScript,
// so that the thread starts without a TypeScript loader, whatever loader the process has.
import { parentPort, workerData } from "node:worker_threads";
import { preprocessImage } from "./preprocess-image.mjs";
import { Resampler } from "./resample.mjs";

/** @type {{ module: WebAssembly.Module, side: number }} */
const { module, side } = workerData;
const resampler = new Resampler(module);

// one image at a time: the pool sends the next one when it has the answer
parentPort.on("message", async ({ bytes, header, mode }) => {
  try {
    const pixels = await preprocessImage(bytes, { header, mode, side }, resampler);
    parentPort.postMessage({ pixels }, [pixels.buffer]);
  } catch (error) {
    parentPort.postMessage({ failure: error instanceof Error ? error.message : String(error) });
  }
});
