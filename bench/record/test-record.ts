import type { EndpointName } from "../../contract/environment.ts";
import type { CheckResult, Measurement, VerifyRecord } from "./record.ts";

/** Record for tests: two environments, all checks passed. */
export function testRecord(changes: Partial<VerifyRecord> = {}): VerifyRecord {
  const single: readonly (readonly [string, EndpointName])[] = [
    ["embed", "embed-http"],
    ["triton-onnx", "onnx-http"],
    ["triton-onnx", "onnx-grpc"],
  ];
  const kind: readonly (readonly [string, EndpointName])[] = [["embed", "embed-http"]];
  return {
    schema: 2,
    kind: "verify",
    startedAt: "2026-11-21T10:30:00.000Z",
    finishedAt: "2026-11-21T10:31:35.000Z",
    subject: {
      commit: "0123456789abcdef0123456789abcdef01234567",
      dirty: false,
      target: "simulation",
      server: "clipstack",
      model: {
        name: "generated",
        sha256: "ab".repeat(32),
        source: "generated",
        weights: "random",
        architecture: "vit-b-32",
        seed: 1,
      },
      machine: { cpu: "Test CPU", cores: 2, memoryMiB: 24_576, os: "Linux 6.1", node: "v20.20.0" },
      settings: {
        portOffset: 0,
        secondsPerEndpoint: 3,
        concurrency: 4,
        sampleImages: ["rotated.jpg", "plain.png"],
        cosineAtLeast: 0.999,
        relativeDifferenceAtMost: 0.001,
        p99MinimumSamples: 500,
      },
    },
    environments: [
      {
        name: "single-gpu",
        where: "unix:///var/run/docker.sock",
        accelerator: "gpu",
        gpu: "1 × a10",
        artefact: { file: "single-gpu/cdk.tf.json", sha256: "cd".repeat(32), editedByHand: false },
        services: [
          {
            name: "embed",
            kind: "embed",
            backend: "onnxruntime",
            resource: "docker_container.embed (container 'single-gpu-embed')",
            processes: 1,
          },
        ],
        notes: [],
        seconds: 60,
      },
      {
        name: "kind-local",
        where: "kind-clipstack",
        accelerator: "cpu",
        artefact: { file: "kind-local/cdk.tf.json", sha256: "ef".repeat(32), editedByHand: false },
        services: [],
        notes: ["embed: no volume is mounted"],
        seconds: 30,
      },
    ],
    checks: [
      ...single.flatMap(([service, endpoint], i) => checksOf("single-gpu", service, endpoint, i)),
      ...kind.flatMap(([service, endpoint], i) => checksOf("kind-local", service, endpoint, i + 3)),
    ],
    measurements: [
      ...single.map(([service, endpoint], i) => measurementOf("single-gpu", service, endpoint, i)),
      ...kind.map(([service, endpoint], i) =>
        measurementOf("kind-local", service, endpoint, i + 3),
      ),
    ],
    passed: true,
    ...changes,
  };
}

/** Failed check of a wrong port. */
export function failedCheck(changes: Partial<CheckResult> = {}): CheckResult {
  return {
    id: "wiring",
    environment: "single-gpu",
    service: "triton-onnx",
    resource: "docker_container.triton (container 'single-gpu-triton-onnx')",
    outcome: "fail",
    message: "publishes 8010 for its port 8009, but listens on 8000, 8001, 8002",
    measured: {},
    ...changes,
  };
}

const simulationChecks =
  "wiring start endpoints embedding parity batches batching errors load stop".split(" ");

function checksOf(
  environment: string,
  service: string,
  endpoint: EndpointName,
  index: number,
): readonly CheckResult[] {
  const images = ["rotated.jpg", "plain.png"].map((image, i) => ({
    image,
    cosine: 0.9999999,
    relativeDifference: 1e-7 * (index + i + 1),
  }));
  return simulationChecks.map(
    (id): CheckResult => ({
      id,
      environment,
      service,
      endpoint,
      resource: `docker_container.${service} (container '${environment}-${service}')`,
      outcome: "pass",
      message: `${id} is well`,
      measured:
        id === "parity"
          ? { images: 2, cosine: 0.9999999, relativeDifference: 1e-7 * (index + 2) }
          : {},
      ...(id === "parity" ? { images } : {}),
    }),
  );
}

function measurementOf(
  environment: string,
  service: string,
  endpoint: EndpointName,
  index: number,
): Measurement {
  const p50 = 60 + 12 * index;
  return {
    environment,
    service,
    endpoint,
    load: { kind: "closed loop", concurrency: 4, imagesPerRequest: 1, seconds: 3 },
    samples: 100 + 200 * index,
    imagesPerSecond: 40 - 4 * index,
    latencyMs: { p50, p95: p50 * 1.3, p99: p50 * 1.6, max: p50 * 2, p99Reliable: index > 1 },
    histogram: [[p50 * 1_000, 100]],
    errors: {},
  };
}
