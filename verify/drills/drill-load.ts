import { UserError } from "../../contract/user-error.ts";
import type { JudgeResponse } from "../../target/load/http-connection.ts";
import { describeLatency, sortedLatencies } from "../../target/load/latency.ts";
import { codeText, countCodes, isGood, type TimedSample } from "../../target/load/samples.ts";
import { type RunningLoad, startLoad } from "../../target/load/start-load.ts";
import { clockMs } from "../../target/load/worker-messages.ts";
import { parityLimits } from "../../target/reference/parity.ts";
import { type EncodedImage, rows } from "../../target/requests/embed-requests.ts";
import { reason } from "../../target/requests/http-client.ts";
import { prepareEmbedRequests } from "../../target/requests/prepare.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { cosine } from "../../target/stats/statistics.ts";
import type { ServiceRoute } from "../cluster/cluster-api.ts";
import type { DrillRecord, PhaseLoad } from "./drill-record.ts";

/** Rate or number of clients of a load. Each client sends its next request after the previous response. */
export type Pace =
  | { readonly kind: "fixed rate"; readonly ratePerSecond: number }
  | { readonly kind: "closed loop"; readonly concurrency: number };

/** Maximum number of open requests at a fixed rate. More requests would only lengthen the queue. */
const openLimit = 500;
const responseMs = 30_000;

const wrongEmbedding = "wrong embedding";
const cleanRejection = /^(429|503) with Retry-After$/;

/** Address of the service. */
export type Route = Pick<ServiceRoute, "url" | "http"> & Partial<ServiceRoute>;

/** Requests of a drill, and their results in each phase. */
export class DrillLoad {
  #route: Route | undefined;
  #url = "";
  #judge: JudgeResponse | undefined;
  #running: { readonly load: RunningLoad; readonly pace: Pace } | undefined;
  readonly #ended: { readonly samples: readonly TimedSample[]; readonly pace: Pace }[] = [];
  readonly #phases: { readonly name: string; readonly fromMs: number; toMs?: number }[] = [];

  constructor(
    private readonly open: () => Promise<Route>,
    private readonly images: readonly EncodedImage[],
    private readonly apiKey: string | undefined,
    /** Whether each embedding is compared with the one before the drill, and a rejection with `Retry-After` is not a failure. */
    private readonly comparesAnswers = false,
  ) {}

  /** Starts sending requests, or changes the pace. */
  async start(pace: Pace, signal: AbortSignal): Promise<void> {
    await this.#stop(signal);
    if (this.#route === undefined) {
      this.#route = await this.open();
      this.#url = this.#route.url;
    }
    const { url, headers, connect } = this.#route;
    const requests = await prepareEmbedRequests({ url, apiKey: this.apiKey }, this.images);
    if (this.idle) await this.#requireResponses(this.#route, requests, signal);
    const load = startLoad(
      {
        ...requests,
        // a new connection for each request, so that the Service selects a pod for each
        headers: { ...requests.headers, ...headers, connection: "close" },
        connect,
      },
      pace.kind === "closed loop"
        ? pace
        : { kind: "open loop", arrivals: "constant", ratePerSecond: pace.ratePerSecond, seed: 0 },
      { openLimit, judge: this.#judge },
    );
    this.#running = { load, pace };
  }

  get idle(): boolean {
    return this.#running === undefined && this.#ended.length === 0;
  }

  get pace(): Pace | undefined {
    return this.#running?.pace;
  }

  /** Number of successful responses since the load was started or its pace changed. */
  get successes(): number {
    return this.#running?.load.samples.filter(isGood).length ?? 0;
  }

  /** Starts a phase; requests due from now on belong to it. */
  phase(name: string): void {
    this.#endPhase();
    this.#phases.push({ name, fromMs: clockMs() });
  }

  /**
   * Stops the load.
   *
   * @param signal - Ends the wait for open requests.
   */
  async end(signal: AbortSignal): Promise<void> {
    this.#endPhase();
    await this.#stop(signal);
    await this.#route?.http.close();
    this.#route = undefined;
  }

  get record(): DrillRecord["load"] {
    const [first] = this.#ended;
    if (first === undefined) return undefined;
    const paces = this.#ended.map(({ pace }) => pace);
    return {
      ...(paces.find(({ kind }) => kind === "closed loop") ?? first.pace),
      imagesPerRequest: 1,
      connections: "one per request",
      url: this.#url,
      phases: this.#phases.map(({ name }) => this.of(name)),
    };
  }

  /** Failed requests of a phase so far, with times in seconds since its start. */
  failuresOf(phase: string) {
    const { spans, samples } = this.#samplesOf(phase);
    const seconds = (ms: number) => Math.round(ms - (spans[0]?.fromMs ?? 0)) / 1_000;
    return samples
      .filter((sample) => !isGood(sample))
      .map(({ dueMs, sentMs, doneMs, code }) => ({
        ...{ phase, code: codeText(code) },
        ...{ due: seconds(dueMs), sent: seconds(sentMs), done: seconds(doneMs) },
      }));
  }

  #samplesOf(phase: string, now = clockMs()) {
    const spans = this.#phases.filter(({ name }) => name === phase);
    const samples = [
      ...this.#ended.flatMap((it) => it.samples),
      ...(this.#running?.load.samples ?? []),
    ].filter(({ dueMs }) =>
      spans.some(({ fromMs, toMs = now }) => dueMs >= fromMs && dueMs < toMs),
    );
    return { spans, samples };
  }

  /** Results of the requests of a phase so far. */
  of(phase: string): PhaseLoad {
    const now = clockMs();
    const { spans, samples } = this.#samplesOf(phase, now);
    const seconds = spans.reduce((sum, { fromMs, toMs = now }) => sum + toMs - fromMs, 0) / 1_000;
    const good = samples.filter(isGood);
    const rejected = samples.filter(({ code }) => cleanRejection.test(code));
    const { latencyMs } = describeLatency(sortedLatencies(good));
    const [span] = spans;
    return {
      phase,
      seconds: Math.round(seconds * 10) / 10,
      requests: samples.length,
      failed: samples.length - good.length - rejected.length,
      errors: countCodes(samples.filter((sample) => !rejected.includes(sample))),
      ...(this.comparesAnswers &&
        span && {
          rejected: countCodes(rejected),
          ...interruption(samples, span.fromMs, span.toMs ?? now),
        }),
      latencyMs: latencyMs && {
        samples: good.length,
        p50: latencyMs.p50,
        p95: latencyMs.p95,
        p99: latencyMs.p99,
        max: latencyMs.max,
        p99Reliable: latencyMs.p99Reliable,
      },
    };
  }

  /** Sends requests before any change, because a service that fails when idle cannot be drilled. */
  async #requireResponses(
    { http, headers }: Route,
    { url, path, headers: common, requests }: PreparedRequests,
    signal: AbortSignal,
  ): Promise<void> {
    const references: Buffer[] = [];
    for (const { headers: own, body } of this.comparesAnswers ? requests : requests.slice(0, 1)) {
      const options = { headers: { ...headers, ...common, ...own }, body, timeoutMs: responseMs };
      const response = await http
        .send(`${url}${path}`, { ...options, signal })
        .catch((error: unknown) => {
          throw new UserError(`${this.#url} does not respond: ${reason(error)}`);
        });
      if (response.status !== 200) {
        const text = response.body.toString("utf8").slice(0, 200);
        throw new UserError(
          `${url}${path} must respond with status 200, got ${response.status}: ${text}`,
        );
      }
      references.push(response.body);
    }
    if (this.comparesAnswers) this.#judge = judgeBy(references);
  }

