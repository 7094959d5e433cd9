import { setTimeout as sleep } from "node:timers/promises";
import type { Exit } from "../../artefact/child-process.ts";
import { describeExit, type RunningInstance } from "../../artefact/simulation.ts";
import { loopback, type Target } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { embedBy } from "../../bench/run/embed-requests.ts";
import { openHttpClient, reason } from "../../bench/run/http-client.ts";
import { inferRows } from "../../bench/run/infer.ts";
import { metricsOf } from "../../bench/run/instance-metrics.ts";
import { metricSum } from "../../bench/run/prometheus.ts";
import { cycle, type Reference, stack } from "../../bench/run/reference.ts";
import {
  type EndpointTarget,
  endpointsOf,
  resultOf,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { isStopRejection } from "../../client/triton/stop-rejection.ts";
import { TritonError } from "../../client/triton/transport.ts";
import { embedMetrics } from "../../contract/embed-api.ts";

/** How long a round of requests should keep a service busy; long enough to be stopped in the middle. */
const roundMs = 800;
const attempts = 2;
/** Images of one request: small enough that a request that is sent arrives whole before connections are closed. */
const smallestBatch = 2;
const largestBatch = 4;
const workers = 8;
const timeoutMs = 120_000;
const pollMs = 5;
/** How long to wait until the service says that it has accepted requests. */
const acceptLimitMs = 1_500;
/** How long the load goes on during the stop: shorter than a server leaves open connections alone. */
const overlapMs = 100;

type Send = (worker: number) => Promise<unknown>;

/** One request of the load. */
interface Sent {
  /** Absent while it has no answer. */
  end?: "answered" | "refused" | "lost";
  /** Why there is no good answer. */
  said?: string;
}

/** Requests without a pause: each worker sends its next one when the last one has ended. */
interface Load {
  /** All of them, in the order in which they were sent. */
  readonly sent: readonly Sent[];
  /** Every worker has had an answer, on a connection that stays open. */
  readonly warm: Promise<unknown>;
  /** Sends no more after `overMs`, however late this process is by then, and waits for what was sent. */
  finish(overMs?: number): Promise<void>;
}

/**
 * Stop a service while it works: every request is answered or refused in words, those that it had accepted are
 * answered, and the process ends with code 0 within its grace. Of a Deployment one replica is stopped, and the others must go on answering.
 */
export async function checkStop(
  service: ServiceUnderTest,
  reference: Reference,
): Promise<readonly CheckResult[]> {
  const running = service.instances.find(
    ({ start, child }) => start.ok && child.exit === undefined,
  );
  const targets = endpointsOf(service);
  const dead = service.instances.find(({ child }) => child.exit !== undefined);
  if (dead?.child.exit !== undefined) {
    const message = `${dead.instance.name} ended ${describeExit(dead.child.exit)} while it was checked`;
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
  targets: readonly EndpointTarget[],
  reference: Reference,
): Promise<CheckResult> {
  const { instance, child } = running;
  // the load goes to the process that will be stopped, so that what is counted is in flight there
  const senders = targets.map((target) =>
    openSender(service, { ...target, url: directUrl(target, running) }, reference),
  );
  const sendBatch = (size: number) => (worker: number) =>
    (senders[worker % senders.length] as Sender).send(size);
  let seen: Seen;
  let load = startLoad(0, sendBatch(1));
  let during: readonly Sent[];
  let exit: Exit;
  try {
    const startedAt = performance.now();
    await sendBatch(1)(0);
    let batch = roundMs / Math.max(1, performance.now() - startedAt) / workers;
    for (let attempt = 0; ; attempt++) {
      batch = Math.min(largestBatch, Math.max(smallestBatch, Math.round(batch)));
      load = startLoad(workers, sendBatch(batch));
      await load.warm;
      // a Triton counts what waits and not what runs; and one that is fast has never accepted much
      const share = attempt > 0 ? 0 : instance.role === "embed" ? 1 : 0.5;
      seen = await waitUntilAccepted(service, running, load, batch, Math.ceil(workers * share));
      if (seen.accepted > 0 || batch === largestBatch || attempt === attempts) break;
      await load.finish();
      batch *= 4;
    }
    const unanswered = load.sent.filter(({ end }) => end === undefined);
    const before = load.sent.length;
    const finished = load.finish(overlapMs);
    const stopping = child.stop(instance.graceSeconds);
    await finished;
    during = [...unanswered, ...load.sent.slice(before)];
    // a Triton that stops waits for clients with open connections
    await Promise.all([service.closeTransports(), ...senders.map((sender) => sender.close())]);
    exit = await stopping;
  } finally {
    await load.finish();
    await Promise.all(senders.map((sender) => sender.close()));
  }

  const others = service.instances.filter(
    (other) => other !== running && other.start.ok && other.child.exit === undefined,
  );
  const failed = await askThrough(service, targets, others.length * 2, reference);
  if (failed.length > 0) {
    const message = `with ${instance.name} stopped, the others do not answer through the Service: ${distinct(failed)}`;
    return resultOf(service, "stop", "fail", message);
  }

  const unanswered = load.sent.filter(({ end }) => end === "lost");
  const refused = seen.among.filter(({ end }) => end === "refused");
  // of those that were sent by then, so many were in flight that no more than the rest may be refused
  const broken = Math.max(0, refused.length - (seen.among.length - seen.accepted));
  const lost = unanswered.length + broken;
  const count = (end: Sent["end"]) => during.filter((one) => one.end === end).length;
  const stopMs = Math.round(exit.afterMs);
  const measured = {
    accepted: seen.accepted,
    requests: during.length,
    answered: count("answered"),
    refused: count("refused"),
    lost,
    stopMs,
    graceSeconds: instance.graceSeconds,
  };
  if (lost > 0) {
    const words = [...unanswered, ...(broken > 0 ? refused : [])].map(({ said }) => said ?? "");
    const message = `${instance.name}: ${lost} of ${during.length} requests in flight at the stop were lost: ${distinct(words)}`;
    return resultOf(service, "stop", "fail", message, { measured });
  }
  if (exit.code !== 0) {
    const message = `${instance.name} ended ${describeExit(exit)} after ${stopMs} ms (grace ${instance.graceSeconds} s), must end with code 0`;
    return resultOf(service, "stop", "fail", message, { measured });
  }
  const message = `${instance.name}: of ${during.length} requests at the stop ${measured.answered} answered, ${measured.refused} refused, none lost; ended with code 0 after ${stopMs} ms`;
  return resultOf(service, "stop", "pass", message, { measured });
}

interface Sender {
  send(size: number): Promise<unknown>;
  close(): Promise<void>;
}

/**
 * Requests on connections of their own, one for each worker. Nobody else takes one and makes a worker open another,
 * which a stopping server may not accept any more.
 */
function openSender(
  service: ServiceUnderTest,
  target: EndpointTarget,
  reference: Reference,
): Sender {
  const { endpoint, url } = target;
  let closed: Promise<void> | undefined;
  if (endpoint.protocol === "embed-http") {
    const http = openHttpClient(workers);
    return {
      send: (size) => embedBy(http, url, "multipart", cycle(reference, size)),
      async close() {
        closed ??= http.close();
        await closed;
      },
    };
  }
  const transport =
    endpoint.protocol === "oip-grpc"
      ? openGrpcTransport({ target: url })
      : openHttpTransport({ url, connections: workers });
  const { model } = service.workload.service;
  return {
    send: (size) => inferRows(transport, model, stack(cycle(reference, size)), size, timeoutMs),
    close: () => transport.close(),
  };
}

function startLoad(count: number, send: Send): Load {
  const sent: Sent[] = [];
  let until = Number.POSITIVE_INFINITY;
  /** Whether to go on. */
  const sendOne = async (worker: number): Promise<boolean> => {
    const one: Sent = {};
    sent.push(one);
    try {
      await send(worker);
      one.end = "answered";
      return true;
    } catch (error) {
      one.said = error instanceof TritonError ? error.message : reason(error);
      const busy = isOverload(one.said);
      one.end = busy || isStopRejection(one.said) ? "refused" : "lost";
      if (busy) await sleep(pollMs);
      return busy;
    }
  };
  const first = Array.from({ length: count }, (_, worker) => sendOne(worker));
  const done = Promise.all(
    first.map(async (begun, worker) => {
      let good = await begun;
      while (good && performance.now() < until) good = await sendOne(worker);
    }),
  );
  return {
    sent,
    warm: Promise.all(first),
    async finish(overMs = 0) {
      until = Math.min(until, performance.now() + overMs);
      await done;
    },
  };
}

const isOverload = (said: string) => /\bstatus 429\b|Exceeds maximum queue size/.test(said);

const distinct = (messages: readonly string[]) => [...new Set(messages)].join("; ");

/** What a process said about itself under load. */
interface Seen {
  /** Requests that it had accepted and not answered. */
  readonly accepted: number;
  /** The requests that can be meant: sent by then, and not answered before. */
  readonly among: readonly Sent[];
}

async function waitUntilAccepted(
  service: ServiceUnderTest,
  running: RunningInstance,
  load: Load,
  batch: number,
  enough: number,
): Promise<Seen> {
  const deadline = performance.now() + acceptLimitMs;
  for (;;) {
    const open = load.sent.filter(({ end }) => end === undefined);
    const before = load.sent.length;
    const counted = await acceptedRequests(service, running, batch);
    const among = [...open, ...load.sent.slice(before)];
    const accepted = Math.min(counted, among.length);
    if (accepted >= Math.max(1, enough) || performance.now() > deadline) return { accepted, among };
    await sleep(pollMs);
  }
}

/** Requests where users ask; what went wrong with each that failed. */
async function askThrough(
  service: ServiceUnderTest,
  targets: readonly EndpointTarget[],
  requests: number,
  reference: Reference,
): Promise<readonly string[]> {
  const senders = targets.map((target) => openSender(service, target, reference));
  const asked = Array.from({ length: requests }, async (_, i) => {
    await (senders[i % senders.length] as Sender).send(1);
  });
  const results = await Promise.allSettled(asked);
  await Promise.all(senders.map((sender) => sender.close()));
  return results.flatMap((result) => (result.status === "rejected" ? [reason(result.reason)] : []));
}

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
