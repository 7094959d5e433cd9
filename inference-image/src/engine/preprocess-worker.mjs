// Decodes and resizes images in a thread of its own: either would hold up the event loop of the process. Plain JavaScript,
// so that the thread starts without a TypeScript loader, whatever loader the process has.
import { parentPort, workerData } from "node:worker_threads";
import { createEngines, preprocessImage } from "./preprocess-image.mjs";

/** @type {{ modules: import("./preprocess-image.mjs").Modules, side: number }} */
const { modules, side } = workerData;
const engines = createEngines(modules);

// one image at a time: the pool sends the next one when it has the answer
parentPort.on("message", async ({ bytes, header, mode, into }) => {
  try {
    const pixels = await preprocessImage(bytes, { header, mode, side, into }, engines);
    parentPort.postMessage({ pixels }, [pixels.buffer]);
  } catch (error) {
    parentPort.postMessage({ failure: error instanceof Error ? error.message : String(error) });
  }
});
