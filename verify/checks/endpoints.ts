import type { Target } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { jsonOf, reason } from "../../bench/run/http-client.ts";
import { metricSum, parseMetrics } from "../../bench/run/prometheus.ts";
import { resultOf, type ServiceUnderTest } from "../../bench/run/service-under-test.ts";
import type { Transport } from "../../client/triton/transport.ts";
import { embedPaths, healthResponse, readyResponse } from "../../contract/embed-api.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";

const timeoutMs = 10_000;

/** Every endpoint of the environment: live, ready, metadata, metrics. One result for each. */
export async function checkEndpoints(service: ServiceUnderTest): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = [];
  for (const target of service.targets) {
    const { endpoint, url } = target;
    const about = { endpoint: endpoint.name };
    if (url === undefined) {
      const message = `${endpoint.protocol} at ${endpoint.url}: nothing leads there, see wiring`;
      results.push(resultOf(service, "endpoints", "skip", message, about));
      continue;
    }
    try {
      const answered = await askers[endpoint.protocol](service, target, url);
      const message = `${endpoint.protocol} at ${url}: ${answered}`;
      results.push(resultOf(service, "endpoints", "pass", message, about));
    } catch (error) {
      const message = `${endpoint.protocol} at ${url}: ${reason(error)}`;
      results.push(resultOf(service, "endpoints", "fail", message, about));
    }
  }
  return results;
}

type Asker = (service: ServiceUnderTest, target: Target, url: string) => Promise<string>;

const askers: Readonly<Record<Target["endpoint"]["protocol"], Asker>> = {
  async "embed-http"(service, _target, url) {
    const asked = [
      [embedPaths.healthz, (body: unknown) => healthResponse.safeParse(body).success],
      [embedPaths.health, (body: unknown) => healthResponse.safeParse(body).success],
      [embedPaths.readyz, (body: unknown) => readyResponse.safeParse(body).data?.ready === true],
      [embedPaths.openapi, (body: unknown) => hasKey(body, "openapi")],
    ] as const;
    for (const [path, isRight] of asked) {
      const answer = await service.http.send(`${url}${path}`, { timeoutMs });
      if (answer.status !== 200) throw new Error(`GET ${path} answers ${answer.status}`);
      if (!isRight(jsonOf(answer))) {
        throw new Error(`GET ${path} answers ${answer.body.toString("utf8").slice(0, 80)}`);
      }
    }
    return asked.map(([path]) => path).join(", ");
  },

  async "oip-http"(service, target) {
    return askTriton(service.transport(target), service.workload.service.model);
  },

  async "oip-grpc"(service, target) {
    return askTriton(service.transport(target), service.workload.service.model);
  },

  async metrics(service, _target, url) {
    const answer = await service.http.send(`${url}${embedPaths.metrics}`, { timeoutMs });
    if (answer.status !== 200)
      throw new Error(`GET ${embedPaths.metrics} answers ${answer.status}`);
    const metrics = parseMetrics(answer.body.toString("utf8"));
    if (metrics.length === 0) throw new Error(`GET ${embedPaths.metrics} has no metric`);
    if (service.workload.service.kind === "triton") {
      const { model } = service.workload.service;
      const name = "nv_inference_count";
      if (metricSum(metrics, name, { model }) === undefined) {
        throw new Error(`GET ${embedPaths.metrics} has no ${name} of ${model}`);
      }
    }
    return `${metrics.length} metrics`;
  },
};

function hasKey(body: unknown, key: string): boolean {
  return typeof body === "object" && body !== null && key in body;
}

async function askTriton(transport: Transport, model: string): Promise<string> {
  const options = { timeoutMs };
  if (!(await transport.live(options))) throw new Error("is not live");
  if (!(await transport.ready(undefined, options))) throw new Error("is not ready");
  if (!(await transport.ready(model, options))) throw new Error(`model ${model} is not ready`);
  const server = await transport.serverMetadata(options);
  const metadata = await transport.modelMetadata(model, options);
  for (const kind of ["inputs", "outputs"] as const) {
    for (const expected of openclipVitB32[kind]) {
      const found = metadata[kind].find(({ name }) => name === expected.name);
      const wanted = [-1, ...expected.dims].join(", ");
      if (found?.dataType !== expected.dataType || found.dims.join(", ") !== wanted) {
        const got =
          found === undefined ? "nothing" : `${found.dataType} [${found.dims.join(", ")}]`;
        throw new Error(
          `metadata of ${model}: '${expected.name}' must be ${expected.dataType} [${wanted}], got ${got}`,
        );
      }
    }
  }
  return `live, ready, ${server.name} ${server.version}, ${model} ready`;
}
