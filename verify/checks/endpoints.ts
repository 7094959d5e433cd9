import { setTimeout as sleep } from "node:timers/promises";
import type { Target } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import type { Transport } from "../../client/triton/transport.ts";
import { embedPaths, healthResponse, readyResponse } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import {
  embeddingTensor,
  imageTowerOf,
  normalisedImage,
  textTowerOf,
  tokenIds,
  towerOf,
} from "../../contract/model-shapes.ts";
import type { TensorSpec } from "../../contract/tensor.ts";
import { type Metrics, metricSum, parseMetrics } from "../../target/readings/prometheus.ts";
import { jsonOf, reason } from "../../target/requests/http-client.ts";
import {
  type ServedModel,
  servedTowers,
  type TargetService,
} from "../../target/service/target-service.ts";
import type { Check } from "./check.ts";
import { resultOf } from "./check-result.ts";

const timeoutMs = 10_000;

export const endpointsCheck: Check = {
  name: "endpoints",
  question: "Does every endpoint respond: live, ready, metadata, metrics?",
  sendsRequests: true,
  runService: async (service, { target }) => [
    ...(target === "deployed" ? await checkServer(service) : []),
    ...(await checkEndpoints(service)),
  ],
};

/** Checks liveness, readiness, metadata and metrics; one result per endpoint. */
export async function checkEndpoints(service: TargetService): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of service.targets) {
    const { endpoint, url } = target;
    const details = { endpoint: endpoint.name };
    if (url === undefined) {
      const message = `${endpoint.protocol} at ${endpoint.url}: not reachable, see wiring`;
      results.push(resultOf(service, "endpoints", "skip", message, details));
      continue;
    }
    try {
      const finding = await readers[endpoint.protocol](service, target, url);
      const message = `${endpoint.protocol} at ${url}: ${finding}`;
      results.push(resultOf(service, "endpoints", "pass", message, details));
    } catch (error) {
      const message = `${endpoint.protocol} at ${url}: ${reason(error)}`;
      results.push(resultOf(service, "endpoints", "fail", message, details));
    }
  }
  return results;
}

/** Reads an endpoint, and returns a summary. */
type EndpointReader = (service: TargetService, target: Target, url: string) => Promise<string>;

const readers: Readonly<Record<Target["endpoint"]["protocol"], EndpointReader>> = {
  async "embed-http"(service, _target, url) {
    const routes = [
      [embedPaths.healthz, (body: unknown) => healthResponse.safeParse(body).success],
      [embedPaths.health, (body: unknown) => healthResponse.safeParse(body).success],
      [embedPaths.readyz, (body: unknown) => readyResponse.safeParse(body).data?.ready === true],
      [embedPaths.openapi, (body: unknown) => hasKey(body, "openapi")],
    ] as const;
    for (const [path, isValid] of routes) {
      const response = await service.http.send(`${url}${path}`, { timeoutMs });
      if (response.status !== 200)
        throw new Error(`GET ${path} must respond with 200, got ${response.status}`);
      if (!isValid(jsonOf(response))) {
        throw new Error(
          `GET ${path} has an invalid body: ${response.body.toString("utf8").slice(0, 80)}`,
        );
      }
    }
    return routes.map(([path]) => path).join(", ");
  },

  "oip-http": readTriton,
  "oip-grpc": readTriton,

  async metrics(service, _target, url) {
    const metrics = await readMetrics(service, url);
    if (service.workload.service.kind === "triton") {
      const name = "nv_inference_count";
      for (const { model } of servedTowers(service)) {
        if (metricSum(metrics, name, { model }) !== undefined) continue;
        throw new Error(`GET ${embedPaths.metrics} must have ${name} of ${model}`);
      }
    }
    await requireUpstreams(service, url, metrics);
    return `${metrics.length} metrics`;
  },
};

