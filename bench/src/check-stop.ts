import { setTimeout as sleep } from "node:timers/promises";
import { embedMetrics } from "../../inference-image/src/contract/embed-api.ts";
import { TritonError } from "../../inference-image/src/triton/transport.ts";
import { embedBy } from "./embed-requests.ts";
import { howEnded, type RunningInstance } from "./embedded.ts";
import { loopback, type Target } from "./embedded-plan.ts";
import { reason } from "./http-client.ts";
import { inferRows } from "./infer.ts";
import { metricsOf } from "./instance-metrics.ts";
import { metricSum } from "./prometheus.ts";
import type { CheckResult } from "./record.ts";
import { cycle, type Reference, stack } from "./reference.ts";
import { pathsOf, resultOf, type ServiceUnderTest } from "./service-under-test.ts";

/** How long a burst should keep a service busy; long enough to be stopped in the middle. */
const burstMs = 800;
const attempts = 6;
const smallestBatch = 2;
const largestBatch = 32;
const burstRequests = 8;
const largestBurst = 16;
const timeoutMs = 120_000;
const pollMs = 5;
/** How long to wait until the service says that it has accepted every request of a burst. */
const acceptLimitMs = 3_000;

interface Burst {
  answered: number;
  /** Requests that have no answer yet. */
  pending: number;
  /** One line for each request that was not answered well. */
  readonly failed: string[];
  readonly done: Promise<unknown>;
}

/**
 * Stop a service while it works: every request that it has accepted is answered, and the process ends with code 0
 * within its grace. Of a Deployment one replica is stopped, and the others must go on answering.
 */
export async function checkStop(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  const running = service.instances.find(
    ({ start, child }) => start.ok && child.exit === undefined,
  );
  const targets = pathsOf(service);
  const dead = service.instances.find(({ child }) => child.exit !== undefined);
  if (dead?.child.exit !== undefined) {
    const message = `${dead.instance.name} ended ${howEnded(dead.child.exit)} while it was checked`;
    return [resultOf(service, "stop", "fail", message)];
  }
  if (running === undefined || targets.length === 0) {
    return [
      resultOf(service, "stop", "skip", "nothing of it runs that could be stopped under load"),
    ];
  }
  try {
    return [await stopUnderLoad(service, running, targets, reference)];
  } catch (error) {
    return [resultOf(service, "stop", "fail", reason(error))];
  }
}

async function stopUnderLoad(
  service: ServiceUnderTest,
  running: RunningInstance,
  targets: ReturnType<typeof pathsOf>,
  reference: Reference,
): Promise<CheckResult> {
  const { instance, child } = running;
  const send = (target: (typeof targets)[number], size: number) =>
    target.endpoint.protocol === "embed-http"
      ? embedBy(service.http, target.url, "multipart", cycle(reference, size))
      : inferRows(
          service.transport(target),
          service.workload.service.model,
          stack(cycle(reference, size)),
          size,
          timeoutMs,
        );

  // the burst goes to the process that will be stopped, so that what is counted is in flight there
  const aimed = targets.map((target) => ({ ...target, url: directUrl(target, running) }));
  const first = aimed[0] as (typeof aimed)[number];
  const startedAt = performance.now();
  await send(first, 1);
  const oneMs = Math.max(1, performance.now() - startedAt);
  let size = Math.round(burstMs / oneMs / burstRequests);

  let burst = begin(0, () => Promise.resolve());
  let accepted = 0;
  let answeredBefore = 0;
  let requests = burstRequests;
  for (let attempt = 0; attempt < attempts; attempt++) {
    const batch = Math.min(largestBatch, Math.max(smallestBatch, size));
    // a Triton counts what waits and not what runs; and one that is fast has never accepted much and answered nothing
    const share = attempt > 0 ? 0 : instance.role === "embed" ? 1 : 0.5;
    const enough = () => Math.max(1, Math.ceil(burst.pending * share));
    burst = begin(requests, (i) => send(aimed[i % aimed.length] as (typeof aimed)[number], batch));
    const deadline = performance.now() + acceptLimitMs;
    do {
      await sleep(pollMs);
      answeredBefore = burst.answered;
      accepted = await acceptedRequests(service, running, batch);
    } while (burst.pending > 0 && accepted < enough() && performance.now() < deadline);
    if (burst.pending > 0 && accepted > 0) break;
    accepted = 0;
    await burst.done;
    if (batch === largestBatch) requests = Math.min(largestBurst, requests * 2);
    size = batch * 4;
  }
  if (accepted === 0) {
    return resultOf(service, "stop", "skip", "it answers faster than it can be stopped");
  }

  const stopping = child.stop(instance.graceSeconds);
  await burst.done;
  // a Triton that stops waits for clients with open connections
  await service.closeTransports();
  const exit = await stopping;
  const lost = Math.max(0, accepted - (burst.answered - answeredBefore));

  const others = service.instances.filter(
    (other) => other !== running && other.start.ok && other.child.exit === undefined,
  );
  if (others.length > 0) {
    const after = begin(others.length * 2, (i) =>
      send(targets[i % targets.length] as (typeof targets)[number], 1),
    );
    await after.done;
    if (after.failed.length > 0) {
      const message = `with ${instance.name} stopped, the others do not answer through the Service: ${distinct(after.failed)}`;
      return resultOf(service, "stop", "fail", message);
    }
  }

  const stopMs = Math.round(exit.afterMs);
  const measured = { accepted, lost, stopMs, graceSeconds: instance.graceSeconds };
  if (lost > 0) {
    const message = `${instance.name}: ${lost} of ${accepted} accepted requests lost: ${distinct(burst.failed)}`;
    return resultOf(service, "stop", "fail", message, { measured });
  }
  if (exit.code !== 0) {
    const message = `${instance.name} ended ${howEnded(exit)} after ${stopMs} ms (grace ${instance.graceSeconds} s), must end with code 0`;
    return resultOf(service, "stop", "fail", message, { measured });
  }
  const message = `${instance.name}: ${accepted} accepted ${accepted === 1 ? "request" : "requests"} answered, ended with code 0 after ${stopMs} ms`;
  return resultOf(service, "stop", "pass", message, { measured });
}

function begin(requests: number, send: (index: number) => Promise<unknown>): Burst {
  const burst = { answered: 0, pending: requests, failed: [] as string[] };
  const done = Promise.all(
    Array.from({ length: requests }, async (_, i) => {
      try {
        await send(i);
        burst.answered++;
      } catch (error) {
        burst.failed.push(error instanceof TritonError ? error.message : reason(error));
      } finally {
        burst.pending--;
      }
    }),
  );
  return Object.assign(burst, { done });
}

const distinct = (messages: readonly string[]) => [...new Set(messages)].join("; ");

/** Requests that the process itself says it has accepted and not answered. */
async function acceptedRequests(
  service: ServiceUnderTest,
  running: RunningInstance,
  imagesPerRequest: number,
): Promise<number> {
  const { role } = running.instance;
  const metrics = await metricsOf(service, running);
  if (role === "triton") return metricSum(metrics, "nv_inference_pending_request_count") ?? 0;
  return Math.floor((metricSum(metrics, embedMetrics.pendingImages) ?? 0) / imagesPerRequest);
}

/** The process's own port, past the proxy of a Deployment. */
function directUrl(target: Target & { readonly url: string }, running: RunningInstance): string {
  const protocol = target.endpoint.protocol;
  const listener = running.instance.listeners.find((one) => one.protocol === protocol);
  if (listener === undefined) return target.url;
  const address = `${loopback}:${listener.local}`;
  return protocol === "oip-grpc" ? address : `http://${address}`;
}
