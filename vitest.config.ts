import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

const exclude = ["**/node_modules/**", "cdktf.out/**"];

/** They share one Kubernetes cluster, which takes longest to be had. */
const onCluster = [
  "tests/deploy/{kind-local,chart,k8s-gpu}.integ.test.ts",
  "review/input/cluster-plans.integ.test.ts",
];

/** How long `expect.poll` waits where a test does not say: against a hang, however slow the machine is. */
const poll = { timeout: 60_000 };

/**
 * One file after the other: each has the machine, and its ports, for itself. The times are against a hang: some build images, make a
 * cluster and deploy, on a machine that may be slow.
 */
const real = {
  testTimeout: 900_000,
  hookTimeout: 1_800_000,
  fileParallelism: false,
  expect: { poll },
};

export default defineConfig({
  test: {
    globalSetup: "./tests/test-temporary-folder.ts",
    // clusters are removed meanwhile
    teardownTimeout: 600_000,
    projects: [
      {
        test: {
          name: "unit",
          include: ["**/*.test.ts"],
          exclude: [...exclude, "**/*.integ.test.ts"],
          // a worker loads modules once for all its files, so no file can mock one
          isolate: false,
          // against a hang, however slow the machine is
          testTimeout: 300_000,
          hookTimeout: 300_000,
          // many wait: for a process that starts, or for a time to pass
          maxWorkers: availableParallelism() + 1,
          expect: { poll },
        },
      },
      {
        test: {
          name: "integ",
          include: ["**/*.integ.test.ts"],
          exclude: [...exclude, ...onCluster],
          ...real,
        },
      },
      {
        test: {
          name: "cluster",
          include: onCluster,
          exclude,
          globalSetup: "./tests/deploy/test-cluster-removed.ts",
          ...real,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
