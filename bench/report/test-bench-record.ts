import { type BenchEndpoint, benchEndpointName } from "../../contract/bench-endpoint.ts";
import type { LoadShape } from "../../contract/load-shape.ts";
import type { Round } from "../../target/load/round.ts";
import {
  type BenchRecord,
  benchRecordVersion,
  type Conditions,
  type LoadPoint,
} from "../record/bench-record.ts";
import type { StudyId } from "../record/study-result.ts";
import { censoredPercentile } from "../stats/censored.ts";

/**
 * Record of a deployed GPU host for tests: five endpoints and two payload variants, five batch sizes, seven concurrencies, every
 * study, an invalid and a drifting load point. Computed by formulas, so it is deterministic.
 */
export function testBenchRecord(changes: Partial<BenchRecord> = {}): BenchRecord {
  return {
    schema: benchRecordVersion,
    kind: "bench",
    startedAt: "2026-11-21T10:30:00.000Z",
    finishedAt: "2026-11-21T11:12:35.000Z",
    interrupted: false,
    subject: {
      commit: "0123456789abcdef0123456789abcdef01234567",
      dirty: false,
      target: "deployed",
      servers: [
        { service: "embed", name: "clipstack", version: "0.1.0" },
        { service: "triton-onnx", name: "triton", version: "2.51.0" },
        { service: "triton-trt", name: "triton", version: "2.51.0" },
      ],
      model: {
        name: "generated",
        sha256: "ab".repeat(32),
        source: "generated",
        weights: "random",
        architecture: "vit-b-32",
        seed: 1,
      },
      machine: { cpu: "Test CPU", cores: 8, memoryMiB: 32_768, os: "Linux 6.1", node: "v20.20.0" },
      gpu: { name: "NVIDIA A10", count: 1, vramMiB: 23_028 },
      price: { usdPerHour: 0.75, date: "2025-06", source: "gpu-rental" },
      environments: [testEnvironment()],
    },
    settings: {
      endpoints: testEndpoints.map(({ name }) => name),
      windowSeconds: 1,
      windows: 3,
      rounds: 5,
      warmupSeconds: 1,
      durationSeconds: 60,
      seed: 1,
      p99MinimumSamples: 500,
      images: { source: "model-tools/samples", count: 32, meanBytes: 10_240 },
    },
    parity: testEndpoints.map(({ endpoint, payload, serialization, service }, i) => ({
      environment: "single-gpu",
      service,
      endpoint,
      payload,
      serialization,
      images: 32,
      minCosine: 0.999_999,
      maxRelativeDifference: 1.2e-4 * (i + 1),
      passed: true,
      message: "as the local reference",
    })),
    loadPoints: testLoadPoints(),
    studies: testStudies(),
    imported: [],
    notes: [],
    passed: true,
    failures: [],
    ...changes,
  };
}

/** The same run with local processes in place of the containers: nothing of it is a GPU's. */
export function testSimulationRecord(): BenchRecord {
  const record = testBenchRecord();
  return {
    ...record,
    subject: { ...record.subject, target: "simulation", gpu: undefined, price: undefined },
    loadPoints: record.loadPoints.map(({ gpu: _none, ...point }) => point),
  };
}

type Environment = BenchRecord["subject"]["environments"][number];

export function testEnvironment(changes: Partial<Environment> = {}): Environment {
  return {
    name: "single-gpu",
    where: "ssh://gpu-host",
    accelerator: "gpu",
    gpu: "1 × a10",
    artefact: { file: "single-gpu/cdk.tf.json", sha256: "cd".repeat(32), editedByHand: false },
    services: (["embed", "triton-onnx", "triton-trt"] as const).map((name) => ({
      name,
      kind: name === "embed" ? "embed" : "triton",
      backend: name === "triton-trt" ? "tensorrt" : "onnxruntime",
      ...(name === "embed" ? {} : { server: "tritonserver" as const }),
      resource: `docker_container.${name} (container 'single-gpu-${name}')`,
      processes: 1,
    })),
    notes: [],
    seconds: 2_540,
    ...changes,
  };
}

/** Endpoint with the formulas of its load points. */
interface EndpointModel extends BenchEndpoint {
  readonly service: string;
  /** Milliseconds of each request, and of each image of it. */
  readonly wire: readonly [number, number];
  readonly decode: number;
  readonly compute: readonly [number, number];
  /** Contention of the Universal Scalability Law. */
  readonly sigma: number;
  readonly kappa: number;
  readonly bytes: number;
}

