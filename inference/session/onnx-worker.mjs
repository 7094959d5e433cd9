// Runs ONNX Runtime in a worker thread, because `InferenceSession.create()` and `run()` block the calling thread. Plain JavaScript, so
// that the thread starts without a TypeScript loader.
import { parentPort, workerData } from "node:worker_threads";

/** @typedef {import("onnxruntime-node").InferenceSession} InferenceSession */
/** @typedef {import("./onnx-session.ts").ValueMetadata} ValueMetadata */
/** @typedef {{ name: string, type: string, dims: number[], data: import("node:util").types.TypedArray }} WireTensor */
/** @typedef {{ kind: "open", model: string, sessionOptions: object }} Open */

/** @type {{ state: Int32Array<SharedArrayBuffer> }} */
const { state } = workerData;

// loaded immediately: the thread may start before the model is chosen
const { env, InferenceSession, Tensor } = await inRuntime(() => import("onnxruntime-node"));

// errors are thrown, so they need no log
env.logLevel = "fatal";

/** @type {InferenceSession} */
let session;
/** @type {readonly ValueMetadata[]} */
let computed;
let last = Promise.resolve();
parentPort.on("message", (message) => {
  // sequential, because `run()` returns to the event loop before it starts
  last = last.then(() => onMessage(message));
});

async function open(message) {
  try {
    session = await inRuntime(() => InferenceSession.create(message.model, message.sessionOptions));
    const { inputMetadata: inputs, outputMetadata: outputs } = session;
    parentPort.postMessage({ kind: "opened", inputs, outputs });
  } catch (error) {
    parentPort.postMessage({ kind: "failed", message: messageOf(error) });
  }
}

async function onMessage(message) {
  if (message.kind === "open") {
    await open(message);
    return;
  }
  if (message.kind === "select") {
    computed = session.outputMetadata.filter(({ name }) => message.outputs.includes(name));
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

async function run(inputs) {
  const startedAt = performance.now();
  const outputs = await inRuntime(() => runSession(inputs));
  return { outputs, inferUs: (performance.now() - startedAt) * 1000 };
}

async function runSession(inputs) {
  const feeds = Object.fromEntries(
    inputs.map(({ name, type, dims, data }) => [name, new Tensor(type, data, dims)]),
  );
  const batchSize = inputs[0].dims[0];
  const fetches = Object.fromEntries(
    computed.map((meta) => [meta.name, outputTensor(meta, batchSize)]),
  );
  const results = await session.run(feeds, fetches);
  return computed.map(({ name }) => {
    const { type, dims, data } = results[name];
    // only memory allocated by this thread can be transferred
    const own = fetches[name] === null ? data.slice() : data;
    return { name, type, dims: [...dims], data: own };
  });
}

/**
 * Marks the thread as inside the runtime during `work`; see `leaveRuntimes` in onnx-thread.ts.
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
  // the process is exiting
  return new Promise(() => {});
}

/**
 * Returns a tensor into which the runtime writes the output without a copy; null if the shape is not known in advance.
 *
 * @param {ValueMetadata} meta
 * @param {number} batchSize
 */
function outputTensor({ type, shape }, batchSize) {
  const [first] = shape;
  const dims = [typeof first === "number" ? first : batchSize, ...shape.slice(1)];
  if (type !== "float32" || dims.some((dim) => typeof dim !== "number")) return null;
  const length = dims.reduce((product, dim) => product * dim, 1);
  return new Tensor(type, new Float32Array(length), dims);
}

function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
