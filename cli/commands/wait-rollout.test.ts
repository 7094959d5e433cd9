import { afterEach, expect, test } from "vitest";
import { type TestCluster, testCluster } from "../../verify/cluster/test-cluster-server.ts";
import { clipstack } from "../test-programs.ts";

let cluster: TestCluster | undefined;
afterEach(() => cluster?.close());

const selector = { matchLabels: { app: "embed" } };
const deployment = (availableReplicas: number) => ({
  metadata: { name: "embed", generation: 1 },
  spec: { replicas: 1, selector },
  status: { observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas },
});
const looping = {
  metadata: { name: "embed-1", creationTimestamp: "2026-11-21T20:00:00Z" },
  spec: {},
  status: {
    containerStatuses: [
      {
        name: "embed",
        restartCount: 3,
        lastState: { terminated: { exitCode: 3, reason: "Error" } },
      },
    ],
  },
};
const warned = {
  reason: "BackOff",
  message: "Back-off restarting",
  metadata: { creationTimestamp: "2026-11-21T20:00:00Z" },
};

/** Waits for the only Deployment of a cluster. Its API server closes the first `away` connections. */
async function wait(
  { ready, pods = [], away = 0 }: { ready: number; pods?: readonly object[]; away?: number },
  ...args: readonly string[]
) {
  let left = away;
  cluster = await testCluster(({ path, query }) => {
    if (left-- > 0) return "closed";
    if (path.endsWith("/deployments/embed")) return deployment(ready);
    if (path.endsWith("/pods")) return { items: pods };
    if (path.endsWith("/events")) return { items: [warned] };
    if (path.endsWith("/replicasets")) return { items: [] };
    return `${path}?${query}` ===
      "/api/v1/namespaces/clipstack/pods/embed-1/log?tailLines=20&previous=false&container=embed"
      ? "no model at /models"
      : undefined;
  });
  const where = ["--kubeconfig", cluster.kubeconfig, "--timeout", "30"];
  return clipstack(["wait-rollout", "embed", ...where, ...args]);
}

test("ends when the pods are ready, even if the API server was briefly unavailable", async () => {
  const { code, stdout, stderr } = await wait({ ready: 1, away: 2 });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(/^embed: 1 of 1 pods are new, 1 ready \(\d+\.\d s\)$/);
});

test("fails with the events and the last log lines of a pod that is not ready", async () => {
  const { code, stdout, stderr } = await wait({ ready: 0, pods: [looping] });
  expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  expect(stdout.split("\n").slice(1)).toEqual([
    "embed is not ready: container embed restarts in a loop (3 times): it exited with code 3",
    "events of pod embed-1:",
    "  BackOff: Back-off restarting",
    "last log lines:",
    "  no model at /models",
  ]);
});

test("fails in one line on an unknown context", async () => {
  const { code, stderr } = await wait({ ready: 1 }, "--context", "other");
  expect(code).toBe(2);
  expect(stderr).toMatch(/^clipstack: context 'other' of .* does not exist: .*$/);
});

test("fails on an invalid number", async () => {
  const { code, stderr } = await wait({ ready: 1 }, "--replicas", "two");
  expect(code).toBe(2);
  expect(stderr).toContain("It must be a whole number from 0 to 86400.");
});
