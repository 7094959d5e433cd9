// What of ONNX Runtime's C API sessions need that share the weights of one model: its binding for Node gives each session a
// copy of its own. Plain JavaScript: for onnx-worker.mjs.
//
// Functions by their place in `struct OrtApi` of onnxruntime_c_api.h, which is only ever appended to. Pointers are BigInts;
// those of one thread are good in every other.
import { closeSync, fstatSync, openSync } from "node:fs";
import koffi from "koffi";

/** @typedef {import("./onnx-session.ts").ValueMetadata} ValueMetadata */
/** @typedef {{ name: string, type: string, dims: number[], data: import("node:util").types.TypedArray }} WireTensor */
/** @typedef {import("./onnx-session.ts").WeightFile} WeightFile */
/** @typedef {import("./onnx-session.ts").SharedWeights} SharedWeights */

/** The first version of the API that has all of these functions. */
const apiVersion = 9;

/** By the name under which it is in this process already: onnxruntime-node has loaded it. */
const runtime = koffi.load("libonnxruntime.so.1");
const getApi = koffi.decode(
  koffi.decode(runtime.func("void *OrtGetApiBase()")(), "void *"),
  koffi.proto("void *GetApi(uint32_t version)"),
);
const api = getApi(apiVersion);
if (api === null) throw new Error(`ONNX Runtime has no version ${apiVersion} of its C API`);

/**
 * @param {number} place
 * @param {string} result
 * @param {string} parameters
 */
function bare(place, result, parameters) {
  const address = koffi.decode(api, place * koffi.sizeof("void *"), "void *");
  return koffi.decode(address, koffi.proto(`${result} OrtApi${place}(${parameters})`));
}

const getErrorMessage = bare(2, "const char *", "void *status");
const releaseStatus = bare(93, "void", "void *status");

/**
 * A function that gives a status.
 *
 * @param {number} place
 * @param {string} parameters
 */
function checked(place, parameters) {
  const call = bare(place, "void *", parameters);
  return (/** @type {unknown[]} */ ...values) => {
    const status = call(...values);
    if (status === null) return;
    const message = getErrorMessage(status);
    releaseStatus(status);
    throw new Error(message);
  };
}

/**
 * A function that gives a status, and a pointer by its last parameter.
 *
 * @param {number} place
 * @param {string} parameters
 * @returns {(...values: unknown[]) => bigint}
 */
function creating(place, parameters) {
  const call = checked(place, `${parameters}${parameters === "" ? "" : ", "}_Out_ void **created`);
  return (...values) => {
    const created = [null];
    call(...values, created);
    return created[0];
  };
}

const createEnv = creating(3, "int level, const char *id");
const runSession = checked(
  9,
  "void *session, void *options, const char **inputNames, const void **inputs, size_t inputCount, " +
    "const char **outputNames, size_t outputCount, _Inout_ void **outputs",
);
const createSessionOptions = creating(10, "");
const setExecutionMode = checked(13, "void *options, int mode");
const disableMemPattern = checked(17, "void *options");
const setLogSeverityLevel = checked(22, "void *options, int level");
const setGraphOptimizationLevel = checked(23, "void *options, int level");
const setIntraOpNumThreads = checked(24, "void *options, int threads");
const setInterOpNumThreads = checked(25, "void *options, int threads");
const createTensor = creating(
  49,
  "void *memory, void *data, size_t bytes, const int64_t *shape, size_t dimensions, int type",
);
const createCpuMemoryInfo = creating(69, "int allocator, int memory");
const releaseEnv = bare(92, "void", "void *env");
const releaseMemoryInfo = bare(94, "void", "void *memory");
const releaseSession = bare(95, "void", "void *session");
const releaseValue = bare(96, "void", "void *value");
const releaseSessionOptions = bare(100, "void", "void *options");
const addSessionConfigEntry = checked(130, "void *options, const char *key, const char *value");
const addInitializer = checked(150, "void *options, const char *name, void *value");
const createAndRegisterAllocator = checked(144, "void *env, void *memory, void *arena");
const unregisterAllocator = checked(177, "void *env, void *memory");
const createPrepackedWeights = creating(166, "");
const releasePrepackedWeights = bare(167, "void", "void *container");
const createSession = creating(
  168,
  "void *env, const char *model, void *options, void *prepackedWeights",
);

const libc = koffi.load("libc.so.6");
const mmap = libc.func(
  "intptr_t mmap(void *address, size_t bytes, int protection, int flags, int file, int64_t offset)",
);
const munmap = libc.func("int munmap(void *address, size_t bytes)");
const madvise = libc.func("int madvise(void *address, size_t bytes, int advice)");

/** Of Linux, on every processor that ONNX Runtime's packages are for. */
const [PROT_READ, MAP_PRIVATE, MADV_DONTNEED] = [1, 2, 4];

const ORT_FATAL = 4;
const ORT_ENABLE_ALL = 99;
const [OrtArenaAllocator, OrtMemTypeDefault] = [1, 0];

/** `ONNXTensorElementDataType`, of what goes in and out. */
const elementTypes = { float32: 1, uint8: 2 };

/**
 * @param {{
 *   modelPath: string,
 *   sessionOptions: ReturnType<typeof import("./onnx-session.ts").sessionOptions>,
 *   inputs: ValueMetadata[],
 *   outputs: ValueMetadata[],
 *   weights: WeightFile | SharedWeights
 * }} options
 */
