import { setTimeout as sleep } from "node:timers/promises";
import type { Exit } from "../../artefact/child-process.ts";
import { describeExit, type RunningInstance } from "../../artefact/simulation.ts";
import { loopback, type Target } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { metricSum } from "../../target/readings/prometheus.ts";
import type { Samples } from "../../target/reference/references.ts";
import { reason } from "../../target/requests/http-client.ts";
import {
  type EndpointTarget,
  firstTowersOf,
  metricsOf,
  type TargetService,
} from "../../target/service/target-service.ts";
import { type Check, ownKinds } from "./check.ts";
import { resultOf } from "./check-result.ts";
import {
  openSender,
  pollMs,
  type Sender,
  type SentRequest,
  type StopLoad,
  startStopLoad,
  workers,
} from "./stop-load.ts";

export const stopCheck: Check = {
  name: "stop",
  question:
    "Does a stop with open requests lose none, and end with code 0 within its grace period?",
  only: "simulation",
  skipReason: "a deployed service is not stopped",
  sendsRequests: true,
  kinds: ownKinds,
  // a gateway before the Triton servers behind it
  order: (services) => [...services].sort((a, b) => kindOrder(a) - kindOrder(b)),
  runService: checkStop,
};

function kindOrder(service: TargetService): number {
  return service.workload.service.kind === "embed" ? 0 : 1;
}

/** Duration for which one request per worker should keep a service busy, so that it is stopped in the middle. */
const roundMs = 800;
const attempts = 2;
/** Images or texts per request; small enough for a sent request to arrive completely before connections are closed. */
const smallestBatch = 2;
const largestBatch = 4;
/** Maximum time until the metrics show accepted requests. */
const acceptLimitMs = 1_500;
/** Duration of the load after the stop in ms, shorter than the time for which a stopping server keeps connections open. */
const overlapMs = 100;

/**
 * Stops a service under load: every request is answered or rejected with a stop error, accepted requests are answered, and the
 * process exits with code 0 within its grace period. One replica of a Deployment is stopped, and the others must keep serving.
 */
async function checkStop(
  service: TargetService,
  samples: Samples,
): Promise<readonly CheckResult[]> {
  const running = service.instances.find(
    ({ start, child }) => start.ok && child.exit === undefined,
  );
  const targets = firstTowersOf(service);
  const dead = service.instances.find(({ child }) => child.exit !== undefined);
  if (dead?.child.exit !== undefined) {
    const message = `${dead.instance.name} ended ${describeExit(dead.child.exit)} during the checks`;
    return [resultOf(service, "stop", "fail", message)];
  }
  if (running === undefined || targets.length === 0) {
    return [resultOf(service, "stop", "skip", "no process with an endpoint to stop under load")];
  }
  try {
    return [await stopUnderLoad(service, running, targets, samples)];
  } catch (error) {
    return [resultOf(service, "stop", "fail", reason(error))];
  }
}

async function stopUnderLoad(
  service: TargetService,
  running: RunningInstance,
  targets: readonly EndpointTarget[],
  samples: Samples,
): Promise<CheckResult> {
  const { instance } = running;
  const stopped = await loadAndStop(service, running, targets, samples);
  const others = service.instances.filter(
    (other) => other !== running && other.start.ok && other.child.exit === undefined,
  );
  const failed = await sendThroughService(targets, others.length * 2, samples);
  if (failed.length > 0) {
    const message = `with ${instance.name} stopped, the other replicas must respond through the Service, got ${distinct(failed)}`;
    return resultOf(service, "stop", "fail", message);
  }
  return stopResult(service, running, stopped);
}

/** Requests around a stop, and how the process ended. */
interface StoppedLoad {
  readonly sent: readonly SentRequest[];
  /** Requests that were open at the stop or sent after it. */
  readonly during: readonly SentRequest[];
  readonly accepted: AcceptedRequests;
  readonly exit: Exit;
}

async function loadAndStop(
  service: TargetService,
  running: RunningInstance,
  targets: readonly EndpointTarget[],
  samples: Samples,
): Promise<StoppedLoad> {
  const { instance, child } = running;
  // directly to the process, so that its metrics count the open requests
  const senders = targets.map((target) =>
    openSender({ ...target, url: directUrl(target, running) }, samples),
  );
  let load = startStopLoad(0, async () => {});
  try {
    const loaded = await loadUntilAccepted(service, running, senders, (it) => {
      load = it;
    });
    const unanswered = load.sent.filter(({ result }) => result === undefined);
    const before = load.sent.length;
    const finished = load.finish(overlapMs);
    const stopping = child.stop(instance.graceSeconds);
    await finished;
    const during = [...unanswered, ...load.sent.slice(before)];
    // a stopping Triton waits for clients with open connections
    await Promise.all([service.closeTransports(), ...senders.map((sender) => sender.close())]);
    return { sent: load.sent, during, accepted: loaded, exit: await stopping };
  } finally {
    await load.finish();
    await Promise.all(senders.map((sender) => sender.close()));
  }
}

