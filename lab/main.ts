import { ignoreClosedOutput } from "../artefact/closed-output.ts";

/** `npm run lab -- <name>`: the measurements and trials behind clipstack's figures and promises. */

interface Experiment {
  readonly summary: string;
  /** Module that reads `process.argv` and runs. */
  readonly run: () => Promise<unknown>;
}

const experiments: Readonly<Record<string, Experiment>> = {
  server: {
    summary: "compare the embed server with plain ONNX Runtime and a FastAPI service",
    run: () => import("./server/main.ts"),
  },
  gateway: {
    summary: "processor time of the gateway per image, compared with FastAPI and tritonclient",
    run: () => import("./gateway/main.ts"),
  },
  bulk: {
    summary: "compare bulk workers with ONNX Runtime, sharp, one another and clip-retrieval",
    run: () => import("./bulk/main.ts"),
  },
  calibrate: {
    summary: "calibrate clipstack capacity with the published figures; its errors and parameters",
    run: () => import("./capacity/main.ts"),
  },
  generator: {
    summary: "compare the load generator with hey and perf_analyzer",
    run: () => import("./load/agree-main.ts"),
  },
  ingest: {
    summary: "Triton's processor time per request without a computing backend",
    run: () => import("./ingest/measure-ingest.ts"),
  },
  fuzz: {
    summary: "50,000 hostile inputs over all endpoints",
    run: () => import("./trials/fuzz-main.ts"),
  },
  soak: {
    summary: "memory over 20,000 requests of mixed sizes",
    run: () => import("./trials/soak-main.ts"),
  },
  stops: {
    summary: "200 stops under load without a lost request",
    run: () => import("./trials/stops-main.ts"),
  },
  "gateway-trial": {
    summary: "30 minutes of a gateway with a frozen, a faulty and a restarted Triton server",
    run: () => import("./trials/gateway-main.ts"),
  },
  "production-cluster": {
    summary: "the chart on kind with a Gateway, Prometheus and KEDA: HTTPS, scaling, canary",
    run: () => import("./production-cluster/main.ts"),
  },
  "bulk-cluster": {
    summary: "a bulk job on kind with killed pods and a bucket that throttles: rows compared",
    run: () => import("./bulk-cluster/main.ts"),
  },
  acceptance: {
    summary: "the servers on this machine's GPU, without Docker and a network",
    run: () => import("./gpu/acceptance.ts"),
  },
  dedupe: {
    summary: "the photo finder on painted photos, with precision and recall",
    run: () => import("./dedupe/demo.ts"),
  },
  "release-rehearsal": {
    summary: "publish to registries of this machine, and take a user's path from them",
    run: () => import("./release/rehearsal.ts"),
  },
  sizes: {
    summary: "lines of source and tests by package",
    run: () => import("./sizes.ts"),
  },
};

ignoreClosedOutput();
const [name = "", ...args] = process.argv.slice(2);
const experiment = experiments[name];
if (experiment === undefined) {
  const isHelp = ["", "help", "--help"].includes(name);
  if (!isHelp) console.error(`name must be one of the following, got '${name}'`);
  const rows = Object.entries(experiments).map(
    ([each, { summary }]) => `  ${each.padEnd(18)} ${summary}`,
  );
  console.log(`Usage: npm run lab -- <name> [options]; --help after a name lists its options\n`);
  console.log(rows.join("\n"));
  process.exitCode = isHelp ? 0 : 2;
} else {
  process.argv = [...process.argv.slice(0, 2), ...args];
  await experiment.run();
}