export function openSharing({ modelPath, sessionOptions, inputs, outputs, weights }) {
  const env = createEnv(ORT_FATAL, "clipstack");
  const memory = createCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault);
  const own = "file" in weights;
  let shared;
  const release = () => {
    if (own && shared !== undefined) releaseWeights(shared);
    if (own) removeArena(env, memory);
    releaseMemoryInfo(memory);
    releaseEnv(env);
  };
  let session;
  const options = createSessionOptions();
  try {
    // sessions take the memory of their runs from one arena: otherwise each keeps what its largest batch took
    if (own) createAndRegisterAllocator(env, memory, null);
    shared = own ? loadWeights(memory, weights) : weights;
    applyOptions(options, sessionOptions);
    addSessionConfigEntry(options, "session.use_env_allocators", "1");
    for (const { name, value } of shared.initializers) addInitializer(options, name, value);
    session = createSession(env, modelPath, options, shared.prepacked);
  } catch (error) {
    release();
    throw error;
  } finally {
    releaseSessionOptions(options);
  }
  // it has its packed form: what it needs of the file again is read again
  madvise(shared.address, shared.bytes, MADV_DONTNEED);

  const inputNames = inputs.map(({ name }) => name);
  const outputNames = outputs.map(({ name }) => name);
  return {
    weights: shared,

    /** @param {WireTensor[]} tensors - One for each input, in their order. */
    run(tensors) {
      const batchSize = tensors[0].dims[0];
      const results = outputs.map(({ name, type, shape }) => {
        const dims = [batchSize, ...shape.slice(1)];
        const length = dims.reduce((product, dim) => product * dim, 1);
        return { name, type, dims, data: new Float32Array(new ArrayBuffer(4 * length)) };
      });
      const values = [];
      try {
        for (const { type, dims, data } of [...tensors, ...results]) {
          values.push(tensorOver(memory, data, data.byteLength, dims, elementTypes[type]));
        }
        const [fed, fetched] = [values.slice(0, tensors.length), values.slice(tensors.length)];
        runSession(
          session,
          null,
          inputNames,
          fed,
          fed.length,
          outputNames,
          fetched.length,
          fetched,
        );
      } finally {
        for (const value of values) releaseValue(value);
      }
      return results;
    },

    /** Those that share its weights must have been released. */
    release() {
      releaseSession(session);
      release();
    },
  };
}

/**
 * A tensor whose values stay where they are.
 *
 * @param {bigint} memory
 * @param {bigint | import("node:util").types.TypedArray} data
 * @param {number} bytes
 * @param {readonly number[]} dims
 * @param {number} type - `ONNXTensorElementDataType`.
 */
function tensorOver(memory, data, bytes, dims, type) {
  const shape = BigInt64Array.from(dims, BigInt);
  return createTensor(memory, data, bytes, shape, shape.length, type);
}

/**
 * @param {bigint} options
 * @param {ReturnType<typeof import("./onnx-session.ts").sessionOptions>} settings
 */
function applyOptions(options, settings) {
  setGraphOptimizationLevel(options, ORT_ENABLE_ALL);
  setIntraOpNumThreads(options, settings.intraOpNumThreads);
  setInterOpNumThreads(options, settings.interOpNumThreads);
  setExecutionMode(options, settings.executionMode === "parallel" ? 1 : 0);
  setLogSeverityLevel(options, settings.logSeverityLevel);
  if (!settings.enableMemPattern) disableMemPattern(options);
  for (const [key, value] of configEntries(settings.extra)) {
    addSessionConfigEntry(options, key, value);
  }
}

/**
 * There is one arena: that of another model that was opened later has replaced it, and its end may have removed that. Sessions
 * keep the one that they opened with.
 *
 * @param {bigint} env
 * @param {bigint} memory
 */
function removeArena(env, memory) {
  try {
    unregisterAllocator(env, memory);
  } catch {}
}

/**
 * `{ session: { a: "1" } }` is `session.a`, as the binding has it.
 *
 * @param {object} settings
 * @param {string} prefix
 * @returns {[string, string][]}
 */
function configEntries(settings, prefix = "") {
  return Object.entries(settings).flatMap(([key, value]) =>
    typeof value === "object"
      ? configEntries(value, `${prefix}${key}.`)
      : [[`${prefix}${key}`, value]],
  );
}

/**
 * Maps the file, so that weights that are not packed cost no memory.
 *
 * @param {bigint} memory
 * @param {WeightFile} weights
 * @returns {SharedWeights}
 */
function loadWeights(memory, { file, initializers }) {
  const descriptor = openSync(file, "r");
  let bytes;
  let address;
  try {
    bytes = fstatSync(descriptor).size;
    // a read beyond the end of a mapped file ends the process
    const end = Math.max(0, ...initializers.map(({ offset, length }) => offset + length));
    if (end > bytes || bytes === 0) throw new Error(`${file}: is cut short`);
    address = BigInt(mmap(null, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0));
    if (address === -1n) throw new Error(`${file}: cannot be mapped`);
  } finally {
    closeSync(descriptor);
  }
  /** @type {{ name: string, value: bigint }[]} */
  const values = [];
  const shared = { address, bytes, initializers: values, prepacked: null };
  try {
    shared.prepacked = createPrepackedWeights();
    for (const { name, dataType, dims, offset, length } of initializers) {
      const data = address + BigInt(offset);
      values.push({ name, value: tensorOver(memory, data, length, dims, dataType) });
    }
  } catch (error) {
    releaseWeights(shared);
    throw error;
  }
  return shared;
}

/** @param {SharedWeights} weights */
function releaseWeights({ address, bytes, initializers, prepacked }) {
  if (prepacked !== null) releasePrepackedWeights(prepacked);
  for (const { value } of initializers) releaseValue(value);
  munmap(address, bytes);
}
