import { writeFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { ApiRejection, openCluster, rejectionOf } from "./cluster-api.ts";
import {
  type ApiAnswer,
  type ClusterUser,
  type TestCluster,
  testCluster,
} from "./test-cluster-server.ts";

const clusters: TestCluster[] = [];
afterEach(() => {
  for (const cluster of clusters.splice(0)) cluster.close();
});

async function cluster(answer: () => ApiAnswer | undefined = () => ({}), user?: ClusterUser) {
  const it = await testCluster(answer, user);
  clusters.push(it);
  return it;
}

test("fails on a context that the kubeconfig does not have", async () => {
  const { kubeconfig } = await cluster();
  await expect(openCluster({ kubeconfig, context: "other" })).rejects.toThrow(
    `context 'other' of ${kubeconfig} does not exist: deploy the environment, or run 'kubectl config get-contexts'`,
  );
});

test("fails on a kubeconfig that does not exist", async () => {
  await expect(openCluster({ kubeconfig: "/nowhere/config" })).rejects.toThrow(
    "kubeconfig /nowhere/config does not exist: deploy the environment, or set --kubeconfig",
  );
});

test("fails in one line on a kubeconfig that cannot be read", async () => {
  const { kubeconfig } = await cluster();
  writeFileSync(kubeconfig, "{ no yaml");
  await expect(openCluster({ kubeconfig })).rejects.toThrow(
    /^kubeconfig .* cannot be read: [^\n]+$/,
  );
});

test("fails with the name of a cluster that does not respond", async () => {
  const it = await cluster(() => "closed");
  const api = await openCluster({ kubeconfig: it.kubeconfig, context: "mine" });
  await expect(api.get("/version")).rejects.toThrow(
    `the cluster of context 'mine' of ${it.kubeconfig} does not respond: connection closed before the response`,
  );
  await api.close();
});

test("passes the cluster to a credential plugin, and runs it once", async () => {
  const script =
    'echo "{\\"status\\":{\\"token\\":\\"of $(echo $KUBERNETES_EXEC_INFO | grep -o http://[0-9.:]*)\\",\\"expirationTimestamp\\":\\"2100-01-01T00:00:00Z\\"}}"';
  const it = await cluster(() => ({}), {
    exec: { apiVersion: "client.authentication.k8s.io/v1", command: "sh", args: ["-c", script] },
  });
  const api = await openCluster({ kubeconfig: it.kubeconfig });
  await api.get("/version");
  await api.close();
  expect(it.requests[0]?.authorization).toBe(`Bearer of ${it.url}`);
});

test("fails in one line if a credential plugin fails", async () => {
  const { kubeconfig } = await cluster(() => ({}), {
    exec: { command: "sh", args: ["-c", "echo sign in first >&2; exit 1"] },
  });
  await expect(openCluster({ kubeconfig })).rejects.toThrow(
    `cannot get credentials for the current context of ${kubeconfig}: sign in first`,
  );
});

test("returns undefined for a missing object, and throws a rejection with status and message", async () => {
  const answers = [undefined, { rejected: 403, message: "you may not" }];
  const { kubeconfig } = await cluster(() => answers.shift());
  const api = await openCluster({ kubeconfig });
  expect(await api.get("/api/v1/namespaces/none")).toBeUndefined();
  const rejection: unknown = await api.get("/api/v1/nodes").catch((error: unknown) => error);
  expect(rejection).toBeInstanceOf(ApiRejection);
  expect(rejection).toMatchObject({ status: 403, message: "you may not" });
  await api.close();
});

test("a rejection includes its causes", () => {
  // response of the eviction API of Kubernetes 1.33
  const body = {
    kind: "Status",
    status: "Failure",
    message: "Cannot evict pod as it would violate the pod's disruption budget.",
    reason: "TooManyRequests",
    details: {
      causes: [
        {
          reason: "DisruptionBudget",
          message: "The disruption budget embed needs 1 healthy pods and has 1 currently",
        },
      ],
    },
    code: 429,
  };
  const rejection = rejectionOf({
    status: 429,
    headers: {},
    body: Buffer.from(JSON.stringify(body)),
  });
  expect([rejection.status, rejection.reason, rejection.message]).toEqual([
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget embed needs 1 healthy pods and has 1 currently",
  ]);
});
