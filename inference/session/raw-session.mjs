// Measures ONNX Runtime without the server, as the ceiling of `npm run lab -- server`: no worker, no batcher, no copies, one
// random input. Reads its task as JSON from the first argument and prints the measurements as one line of JSON.
import { env, InferenceSession, Tensor } from "onnxruntime-node";

env.logLevel = "fatal";

/** @type {{ modelPath: string, sessionOptions: object, batchSizes: number[], seconds: number }} */
const { modelPath, sessionOptions, batchSizes, seconds } = JSON.parse(process.argv[2] ?? "");

/** Runs before the measurement: the first ones allocate. */
const warmupRuns = 2;
/** Below the size of every vocabulary. */
const maxTokenId = 10_000;
/** Measured runs per batch size, even if `seconds` has passed. */
const minimumRuns = 3;

const startedAt = performance.now();
const session = await InferenceSession.create(modelPath, sessionOptions);
const createMs = performance.now() - startedAt;

/** Random values by type of the input; integers are token ids. */
const random = {
  uint8: (length) => Uint8Array.from({ length }, () => 256 * Math.random()),
  float32: (length) => Float32Array.from({ length }, () => 4 * Math.random() - 2),
  int32: (length) => Int32Array.from({ length }, () => maxTokenId * Math.random()),
  int64: (length) =>
    BigInt64Array.from({ length }, () => BigInt(Math.floor(maxTokenId * Math.random()))),
};

function tensors(batchSize) {
  const [input] = session.inputMetadata;
  const [output] = session.outputMetadata;
  const dims = [batchSize, ...input.shape.slice(1)];
  const length = dims.reduce((product, dim) => product * dim, 1);
  const data = random[input.type](length);
  const outputDims = [batchSize, ...output.shape.slice(1)];
  const values = new Float32Array(outputDims.reduce((product, dim) => product * dim, 1));
  return {
    feeds: { [input.name]: new Tensor(input.type, data, dims) },
    fetches: { [output.name]: new Tensor("float32", values, outputDims) },
  };
}

const rows = [];
for (const batchSize of batchSizes) {
  const { feeds, fetches } = tensors(batchSize);
  for (let run = 0; run < warmupRuns; run++) await session.run(feeds, fetches);
  const runMs = [];
  const cpuBefore = process.cpuUsage();
  const endsAt = performance.now() + (seconds * 1000) / batchSizes.length;
  while (performance.now() < endsAt || runMs.length < minimumRuns) {
    const runAt = performance.now();
    await session.run(feeds, fetches);
    runMs.push(performance.now() - runAt);
  }
  const { user, system } = process.cpuUsage(cpuBefore);
  rows.push({ batchSize, runMs, cpuMs: (user + system) / 1000 });
}
console.log(JSON.stringify({ createMs, readyMs: startedAt + createMs, rows }));
