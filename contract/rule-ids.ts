/**
 * Ids of all rules, by family. A file of its own: the settings name rules, and need not load them. The ids are in waivers and
 * in addresses of pages: a rename is a breaking change.
 */
export const ruleIds = [
  // images
  "image-version",
  "image-digest",
  "image-gpu-architecture",
  "image-local-never-pulled",
  "image-kept",
  // exposure
  "port-conflict",
  "triton-exposed",
  "model-control-exposed",
  "metrics-exposed",
  "embed-anonymous",
  "node-port-mapped",
  "docker-socket-mounted",
  "docker-endpoint-plain",
  "host-network",
  // containers
  "container-privileged",
  "container-root",
  "container-capabilities",
  "container-read-only",
  "container-privilege-escalation",
  "container-restart",
  "container-log-limit",
  "pod-security-level",
  // secrets
  "secret-plain-text",
  "secret-form",
  "secret-variable",
  "secret-build-argument",
  // triton
  "triton-shared-memory",
  "triton-strict-start",
  "triton-request-size",
  "model-config-valid",
  "queue-delay-goal",
  "model-warm-up",
  "engine-cache",
  "engine-cache-gpu",
  "model-fits-gpu",
  "memory-holds-model",
  "gpu-on-host",
  "gpu-request-agrees",
  "gpu-named-one-way",
  "gateway-upstream",
  "engine-cache-pods",
  "gpu-asked-for",
  // health
  "health-check",
  "health-check-readiness",
  "start-period",
  "stop-time",
  "pod-probes",
  "liveness-independent",
  "startup-budget",
  "progress-deadline",
  "pre-stop",
  "probe-independent",
  // kubernetes
  "autoscaler-metric-source",
  "autoscaler-owns-replicas",
  "budget-selects",
  "quota-admits-pods",
  "gpu-quota-admits-pods",
  "gpu-pool-holds-pods",
  "gpu-limits-equal-requests",
  // state
  "state-locking",
  "state-shared",
  "state-encrypted",
  "state-credentials",
  "provider-pinned",
  "state-moved",
  "host-moved",
  "provider-changed",
  // changes
  "renamed-resource",
  "volume-lost",
  "cluster-lost",
  "namespace-lost",
  "environment-lost",
  "environment-described",
  "endpoint-changed",
  "cost-rise",
  "changed-outside",
] as const;
export type RuleId = (typeof ruleIds)[number];

/** Rules of earlier versions, and what enforces the same. Waivers may still name them, and have no effect. */
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

/** Findings about waivers. They have no rule, and no waiver covers them. */
export const waiverIds = ["waiver-expired", "waiver-unused"] as const;