async function readMetrics(service: TargetService, url: string): Promise<Metrics> {
  const response = await service.http.send(`${url}${embedPaths.metrics}`, { timeoutMs });
  if (response.status !== 200)
    throw new Error(`GET ${embedPaths.metrics} must respond with 200, got ${response.status}`);
  const metrics = parseMetrics(response.body.toString("utf8"));
  if (metrics.length === 0)
    throw new Error(`GET ${embedPaths.metrics} must have metrics, got none`);
  return metrics;
}

/** Throws unless every upstream of a gateway is in rotation, after at most five seconds: it is ready with the first one. */
async function requireUpstreams(
  service: TargetService,
  url: string,
  first: Metrics,
): Promise<void> {
  let metrics = first;
  for (let waitedMs = 0; ; waitedMs += 500) {
    const out = metrics
      .filter(({ name, value }) => name === embedMetrics.tritonHealthy && value < 1)
      .map(({ labels }) => labels.target);
    if (out.length === 0) return;
    if (waitedMs >= 5_000) {
      const targets = [...new Set(out)].join(", ");
      throw new Error(`every upstream must be in rotation, got ${targets} out of rotation`);
    }
    await sleep(500);
    metrics = await readMetrics(service, url);
  }
}

function hasKey(body: unknown, key: string): boolean {
  return typeof body === "object" && body !== null && key in body;
}

async function readTriton(service: TargetService, target: Target): Promise<string> {
  const transport = service.transport(target);
  const options = { timeoutMs };
  if (!(await transport.live(options))) throw new Error("must be live");
  if (!(await transport.ready(undefined, options))) throw new Error("must be ready");
  const server = await transport.serverMetadata(options);
  const models = servedTowers(service);
  for (const model of models) await requireModel(transport, model);
  const names = models.map(({ model }) => model).join(", ");
  return `live, ready, ${server.name} ${server.version}, ${names} ready`;
}

/** Throws unless a model is ready and has the tensors of its spec. */
async function requireModel(transport: Transport, served: ServedModel): Promise<void> {
  const { spec, model } = served;
  const options = { timeoutMs };
  if (!(await transport.ready(model, options))) throw new Error(`model ${model} must be ready`);
  const metadata = await transport.modelMetadata(model, options);
  const expected = { inputs: inputOf(served), outputs: embeddingTensor(spec, towerOf(served)) };
  for (const kind of ["inputs", "outputs"] as const) {
    const { name, dataType, dims } = expected[kind];
    const found = metadata[kind].find((tensor) => tensor.name === name);
    const expectedDims = [-1, ...dims].join(", ");
    if (found?.dataType === dataType && found.dims.join(", ") === expectedDims) continue;
    const got = found === undefined ? "nothing" : `${found.dataType} [${found.dims.join(", ")}]`;
    throw new Error(
      `metadata of ${model}: '${name}' must be ${dataType} [${expectedDims}], got ${got}`,
    );
  }
}

function inputOf({ spec, modality }: ServedModel): TensorSpec {
  return modality === "image" ? normalisedImage(imageTowerOf(spec)) : tokenIds(textTowerOf(spec));
}

/** Server name in the metadata, by deployed server. */
const serverNames = { tritonserver: "triton", emulator: "clipstack" } as const;

/** Checks that a Triton server is the configured server: NVIDIA's or the Triton emulator. */
export async function checkServer(service: TargetService): Promise<readonly CheckResult[]> {
  const { server } = service.workload.service;
  const target = service.targets.find(({ endpoint }) => endpoint.name !== undefined);
  if (server === undefined || target === undefined) return [];
  const { name, version } = await service.transport(target).serverMetadata({ timeoutMs });
  const isExpected = name === serverNames[server];
  const message = isExpected
    ? `server ${server}: ${name} ${version}`
    : `server must be ${server} (${serverNames[server]}), got ${name} ${version}`;
  return [resultOf(service, "endpoints", isExpected ? "pass" : "fail", message)];
}
