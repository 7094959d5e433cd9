// Profiles a model with ONNX Runtime and random input: time by operator and execution provider. Reads its task as JSON from the
// first argument and prints the result as one line of JSON.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { env, InferenceSession, Tensor } from "onnxruntime-node";

env.logLevel = "fatal";

/** @type {{ modelPath: string, sessionOptions: object, batch: number, warmupRuns: number, runs: number }} */
const { modelPath, sessionOptions, batch, warmupRuns, runs } = JSON.parse(process.argv[2] ?? "");

const folder = mkdtempSync(join(tmpdir(), "clipstack-profile-"));
try {
  const session = await InferenceSession.create(modelPath, {
    ...sessionOptions,
    enableProfiling: true,
    profileFilePrefix: join(folder, "profile"),
  });
  const [input] = session.inputMetadata;
  const dims = [batch, ...input.shape.slice(1)];
  const length = dims.reduce((product, dim) => product * dim, 1);
  const data =
    input.type === "uint8"
      ? Uint8Array.from({ length }, () => 256 * Math.random())
      : Float32Array.from({ length }, () => 4 * Math.random() - 2);
  const feeds = { [input.name]: new Tensor(input.type, data, dims) };
  for (let run = 0; run < warmupRuns + runs; run++) await session.run(feeds);
  // writes the file
  session.endProfiling();
  const [file] = readdirSync(folder);
  console.log(JSON.stringify(summarize(JSON.parse(readFileSync(join(folder, file), "utf8")))));
} catch (error) {
  console.error(error instanceof Error ? error.message.split("\n")[0] : String(error));
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/**
 * Number of nodes and total time in all measured runs, by operator and execution provider. The events of a run precede its end,
 * `model_run`.
 *
 * @param {{ cat: string, name: string, ts: number, dur: number, args?: Record<string, string> }[]} events
 */
function summarize(events) {
  const ends = events
    .filter(({ cat, name }) => cat === "Session" && name === "model_run")
    .map(({ ts, dur }) => ({ from: ts, to: ts + dur }))
    .sort((a, b) => a.from - b.from);
  const measuredFrom = ends[warmupRuns]?.from ?? 0;
  /** @type {Map<string, { operator: string, provider: string, nodes: Set<string>, us: number }>} */
  const rows = new Map();
  for (const { cat, name, ts, dur, args } of events) {
    if (cat !== "Node" || !name.endsWith("_kernel_time") || ts < measuredFrom) continue;
    const operator = args?.op_name ?? "unknown";
    const provider = args?.provider ?? "unknown";
    const key = `${provider} ${operator}`;
    const row = rows.get(key) ?? { operator, provider, nodes: new Set(), us: 0 };
    row.nodes.add(`${args?.node_index} ${name}`);
    row.us += dur;
    rows.set(key, row);
  }
  return {
    runs: ends.length - warmupRuns,
    rows: [...rows.values()].map(({ nodes, ...row }) => ({ ...row, nodes: nodes.size })),
  };
}
