/** Unmet requirement and its fix: one line each, lower case, no full stop. */
export interface Problem {
  /** Stable identifier; messages may change. */
  readonly code: ProblemCode;
  readonly message: string;
  readonly fix: string;
}

export const problemCodes = [
  "docker-command",
  "docker-endpoint",
  "docker-version",
  "ssh",
  "platform",
  "nvidia-runtime",
  "nvidia-driver",
  "gpu-count",
  "gpu-missing",
  "gpu-memory",
  "gpu-kind",
  "port",
  "memory",
  "cores",
  "disk",
  "file",
  "random-weights",
  "kind",
  "image",
  "cluster",
  "cluster-version",
  "cluster-api",
  "service-monitor",
  "namespace",
  "object",
  "claim",
  "permission",
  "runtime-class",
  "gpu-nodes",
  "quota",
] as const;
export type ProblemCode = (typeof problemCodes)[number];
