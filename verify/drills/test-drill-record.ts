import type { DrillRecord } from "./drill-record.ts";

/** Drain drill with one lost request. */
export const testDrillRecord: DrillRecord = {
  schema: 2,
  kind: "drill",
  drill: "drain",
  startedAt: "2026-11-21T21:00:00.000Z",
  finishedAt: "2026-11-21T21:00:16.000Z",
  subject: {
    machine: { cpu: "a processor", cores: 2, memoryMiB: 24_000, os: "Linux 6", node: "v20.20.2" },
    cluster: {
      context: "kind-clipstack",
      version: "v1.33.13",
      nodes: [{ name: "node", kubelet: "v1.33.13", os: "Debian", cpu: "2", memory: "24684084Ki" }],
    },
    namespace: "clipstack",
    deployment: "clipstack-embed",
    image: "clipstack/embed:k8s-cpu",
    imageId: "sha256:50d8",
  },
  load: {
    kind: "fixed rate",
    ratePerSecond: 2,
    imagesPerRequest: 1,
    connections: "one per request",
    url: "http://127.0.0.1:8092",
    phases: [
      {
        phase: "evictions",
        seconds: 15.4,
        requests: 30,
        failed: 1,
        errors: { "503": 1 },
        latencyMs: { samples: 29, p50: 174, p95: 652, p99: 901, max: 901, p99Reliable: false },
      },
    ],
  },
  replicas: [
    { atSeconds: 0, desired: 2, ready: 2, pods: 2 },
    { atSeconds: 4.1, desired: 2, ready: 1, pods: 3 },
    { atSeconds: 10.4, desired: 2, ready: 2, pods: 3 },
    { atSeconds: 12, desired: 2, ready: 2, pods: 2 },
  ],
  steps: [],
  rejections: [
    {
      request: "eviction of clipstack-embed-b",
      status: 429,
      reason: "TooManyRequests",
      message: "Cannot evict pod as it would violate the pod's disruption budget.",
    },
  ],
  checks: [
    { claim: "the PDB allows an eviction", passed: true, message: "1 of 2 pods evicted" },
    { claim: "every request is answered", passed: false, message: "1 of 30 requests failed" },
  ],
  passed: false,
};

/** Kill drill behind a gateway. */
export const testHostDrillRecord: DrillRecord = {
  ...testDrillRecord,
  drill: "kill",
  subject: {
    machine: testDrillRecord.subject.machine,
    environment: "multi-gpu-4x",
    host: "ssh://gpu.example",
    engine: "29.1.3",
    service: "triton-0",
    containers: [
      { name: "multi-gpu-4x-embed", imageId: "sha256:50d8" },
      { name: "multi-gpu-4x-triton-0", imageId: "sha256:7ac1" },
    ],
  },
  load: {
    kind: "fixed rate",
    ratePerSecond: 5,
    imagesPerRequest: 1,
    connections: "one per request",
    url: "http://127.0.0.1:8002",
    phases: [
      {
        phase: "killed",
        seconds: 7,
        requests: 35,
        failed: 0,
        errors: {},
        rejected: { "503 with Retry-After": 2 },
        longestGapMs: 501,
        disturbedSeconds: 0.6,
        latencyMs: { samples: 33, p50: 29, p95: 186, p99: 317, max: 317, p99Reliable: false },
      },
    ],
  },
  replicas: [],
  rejections: [],
  checks: [
    {
      claim: "nothing accepted is lost: killed",
      passed: true,
      message: "35 requests, 33 succeeded; rejected: 2 × 503 with Retry-After",
    },
  ],
  passed: true,
};
