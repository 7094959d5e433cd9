// Decodes one HEIC file. A thread for each file gives its memory back: WebAssembly's only grows.
import { parentPort, workerData } from "node:worker_threads";
import decode from "heic-decode";

const { width, height, data } = await decode({ buffer: workerData });
parentPort.postMessage({ width, height, data }, [data.buffer]);