const fp32 = { payload: "fp32", serialization: "binary", decode: 0, bytes: 602_112 } as const;
const onnx = { ...fp32, service: "triton-onnx", compute: [2.1, 1.02] } as const;
const trt = { ...fp32, service: "triton-trt", compute: [1.1, 0.34] } as const;
const [http, grpc] = [[0.8, 3.4] as const, [1.1, 2.7] as const];

const endpointModels: readonly EndpointModel[] = [
  {
    ...{ endpoint: "embed-http", service: "embed", payload: "jpeg", serialization: "binary" },
    ...{ wire: [0.9, 0.1], decode: 1.9, compute: [2.2, 1.05], bytes: 10_240 },
    ...{ sigma: 0.11, kappa: 0.0004 },
  },
  { ...onnx, endpoint: "onnx-http", wire: http, sigma: 0.14, kappa: 0.0011 },
  { ...onnx, endpoint: "onnx-grpc", wire: grpc, sigma: 0.12, kappa: 0.0008 },
  { ...trt, endpoint: "trt-http", wire: http, sigma: 0.17, kappa: 0.0012 },
  { ...trt, endpoint: "trt-grpc", wire: grpc, sigma: 0.15, kappa: 0.0009 },
  {
    ...{ ...onnx, endpoint: "onnx-http", payload: "uint8", bytes: 150_528 },
    ...{ wire: [0.8, 0.9], compute: [2.1, 1.05], sigma: 0.12, kappa: 0.0006 },
  },
];
const testEndpoints = endpointModels.map((model) => ({ ...model, name: benchEndpointName(model) }));

const batches = [1, 4, 8, 16, 32];
const concurrencies = [1, 4, 8, 16, 32, 64, 128];

export interface TestLoadPointOptions {
  readonly endpoint?: string;
  readonly batch?: number;
  readonly load?: LoadShape;
  readonly study?: StudyId;
  readonly conditions?: Conditions;
  /** Every latency times this, every rate divided by it. */
  readonly slower?: number;
  /** Milliseconds besides, as of a link. */
  readonly added?: number;
  readonly environment?: string;
}

const closed = (concurrency: number): LoadShape => ({ kind: "closed loop", concurrency });

