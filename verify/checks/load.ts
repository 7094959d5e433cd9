import { setTimeout as sleep } from "node:timers/promises";
import type { Measurement } from "../../bench/record/record.ts";
import { hasEmbedApi } from "../../contract/environment.ts";
import { describeLatency, sortedLatencies } from "../../target/load/latency.ts";
import { countCodes, isGood } from "../../target/load/samples.ts";
import { startLoad } from "../../target/load/start-load.ts";
import { clockMs } from "../../target/load/worker-messages.ts";
import { prepareRequests } from "../../target/requests/prepare.ts";
import {
  type EndpointTarget,
  firstTowersOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import type { Check, CheckContext } from "./check.ts";
import { checkEachEndpoint, type EndpointFinding, modelOf } from "./check-result.ts";

/** Clients of the closed loop. */
export const loadConcurrency = 4;

export const loadCheck: Check = {
  name: "load",
  question: "Is every request of a short load answered?",
  sendsRequests: true,
  runService: (service, context) =>
    checkEachEndpoint(
      service,
      "load",
      (target) => loadEndpoint(service, target, context),
      firstTowersOf(service),
    ),
};

async function loadEndpoint(
  service: TargetService,
  target: EndpointTarget,
  context: CheckContext,
): Promise<EndpointFinding> {
  const { measurement, requests } = await measure(service, target, context);
  context.onMeasurement(measurement);
  const { samples: good, errors, imagesPerSecond } = measurement;
  const failed = requests - good;
  const measured = { requests, failed, imagesPerSecond };
  if (failed === 0 && good > 0) return { message: `${good} requests answered`, measured };
  const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  const message = `${failed} of ${requests} requests failed: ${codes.join(", ")}`;
  return { outcome: "fail", message, measured };
}

/** Closed loop of single images or texts on one endpoint: measures maximum throughput, not latency at a given rate. */
async function measure(
  service: TargetService,
  { endpointName: endpoint, url, model, spec, modality }: EndpointTarget,
  { environment, reference, textReference, loadSeconds, signal }: CheckContext,
): Promise<{ readonly measurement: Measurement; readonly requests: number }> {
  const { name } = service.workload.service;
  const isEmbed = hasEmbedApi(endpoint);
  const payload = modality === "text" ? "text" : isEmbed ? "jpeg" : "fp32";
  const requests = await prepareRequests(
    { endpoint, url, model, spec, apiKey: isEmbed ? service.apiKey : undefined },
    { payload, serialization: "binary" },
    (modality === "text" ? textReference : reference).get(spec.name) ?? [],
    1,
  );
  const startedMs = clockMs();
  const load = startLoad(requests, { kind: "closed loop", concurrency: loadConcurrency });
  await sleep(loadSeconds * 1_000, undefined, { signal }).catch(() => {});
  await load.stop(signal);
  signal.throwIfAborted();
  const seconds = (clockMs() - startedMs) / 1_000;
  const { samples } = load;
  const good = samples.filter(isGood);
  const { latencyMs: latency, histogram } = describeLatency(sortedLatencies(good));
  const measurement: Measurement = {
    environment,
    service: name,
    endpoint,
    ...modelOf(service, { spec }),
    load: { kind: "closed loop", concurrency: loadConcurrency, imagesPerRequest: 1, seconds },
    samples: good.length,
    imagesPerSecond: good.length / seconds,
    latencyMs: latency && latencyOf(latency),
    histogram,
    errors: countCodes(samples),
  };
  return { measurement, requests: samples.length };
}

function latencyOf({
  p50,
  p95,
  p99,
  max,
  p99Reliable,
}: NonNullable<Measurement["latencyMs"]>): Measurement["latencyMs"] {
  return { p50, p95, p99, max, p99Reliable };
}
