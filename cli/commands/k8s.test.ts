import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { containersFor, quantityText } from "../../verify/drills/quota.ts";
import { withTag } from "../../verify/drills/rollout.ts";
import { objectPath } from "../cluster/deployed-cluster.ts";
import { drillTarget } from "../cluster/drill-target.ts";
import { runProgram } from "../shared/run-program.ts";

describe("pods over a quota", () => {
  const cpuOf = (containers: readonly object[], field: "requests" | "limits") =>
    containers.map(
      (it) => (it as { resources: Record<string, Record<string, string>> }).resources[field]?.cpu,
    );

  test("request slightly more than what is available", () => {
    expect(cpuOf(containersFor("cpu", "requests", 1.25, {}), "requests")).toEqual(["1260m"]);
  });

  test("are split over containers within the maximum per container", () => {
    const containers = containersFor("cpu", "requests", 5, { cpu: 2 });
    expect(cpuOf(containers, "requests")).toEqual(["2000m", "2000m", "2000m"]);
  });

  test("over a limit have minimal requests", () => {
    const containers = containersFor("cpu", "limits", 1, {});
    expect([cpuOf(containers, "requests"), cpuOf(containers, "limits")]).toEqual([
      ["10m"],
      ["1010m"],
    ]);
  });

  test("request one GPU if none is available", () => {
    expect(containersFor("nvidia.com/gpu", "requests", 0, {})).toMatchObject([
      { resources: { requests: { "nvidia.com/gpu": "1" }, limits: { "nvidia.com/gpu": "1" } } },
    ]);
  });

  test.each([
    ["cpu", 0.25, "250m"],
    ["memory", 2 ** 30, "1024Mi"],
    ["nvidia.com/gpu", 2, "2"],
  ])("write %s %d as %s", (resource, value, text) => {
    expect(quantityText(resource, value)).toBe(text);
  });
});

test.each([
  ["clipstack/embed:k8s-cpu", "clipstack/embed:none"],
  ["registry.example:5000/embed", "registry.example:5000/embed:none"],
  [`embed@sha256:${"0".repeat(64)}`, "embed:none"],
  [`registry.example:5000/embed:1@sha256:${"0".repeat(64)}`, "registry.example:5000/embed:none"],
])("replaces the tag of %s: %s", (image, other) => {
  expect(withTag(image, "none")).toBe(other);
});

test.each([
  ["v1", "Service", "/api/v1/namespaces/clipstack/services/it"],
  [
    "networking.k8s.io/v1",
    "NetworkPolicy",
    "/apis/networking.k8s.io/v1/namespaces/clipstack/networkpolicies/it",
  ],
  [
    "rbac.authorization.k8s.io/v1",
    "ClusterRole",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/it",
  ],
])("path of a %s %s is %s", (apiVersion, kind, path) => {
  expect(objectPath({ apiVersion, kind, metadata: { name: "it", namespace: "clipstack" } })).toBe(
    path,
  );
});

test("uses the names of the chart on a cluster selected by options", () => {
  expect(drillTarget(undefined, { context: "kind-other" })).toEqual({
    access: { kubeconfig: undefined, context: "kind-other" },
    namespace: "clipstack",
    deployment: "clipstack-embed",
    url: undefined,
  });
});

test("fails on an invalid URL", () => {
  expect(() => drillTarget(undefined, { context: "kind-other", url: "127.0.0.1:8092" })).toThrow(
    "--url must be a URL such as http://127.0.0.1:8092, got '127.0.0.1:8092'",
  );
});

const cli = new URL("../clipstack.mjs", import.meta.url).pathname;

/** Runs `clipstack k8s …` in a process with an empty PATH. */
async function k8s(...args: readonly string[]) {
  const empty = mkdtempSync(join(tmpdir(), "clipstack-path-"));
  onTestFinished(() => rmSync(empty, { recursive: true, force: true }));
  return runProgram(process.execPath, [cli, "k8s", ...args], {
    timeoutMs: 60_000,
    env: { PATH: empty },
  });
}

test("fails in one line on an unknown context, without starting a program", {
  timeout: 60_000,
}, async () => {
  const { exitCode, stderr, stdout } = await k8s("quota", "--context", "kind-other");
  expect([exitCode, stdout, stderr]).toEqual([
    2,
    "",
    "clipstack: context 'kind-other' does not exist: deploy the environment, or run 'kubectl config get-contexts'",
  ]);
});

test("fails on an invalid rate", async () => {
  const { exitCode, stderr } = await k8s("rollout", "--rate", "fast");
  expect(exitCode).toBe(2);
  expect(stderr).toContain("It must be more than 0 and at most 100.");
});