/** One cell as the formulas give it. */
export function testLoadPoint(
  options: TestLoadPointOptions = {},
  changes: Partial<LoadPoint> = {},
): LoadPoint {
  const { batch = 1, load = closed(1), slower = 1, added = 0, study, conditions = {} } = options;
  const model = testEndpoints.find(({ name }) => name === (options.endpoint ?? "onnx-http"))!;
  const { wire, decode, compute, sigma, kappa } = model;
  const base =
    (wire[0] + wire[1] * batch + decode * batch + compute[0] + compute[1] * batch) * slower + added;
  const law = (n: number) => (n / base / (1 + sigma * (n - 1) + kappa * n * (n - 1))) * 1_000;
  const clients = load.kind === "closed loop" ? load.concurrency : 0;
  const most = Math.max(...concurrencies.map(law));
  const offered = load.kind === "closed loop" ? 0 : load.ratePerSecond;
  const achievedShare = load.kind === "closed loop" ? undefined : Math.min(1, most / offered);
  const id = [
    model.name,
    `b${batch}`,
    load.kind === "closed loop" ? `c${clients}` : `r${offered}`,
    ...Object.values(conditions),
  ].join(" ");
  const noise = noiseOf(id);
  const rps =
    (load.kind === "closed loop" ? law(clients) : Math.min(offered, most)) * (1 + 0.01 * noise(0));
  const busy = load.kind === "closed loop" ? 0 : Math.min(0.97, offered / most);
  const mean = load.kind === "closed loop" ? (clients / rps) * 1_000 : base / (1 - busy);
  const spread = 0.06 + 0.03 * Math.log2(Math.max(1, clients) * (1 + busy * 4));
  const p99 = mean * Math.exp(2.33 * spread);
  const rounds = [1, 2, 3, 4, 5].map((round): Round => {
    const factor = 1 + 0.006 * noise(round);
    const windows = [0.995, 1.004, 1.001].map((share, i) => ({
      seconds: 1,
      requests: Math.round(rps * factor * (share + 0.002 * noise(10 * round + i))),
      imagesPerSecond: rps * batch * factor * (share + 0.002 * noise(10 * round + i)),
      p99Ms: p99 * (1 + 0.02 * noise(100 * round + i)),
      failed: 0,
    }));
    const requests = windows.reduce((sum, window) => sum + window.requests, 0);
    return {
      round,
      position: round,
      warmup: { seconds: 1, requests: Math.round(rps) },
      windows,
      outcome: "complete",
      seconds: 3,
      samples: requests,
      requestsPerSecond: rps * factor,
      imagesPerSecond: rps * batch * factor,
      achievedShare,
      latencyMs: {
        ...{ mean: mean / factor, p50: (0.985 * mean) / factor, p90: (0.99 * p99) / factor },
        ...{ p95: (0.995 * p99) / factor, p99: p99 / factor, max: (1.1 * p99) / factor },
        p99Reliable: requests >= 500,
      },
      errors: {},
      invalid: [],
    };
  });
  const samples = rounds.reduce((sum, round) => sum + round.samples, 0);
  const histogram = histogramOf(mean * 0.985, spread, samples);
  const infer = compute[0] + compute[1] * batch;
  const inside = mean - (wire[0] + wire[1] * batch) * slower - added;
  const queue = Math.max(0.04, inside - infer * slower - decode * batch * slower - 0.3);
  return {
    id,
    study,
    environment: options.environment ?? "single-gpu",
    service: model.service,
    endpoint: model.endpoint,
    payload: model.payload,
    serialization: model.serialization,
    imagesPerRequest: batch,
    requestBytes: model.bytes * batch + 320,
    responseBytes: 2_048 * batch + 180,
    load,
    conditions,
    rounds,
    stability: { verdict: "stable", changeInRound: 0.006, changeOverRounds: 0.004, p: 0.4 },
    seconds: 15,
    samples,
    requestsPerSecond: samples / 15,
    imagesPerSecond: (samples * batch) / 15,
    achievedShare,
    latencyMs: { mean, ...percentilesOf(histogram), p99Reliable: samples >= 500 },
    histogram,
    errors: {},
    errorsWithWarmup: {},
    client: {
      workers: clients > 16 ? 2 : 1,
      busiestWorkerCores: Math.min(0.7, 0.1 + clients / 200),
      eventLoopDelayP99Ms: 1.2,
      delayedSends: 0,
    },
    server: {
      source: model.service === "embed" ? "embed" : "triton",
      requests: samples,
      executions: Math.round(samples / Math.max(1, Math.min(16, clients / 3))),
      averageBatch: batch * Math.max(1, Math.min(16, clients / 3)),
      requestMs: inside,
      ...(decode > 0 ? { decodeMs: decode * batch * slower } : {}),
      queueMs: queue,
      inputMs: 0.18 * slower,
      inferMs: infer * slower,
      outputMs: 0.08 * slower,
    },
    gpu: {
      source: "triton metrics",
      gpus: [
        {
          id: "GPU-0",
          utilization: Math.min(0.98, (rps * infer) / 1_000),
          memoryUsedMiB: 2_840,
          memoryTotalMiB: 23_028,
        },
      ],
    },
    invalid: [],
    ...changes,
  };
}

/** Numbers between -1 and 1 that depend on the text and an index alone. */
function noiseOf(text: string): (index: number) => number {
  let seed = 2_166_136_261;
  for (const character of text) seed = Math.imul(seed ^ character.charCodeAt(0), 16_777_619);
  return (index) => {
    const mixed = Math.imul((seed ^ (index * 374_761_393)) >>> 0, 668_265_263) >>> 0;
    return (mixed / 2 ** 32) * 2 - 1;
  };
}

/** Lognormal, 60 steps. */
function histogramOf(medianMs: number, spread: number, samples: number): LoadPoint["histogram"] {
  const steps = Array.from({ length: 61 }, (_, i) => -3 + i / 10);
  const weights = steps.map((z) => Math.exp(-(z * z) / 2));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return steps.flatMap((z, i) => {
    const count = Math.round((samples * (weights[i] ?? 0)) / total);
    return count < 1
      ? []
      : [[Math.round(medianMs * Math.exp(z * spread) * 1_000), count] as [number, number]];
  });
}

function percentilesOf(histogram: LoadPoint["histogram"]) {
  const at = (percent: number) => censoredPercentile({ histogram, errors: {} }, percent);
  return { p50: at(50), p90: at(90), p95: at(95), p99: at(99), max: at(100) };
}

