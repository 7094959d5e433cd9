import { writeFileSync } from "node:fs";
import { afterEach, expect, test } from "vitest";
import { ApiRejection, openCluster, refusalOf } from "./cluster-api.ts";
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

test("a context that is not in the kubeconfig is named", async () => {
  const { kubeconfig } = await cluster();
  await expect(openCluster({ kubeconfig, context: "other" })).rejects.toThrow(
    `there is no context 'other' of ${kubeconfig}: deploy the environment, or see 'kubectl config get-contexts'`,
  );
});

test("a kubeconfig that is not there is named", async () => {
  await expect(openCluster({ kubeconfig: "/nowhere/config" })).rejects.toThrow(
    "kubeconfig /nowhere/config is not there: deploy the environment, or give another one with --kubeconfig",
  );
});

test("a kubeconfig that cannot be read fails in one line", async () => {
  const { kubeconfig } = await cluster();
  writeFileSync(kubeconfig, "{ no yaml");
  await expect(openCluster({ kubeconfig })).rejects.toThrow(
    /^kubeconfig .* cannot be read: [^\n]+$/,
  );
});

test("a cluster that does not answer is named", async () => {
  const it = await cluster(() => "closed");
  const api = await openCluster({ kubeconfig: it.kubeconfig, context: "mine" });
  await expect(api.get("/version")).rejects.toThrow(
    `the cluster of context 'mine' of ${it.kubeconfig} does not answer: connection closed before the answer`,
  );
  await api.close();
});

test("the program of a kubeconfig that gives credentials is told the cluster, and run once", async () => {
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

test("a program that gives no credentials fails in one line", async () => {
  const { kubeconfig } = await cluster(() => ({}), {
    exec: { command: "sh", args: ["-c", "echo sign in first >&2; exit 1"] },
  });
  await expect(openCluster({ kubeconfig })).rejects.toThrow(
    `no credentials for the current context of ${kubeconfig}: sign in first`,
  );
});

test("what is not there is nothing, and a refusal has the API server's status and message", async () => {
  const answers = [undefined, { refused: 403, message: "you may not" }];
  const { kubeconfig } = await cluster(() => answers.shift());
  const api = await openCluster({ kubeconfig });
  expect(await api.get("/api/v1/namespaces/none")).toBeUndefined();
  const refusal: unknown = await api.get("/api/v1/nodes").catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(ApiRejection);
  expect(refusal).toMatchObject({ status: 403, message: "you may not" });
  await api.close();
});

test("a refusal has its causes", () => {
  // as the eviction API answered, Kubernetes 1.33
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
  const refusal = refusalOf({
    status: 429,
    headers: {},
    body: Buffer.from(JSON.stringify(body)),
  });
  expect([refusal.status, refusal.reason, refusal.message]).toEqual([
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget embed needs 1 healthy pods and has 1 currently",
  ]);
});
