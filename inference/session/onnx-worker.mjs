// Runs ONNX Runtime in a thread of its own: `InferenceSession.create()` and `run()` block the thread that calls them.
// Plain JavaScript, so that the thread starts without a TypeScript loader, whatever loader the process has.
import { parentPort, workerData } from "node:worker_threads";

/** @typedef {import("onnxruntime-node").InferenceSession} InferenceSession */
/** @typedef {import("./onnx-session.ts").ValueMetadata} ValueMetadata */
/** @typedef {{ name: string, type: string, dims: number[], data: import("node:util").types.TypedArray }} WireTensor */
/** @typedef {{ kind: "open", model: string, sessionOptions: object }} Open */

/** @type {{ state: Int32Array<SharedArrayBuffer> }} */
const { state } = workerData;

// loaded at once: the thread may be started before it is known which model it will run
const { env, InferenceSession, Tensor } = await inRuntime(() => import("onnxruntime-node"));

// what goes wrong is thrown: not also written to the terminal
env.logLevel = "fatal";

/** @type {InferenceSession} */
let session;
let last = Promise.resolve();
parentPort.on("message", (message) => {
  // one after the other: `run()` comes back to the event loop before it begins
  last = last.then(() => onMessage(message));
});

/** @param {Open} message */
async function open(message) {
  try {
    session = await inRuntime(() => InferenceSession.create(message.model, message.sessionOptions));
    const { inputMetadata: inputs, outputMetadata: outputs } = session;
    parentPort.postMessage({ kind: "opened", inputs, outputs });
  } catch (error) {
    parentPort.postMessage({ kind: "refused", message: messageOf(error) });
  }
}

/** @param {Open | { kind: "run", id: number, inputs: WireTensor[] } | { kind: "close" }} message */
async function onMessage(message) {
  if (message.kind === "open") {
    await open(message);
    return;
  }
  if (message.kind === "close") {
    await session.release();
    parentPort.close();
    return;
  }
  try {
    const { outputs, inferUs } = await run(message.inputs);
    const transfer = outputs.map(({ data }) => data.buffer);
    parentPort.postMessage({ kind: "ran", id: message.id, outputs, inferUs }, transfer);
  } catch (error) {
    parentPort.postMessage({ kind: "failed", id: message.id, message: messageOf(error) });
  }
}

/** @param {WireTensor[]} inputs */
async function run(inputs) {
  const startedAt = performance.now();
  const outputs = await inRuntime(() => runSession(inputs));
  return { outputs, inferUs: (performance.now() - startedAt) * 1000 };
}

/** @param {WireTensor[]} inputs */
async function runSession(inputs) {
  const feeds = Object.fromEntries(
    inputs.map(({ name, type, dims, data }) => [name, new Tensor(type, data, dims)]),
  );
  const batchSize = inputs[0].dims[0];
  const fetches = Object.fromEntries(
    session.outputMetadata.map((meta) => [meta.name, outputTensor(meta, batchSize)]),
  );
  const results = await session.run(feeds, fetches);
  return session.outputNames.map((name) => {
    const { type, dims, data } = results[name];
    // only memory that this thread allocated can move to another one
    const own = fetches[name] === null ? data.slice() : data;
    return { name, type, dims: [...dims], data: own };
  });
}

/**
 * Do something in the runtime, and let the main thread know: see `leaveRuntimes` in onnx-thread.ts.
 *
 * @template T
 * @param {() => Promise<T>} work
 */
async function inRuntime(work) {
  Atomics.store(state, 0, 1);
  try {
    if (Atomics.load(state, 1) === 0) return await work();
  } finally {
    Atomics.store(state, 0, 0);
    Atomics.notify(state, 0);
  }
  // the process ends: wait for it
  return new Promise(() => {});
}

/**
 * A tensor that the runtime writes the output into, without a copy; null where the shape is not known before.
 *
 * @param {ValueMetadata} meta
 * @param {number} batchSize
 */
function outputTensor({ type, shape }, batchSize) {
  const dims = [batchSize, ...shape.slice(1)];
  if (type !== "float32" || dims.some((dim) => typeof dim !== "number")) return null;
  const length = dims.reduce((product, dim) => product * dim, 1);
  return new Tensor(type, new Float32Array(length), dims);
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
