import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { compiledServer } from "./tests/test-compiled-server.ts";

const exclude = ["**/node_modules/**", "cdktf.out/**"];

/** Tests that share one Kubernetes cluster, which takes longest to start. */
const onCluster = [
  "tests/deploy/{kind-local,chart,k8s-gpu}.integ.test.ts",
  "review/input/cluster-plans.integ.test.ts",
];

/** Tests that use fixed ports, compare what a Docker engine contains, or measure: each needs the machine for itself. */
const alone = [
  "tests/deploy/*.integ.test.ts",
  "bench/{run,slo,studies}/*.integ.test.ts",
  "lab/{bulk,gateway,ingest,load,server,trials}/*.integ.test.ts",
  "cli/commands/{doctor,launch-spec,tunnel,wait-healthy}.integ.test.ts",
  "cli/host/deployment.integ.test.ts",
  "review/input/{plans,kubernetes-plan}.integ.test.ts",
  "stacks/cdktn.integ.test.ts",
  "tests/{clients,own-model,packed-project}.integ.test.ts",
];

/**
 * Test files that run a complete command or measurement. They form the project `runs`, because most
 * of them spend seconds waiting for child processes.
 */
const endToEndRunTests = [
  "bench/run/bench-run.test.ts",
  "bench/studies/cold-start.test.ts",
  "client/samples.test.ts",
  "target/load/measure-load.test.ts",
  "cli/commands/{bench,serve,sweep,verify}.test.ts",
  "cli/model/model-deploy.test.ts",
  "verify/verify.test.ts",
  "verify/drills/rollout.test.ts",
  "inference-image/server/build.test.ts",
  "examples/photo-dedupe/{main,embed,search}.test.ts",
];

/** Tests of whole servers, which run on the compiled code alone. */
const onlyCompiled = [
  "inference-image/server/embed-server.test.ts",
  "emulator/{hot-replacement,oip-admission,transports,triton-emulator}.test.ts",
  "inference-image/gateway/{dali-gateway,faulty-triton,fingerprint,gateway,gateway-models}.test.ts",
  "inference-image/openai/{openai-client,openai-gateway}.test.ts",
  "inference-image/server/{client-keys,hostile-requests}.test.ts",
  "inference-image/jobs/*.test.ts",
];

/**
 * Tests of the server that compile it themselves, pass objects of grpc-js, which the compiled server contains a copy of, or test
 * parts without files or threads of their own, which the tests of whole servers run compiled.
 */
const notCompiled = [
  "inference-image/server/{app,build}.test.ts",
  "inference-image/openai/remote-images.test.ts",
  "inference-image/gateway/triton-embedder.test.ts",
  "emulator/{ensemble,model-registry,oip-grpc,protocol,reload}.test.ts",
  "http/{drain,open-requests}.test.ts",
];

/**
 * Default timeout of `expect.poll` in ms. High enough for slow machines, because it only guards
 * against hangs.
 */
const pollDefaults = { timeout: 60_000 };

/** The examples import the packed client. */
const alias = {
  "@clipstack/client": fileURLToPath(new URL("client/index.ts", import.meta.url)),
};

/** Tests that only need Node. */
const quick = {
  alias,
  // a worker loads each module once for all its files, so tests cannot mock modules
  isolate: false,
  // prevents hangs only
  testTimeout: 300_000,
  hookTimeout: 300_000,
  // many tests wait for a process or a timer
  maxWorkers: availableParallelism() + 1,
  expect: { poll: pollDefaults },
};

/** The limits only prevent hangs. */
const real = {
  alias,
  testTimeout: 900_000,
  hookTimeout: 1_800_000,
  expect: { poll: pollDefaults },
};

export default defineConfig({
  test: {
    globalSetup: "./tests/test-temporary-folder.ts",
    // includes the removal of clusters
    teardownTimeout: 600_000,
    projects: [
      {
        test: {
          name: "unit",
          include: ["**/*.test.ts"],
          exclude: [
            ...exclude,
            "**/*.integ.test.ts",
            "lab/**",
            ...endToEndRunTests,
            ...onlyCompiled,
          ],
          ...quick,
        },
      },
      { test: { name: "runs", include: endToEndRunTests, exclude, ...quick } },
      {
        test: {
          name: "lab",
          include: ["lab/**/*.test.ts"],
          exclude: [...exclude, "**/*.integ.test.ts"],
          ...quick,
        },
      },
      {
        // the tests of the server on the code that the images run
        plugins: [compiledServer()],
        test: {
          name: "compiled",
          include: ["{inference-image/*,emulator,http}/*.test.ts"],
          exclude: [...exclude, "**/*.integ.test.ts", ...notCompiled],
          ...quick,
        },
      },
      {
        test: {
          name: "integ",
          include: ["**/*.integ.test.ts"],
          exclude: [...exclude, ...onCluster, ...alone],
          ...real,
          maxWorkers: quick.maxWorkers,
        },
      },
      {
        test: {
          name: "alone",
          include: alone,
          exclude: [...exclude, ...onCluster],
          ...real,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: "cluster",
          include: onCluster,
          exclude,
          globalSetup: "./tests/deploy/test-cluster-removed.ts",
          ...real,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