/** Starts a load, with larger batches if necessary, until the process has accepted requests. */
async function loadUntilAccepted(
  service: TargetService,
  running: RunningInstance,
  senders: readonly Sender[],
  onLoad: (load: StopLoad) => void,
): Promise<AcceptedRequests> {
  const sendBatch = (size: number) => (worker: number) =>
    (senders[worker % senders.length] as Sender).send(size);
  const startedAt = performance.now();
  await sendBatch(1)(0);
  let batch = roundMs / Math.max(1, performance.now() - startedAt) / workers;
  for (let attempt = 0; ; attempt++) {
    batch = Math.min(largestBatch, Math.max(smallestBatch, Math.round(batch)));
    const load = startStopLoad(workers, sendBatch(batch));
    onLoad(load);
    await load.warm;
    // Triton counts queued but not executing requests, so only half of them are expected
    const share = attempt > 0 ? 0 : running.instance.role === "embed" ? 1 : 0.5;
    const accepted = await waitUntilAccepted(
      service,
      running,
      load,
      batch,
      Math.ceil(workers * share),
    );
    if (accepted.count > 0 || batch === largestBatch || attempt === attempts) return accepted;
    await load.finish();
    batch *= 4;
  }
}

function stopResult(
  service: TargetService,
  { instance }: RunningInstance,
  { sent, during, accepted, exit }: StoppedLoad,
): CheckResult {
  const unanswered = sent.filter(({ result }) => result === "lost");
  const rejected = accepted.among.filter(({ result }) => result === "rejected");
  // accepted requests must be answered, so at most the others may be rejected
  const broken = Math.max(0, rejected.length - (accepted.among.length - accepted.count));
  const lost = unanswered.length + broken;
  const count = (wanted: SentRequest["result"]) =>
    during.filter(({ result }) => result === wanted).length;
  const stopMs = Math.round(exit.afterMs);
  const measured = {
    accepted: accepted.count,
    requests: during.length,
    answered: count("answered"),
    rejected: count("rejected"),
    lost,
    stopMs,
    graceSeconds: instance.graceSeconds,
  };
  if (lost > 0) {
    const errors = [...unanswered, ...(broken > 0 ? rejected : [])].map(({ error }) => error ?? "");
    const message = `${instance.name}: ${lost} of ${during.length} requests in flight at the stop were lost: ${distinct(errors)}`;
    return resultOf(service, "stop", "fail", message, { measured });
  }
  if (exit.code !== 0) {
    const message = `${instance.name} ended ${describeExit(exit)} after ${stopMs} ms (grace ${instance.graceSeconds} s), must end with code 0`;
    return resultOf(service, "stop", "fail", message, { measured });
  }
  const message = `${instance.name}: of ${during.length} requests at the stop ${measured.answered} answered, ${measured.rejected} rejected, none lost; ended with code 0 after ${stopMs} ms`;
  return resultOf(service, "stop", "pass", message, { measured });
}

const distinct = (messages: readonly string[]) => [...new Set(messages)].join("; ");

/** Open requests according to the metrics of the process. */
interface AcceptedRequests {
  readonly count: number;
  /** Requests that may be counted: sent by then, and not answered before. */
  readonly among: readonly SentRequest[];
}

async function waitUntilAccepted(
  service: TargetService,
  running: RunningInstance,
  load: StopLoad,
  batch: number,
  enough: number,
): Promise<AcceptedRequests> {
  const deadline = performance.now() + acceptLimitMs;
  for (;;) {
    const open = load.sent.filter(({ result }) => result === undefined);
    const before = load.sent.length;
    const counted = await acceptedRequests(service, running, batch);
    const among = [...open, ...load.sent.slice(before)];
    const count = Math.min(counted, among.length);
    if (count >= Math.max(1, enough) || performance.now() > deadline) return { count, among };
    await sleep(pollMs);
  }
}

/** Sends requests to the endpoints of the service, and returns the errors. */
async function sendThroughService(
  targets: readonly EndpointTarget[],
  requests: number,
  samples: Samples,
): Promise<readonly string[]> {
  const senders = targets.map((target) => openSender(target, samples));
  const responses = Array.from({ length: requests }, async (_, i) => {
    await (senders[i % senders.length] as Sender).send(1);
  });
  const results = await Promise.allSettled(responses);
  await Promise.all(senders.map((sender) => sender.close()));
  return results.flatMap((result) => (result.status === "rejected" ? [reason(result.reason)] : []));
}

/** Number of accepted and unanswered requests, from the metrics of the process. */
async function acceptedRequests(
  service: TargetService,
  running: RunningInstance,
  itemsPerRequest: number,
): Promise<number> {
  const { role } = running.instance;
  const metrics = await metricsOf(service, running);
  if (role === "triton") return metricSum(metrics, "nv_inference_pending_request_count") ?? 0;
  return Math.floor((metricSum(metrics, embedMetrics.pendingImages) ?? 0) / itemsPerRequest);
}

/** URL of the process itself, bypassing the proxy of a Deployment. */
function directUrl(target: Target & { readonly url: string }, running: RunningInstance): string {
  const protocol = target.endpoint.protocol;
  const listener = running.instance.listeners.find((one) => one.protocol === protocol);
  if (listener === undefined) return target.url;
  const address = `${loopback}:${listener.local}`;
  return protocol === "oip-grpc" ? address : `http://${address}`;
}