  #endPhase(): void {
    const last = this.#phases.at(-1);
    if (last !== undefined) last.toMs ??= clockMs();
  }

  async #stop(signal: AbortSignal): Promise<void> {
    const running = this.#running;
    if (running === undefined) return;
    this.#running = undefined;
    await running.load.stop(signal);
    this.#ended.push({ samples: running.load.samples, pace: running.pace });
  }
}

/** Longest time without a successful response, and time until the last unsuccessful request had ended. */
export function interruption(
  samples: readonly TimedSample[],
  fromMs: number,
  toMs: number,
): Required<Pick<PhaseLoad, "longestGapMs" | "disturbedSeconds">> {
  const responses = samples.filter(isGood).map(({ doneMs }) => Math.min(doneMs, toMs));
  const times = [fromMs, ...responses.sort((a, b) => a - b), toMs];
  const gaps = times.slice(1).map((time, i) => time - times[i]!);
  const unsuccessful = samples.filter((sample) => !isGood(sample));
  const disturbedMs = Math.max(0, ...unsuccessful.map(({ doneMs }) => doneMs - fromMs));
  return {
    longestGapMs: Math.round(Math.max(...gaps)),
    disturbedSeconds: Math.round(disturbedMs / 100) / 10,
  };
}

/**
 * Judges a response by the embedding of the same image before the drill, and tells rejections that a client may retry from failures.
 *
 * @param references - Bodies with float32 rows, by request.
 */
export function judgeBy(references: readonly Buffer[]): JudgeResponse {
  return (request, { status, headers, body }) => {
    if (status === 200) return isSameEmbedding(references[request], body) ? "" : wrongEmbedding;
    const hasRetryAfter = headers.some(
      (name, i) => i % 2 === 0 && name.toString("latin1").toLowerCase() === "retry-after",
    );
    const code = `${status} with Retry-After`;
    return hasRetryAfter && cleanRejection.test(code) ? code : String(status);
  };
}

/** Compares directions only, because the order of additions in a batch changes the last digits. */
function isSameEmbedding(reference: Buffer | undefined, body: Buffer): boolean {
  if (reference === undefined || body.length !== reference.length) return false;
  const [expected, got] = [reference, body].map(
    (it) => rows(it, it.length / Float32Array.BYTES_PER_ELEMENT)[0]!,
  );
  return cosine(expected!, got!) >= parityLimits.cosineAtLeast;
}

/** Number of failed requests by code; empty if none failed. */
export function failureText({ requests, failed, errors }: PhaseLoad): string {
  if (requests === 0) return "no request was sent";
  if (failed === 0) return "";
  const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  return `${failed} of ${requests} requests failed: ${codes.join(", ")}`;
}
