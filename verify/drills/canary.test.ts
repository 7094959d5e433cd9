import { describe, expect, onTestFinished, test } from "vitest";
import { openCluster } from "../cluster/cluster-api.ts";
import { testCluster } from "../cluster/test-cluster-server.ts";
import { judgeCandidate, prometheusQuery, releaseFigures, weightedRules } from "./canary.ts";

const rules = [{ backendRefs: [{ name: "clipstack-embed", port: 8002, weight: 1 }] }];
const weighted = (percent: number, of = rules) =>
  weightedRules(of, "clipstack-embed", "clipstack-canary-embed", percent);

describe("the rules of a route", () => {
  test("send a percentage to the candidate, at the same port", () => {
    expect(weighted(10)).toEqual([
      {
        backendRefs: [
          { name: "clipstack-embed", port: 8002, weight: 90 },
          { name: "clipstack-canary-embed", port: 8002, weight: 10 },
        ],
      },
    ]);
  });

  test("send everything to the release again, also after an interrupted run", () => {
    expect(weighted(0, weighted(10) as typeof rules)).toEqual(rules);
  });

  test("keep other backends", () => {
    const other = [{ backendRefs: [{ name: "other", port: 80, weight: 3 }] }];
    expect(weighted(10, other)).toEqual(other);
  });
});

test.each([
  ["too few requests", { requests: 99 }, {}, "undecided"],
  ["no failed and no slow request", { requests: 100 }, {}, "passed"],
  ["failed requests within the budget", { requests: 5_000, errors: 0.001 }, {}, "passed"],
  ["failed requests above the budget", { requests: 5_000, errors: 0.002 }, {}, "failed"],
  ["slow requests above the budget", { requests: 500, slow: 0.02 }, {}, "failed"],
  ["as many slow requests as the release", { requests: 500, slow: 0.02 }, { slow: 0.03 }, "passed"],
])("judges a candidate with %s", (_, candidate, stable, verdict) => {
  expect(judgeCandidate(candidate, { requests: 1_000, ...stable })).toBe(verdict);
});

async function queried(result: object) {
  const cluster = await testCluster(() => result);
  onTestFinished(() => cluster.close());
  const api = await openCluster({ kubeconfig: cluster.kubeconfig });
  onTestFinished(() => api.close());
  return { query: prometheusQuery(api, "http://prometheus.monitoring.svc:9090"), cluster };
}

const vector = (value: string) => ({
  status: "success",
  data: { resultType: "vector", result: [{ metric: {}, value: [1, value] }] },
});

describe("Prometheus in the cluster", () => {
  test("is queried through the API server, for the pods of one Deployment", async () => {
    const { query, cluster } = await queried(vector("0.25"));
    const deployment = { namespace: "clipstack", deployment: "clipstack-canary-embed" };
    expect(await releaseFigures(query, deployment, 60, 0.25)).toMatchObject({ errors: 0.25 });
    expect(cluster.requests[0]?.path).toBe(
      "/api/v1/namespaces/monitoring/services/http:prometheus:9090/proxy/api/v1/query",
    );
    for (const { query } of cluster.requests) {
      expect(query.get("query")).toContain(
        'namespace="clipstack",pod=~"clipstack-canary-embed-.+"',
      );
    }
  });

  test("has no value without data", async () => {
    expect(await (await queried(vector("NaN"))).query("x")).toBeUndefined();
  });

  test("fails with one line if it rejects the query", async () => {
    const { query } = await queried({ status: "error", error: "bad" });
    await expect(query("x")).rejects.toThrow(
      "Prometheus at http://prometheus.monitoring.svc:9090 rejects x",
    );
  });
});
