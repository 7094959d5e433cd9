/** Rules of earlier versions and their replacements. Waivers may still name them; such a waiver has no effect. */

export const removedRules = {
  "node-port-range": "the API server",
  "pod-account-token": "checkov's CKV_K8S_38",
  "pod-system-calls": "checkov's CKV_K8S_31",
  "autoscaler-bounds": "the API server",
  "autoscaler-requests": "kube-linter's unset-cpu-requirements",
  "autoscaler-target": "kube-linter's dangling-horizontalpodautoscaler",
  "rollout-bounds": "the API server",
  "budget-allows-drain": "kube-linter's pdb-max-unavailable and pdb-min-available",
  "resources-given": "kube-linter's unset-cpu-requirements and unset-memory-requirements",
  "requests-within-limits": "the API server",
  "limit-range-admits-pods": "the API server",
  "service-selects": "kube-linter's dangling-service",
  "single-replica": "kube-linter's minimum-three-replicas",
} as const;

export type RemovedRuleId = keyof typeof removedRules;
