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
  "node-port-range",
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
  "pod-account-token",
  "pod-system-calls",
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
  "gpu-on-host",
  "gpu-request-agrees",
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
  // kubernetes
  "autoscaler-bounds",
  "autoscaler-requests",
  "autoscaler-target",
  "autoscaler-owns-replicas",
  "budget-allows-drain",
  "budget-selects",
  "quota-admits-pods",
  "gpu-quota-admits-pods",
  "gpu-pool-holds-pods",
  "gpu-limits-equal-requests",
  "resources-given",
  "requests-within-limits",
  "limit-range-admits-pods",
  "single-replica",
  "service-selects",
  // state
  "state-locking",
  "state-shared",
  "state-encrypted",
  "state-credentials",
  "provider-pinned",
  // changes
  "renamed-resource",
  "volume-lost",
  "cluster-lost",
  "namespace-lost",
  "environment-lost",
  "endpoint-changed",
  "cost-rise",
  "changed-outside",
] as const;
export type RuleId = (typeof ruleIds)[number];

/** Findings about waivers. They have no rule, and no waiver covers them. */
export const waiverIds = ["waiver-expired", "waiver-unused"] as const;
