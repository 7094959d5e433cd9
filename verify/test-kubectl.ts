import objects from "./kubectl-objects.json" with { type: "json" };

/** Output of `kubectl get -o json` on a kind cluster of Kubernetes 1.33, without fields that only the API server reads. */
export const {
  deployment: kubectlDeployment,
  pod: kubectlPod,
  autoscaler: kubectlAutoscaler,
  budget: kubectlBudget,
  quota: kubectlQuota,
} = objects;
