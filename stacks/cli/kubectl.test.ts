import { expect, test } from "vitest";
import { kubectlProblem, refusalOf } from "./kubectl.ts";

/** What kubectl 1.33 wrote to stderr, for an access that names all. */
function problem(stderr: string, outcome: "ended" | "missing" | "late" = "ended"): string {
  const access = { kubeconfig: "~/.kube/config", context: "kind-clipstack" };
  return kubectlProblem({ outcome, stderr }, access, ["rollout", "restart", "deployment/embed"]);
}

test("a missing kubectl is one line that says where it is had", () => {
  expect(problem("", "missing")).toBe(
    "kubectl is not installed on this machine, and clusters are asked through it: https://kubernetes.io/docs/tasks/tools",
  );
});

test("a cluster that takes too long is named", () => {
  expect(problem("", "late")).toBe(
    "kubectl rollout: context 'kind-clipstack' of ~/.kube/config did not answer in 60 s",
  );
});

test("a context that is not in the kubeconfig is named", () => {
  expect(problem('error: context "kind-clipstack" does not exist\n')).toBe(
    "there is no context 'kind-clipstack' of ~/.kube/config: deploy the environment, or see 'kubectl config get-contexts'",
  );
});

test("a kubeconfig that is not there is named", () => {
  expect(problem("error: stat /home/user/.kube/config: no such file or directory\n")).toBe(
    "kubeconfig ~/.kube/config is not there: deploy the environment, or give another one with --kubeconfig",
  );
});

test("a cluster that does not answer is said to, without the lines before", () => {
  expect(
    problem(
      [
        'E1121 21:00:00.1 123 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list"',
        "The connection to the server 127.0.0.1:42488 was refused - did you specify the right host or port?",
      ].join("\n"),
    ),
  ).toBe(
    "the cluster of context 'kind-clipstack' of ~/.kube/config does not answer: The connection to the server 127.0.0.1:42488 was refused - did you specify the right host or port?",
  );
});

test("what the API server refuses is kubectl's own line", () => {
  const said = 'Error from server (NotFound): deployments.apps "embed" not found\n';
  expect(problem(said)).toBe(
    'kubectl rollout restart: Error from server (NotFound): deployments.apps "embed" not found',
  );
});

test("a refusal has the API server's status, reason and causes", () => {
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
    contentType: "application/json",
    body: Buffer.from(JSON.stringify(body)),
  });
  expect([refusal.status, refusal.reason, refusal.message]).toEqual([
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget embed needs 1 healthy pods and has 1 currently",
  ]);
});