/** Changes of one invalid and one drifting load point, by their ids. */
const brokenLoadPoints: Readonly<Record<string, Partial<LoadPoint>>> = {
  "trt-grpc b1 c128": {
    client: { workers: 2, busiestWorkerCores: 0.97, eventLoopDelayP99Ms: 18, delayedSends: 0 },
    invalid: [
      "The busiest worker of the load generator used 0.97 of a core: the client may be the limit.",
    ],
  },
  "onnx-grpc b1 c64": {
    stability: { verdict: "drifting", changeInRound: 0.01, changeOverRounds: -0.18, p: 0.002 },
    errors: { "http 503": 12 },
    errorsWithWarmup: { "http 503": 31 },
  },
};

/** Load point of `onnx-grpc` in a study. */
const studied = (
  study: StudyId,
  concurrency: number,
  conditions: Conditions,
  changes: Pick<TestLoadPointOptions, "slower" | "added">,
) =>
  testLoadPoint({
    ...{ endpoint: "onnx-grpc", study, load: closed(concurrency), conditions },
    ...changes,
  });

function testLoadPoints(): LoadPoint[] {
  const grid = testEndpoints.flatMap(({ name: endpoint }) => [
    ...batches.map((batch) => testLoadPoint({ endpoint, batch })),
    ...concurrencies.slice(1).map((clients) => testLoadPoint({ endpoint, load: closed(clients) })),
  ]);
  const broken = grid.map((point) => ({ ...point, ...brokenLoadPoints[point.id] }));
  const rates = [40, 80, 120, 160, 240].flatMap((ratePerSecond) =>
    ["embed-http", "onnx-grpc"].map((endpoint) =>
      testLoadPoint({
        endpoint,
        load: { kind: "open loop", arrivals: "poisson", ratePerSecond, seed: 1 },
      }),
    ),
  );
  const delays = [0, 1_000, 5_000, 20_000].flatMap((queueDelayUs) =>
    [1, 8, 32].map((clients) =>
      studied(
        "queue-delay",
        clients,
        { queueDelayUs },
        {
          added: clients === 1 ? queueDelayUs / 1_000 : queueDelayUs / 8_000,
          slower: clients === 1 ? 1 : 1 / (1 + Math.min(0.35, queueDelayUs / 20_000)),
        },
      ),
    ),
  );
  const speedups = [
    [1, 1],
    [2, 1.86],
    [4, 3.1],
  ] as const;
  const scaling = speedups.map(([gpus, speedup]) =>
    studied("scaling", 16 * gpus, { gpus }, { slower: 1 / speedup }),
  );
  const topology = (
    [
      ["instance-group", 0.42],
      ["per-gpu", 0.3],
    ] as const
  ).flatMap(([name, slower]) =>
    [8, 32, 128].map((clients) =>
      studied("topology", clients, { gpus: 4, topology: name }, { slower }),
    ),
  );
  return [...broken, ...rates, ...delays, ...scaling, ...topology];
}

function testStudies(): BenchRecord["studies"] {
  const of = { environment: "single-gpu", notes: [] };
  const start = (
    service: string,
    round: number,
    ...times: readonly [number, number, number, number]
  ) => {
    const [liveMs, readyMs, firstRequestMs, warmRequestMs] = times;
    return { service, round, liveMs, readyMs, firstRequestMs, warmRequestMs };
  };
  const memoryOf = (service: string, ...sizes: readonly [number, number, number, number]) => {
    const [residentMiB, residentUnderLoadMiB, gpuMemoryMiB, gpuMemoryUnderLoadMiB] = sizes;
    return { service, residentMiB, residentUnderLoadMiB, gpuMemoryMiB, gpuMemoryUnderLoadMiB };
  };
  return [
    {
      study: "cold-start",
      ...of,
      notes: ["The file system's cache was warm."],
      starts: [
        start("embed", 1, 310, 1_240, 42, 6.1),
        start("embed", 2, 290, 1_180, 39, 6.2),
        start("triton-onnx", 1, 2_900, 9_800, 61, 7.4),
        start("triton-trt", 1, 3_000, 96_400, 12, 5.7),
      ],
    },
    {
      study: "memory",
      ...of,
      services: [
        memoryOf("embed", 480, 655, 940, 1_120),
        memoryOf("triton-onnx", 1_240, 1_410, 1_060, 1_300),
        memoryOf("triton-trt", 1_310, 1_330, 610, 760),
      ],
    },
    ...(["queue-delay", "scaling", "topology"] as const).map((study) => ({ study, ...of })),
  ];
}
