import { type ClusterService, selects } from "../../artefact/cluster-objects.ts";
import { describeLatency, sortedLatencies } from "../../bench/load/latency.ts";
import { prepareEmbedRequests } from "../../bench/load/prepare.ts";
import { countCodes, isGood, type TimedSample } from "../../bench/load/samples.ts";
import { type RunningLoad, startLoad } from "../../bench/load/start-load.ts";
import { clockMs } from "../../bench/load/worker-messages.ts";
import { type EncodedImage, requestOf } from "../../bench/run/embed-requests.ts";
import { type HttpClient, openHttpClient, reason } from "../../bench/run/http-client.ts";
import { podPortNames } from "../../contract/pods.ts";
import { UserError } from "../../contract/user-error.ts";
import { type ClusterApi, namespacedPath, type ServiceRoute } from "../cluster/cluster-api.ts";
import type { DrillRecord, PhaseLoad } from "./drill-record.ts";
import type { DrillTarget, Snapshot } from "./snapshot.ts";

/** Rate or number of clients of a load. Each client sends its next request once the last one is answered. */
export type Pace =
  | { readonly kind: "fixed rate"; readonly ratePerSecond: number }
  | { readonly kind: "closed loop"; readonly concurrency: number };

/** Open requests at a fixed rate; beyond it the load would only lengthen a queue. */
const openLimit = 500;
const answerMs = 30_000;

type Route = Pick<ServiceRoute, "url" | "http"> & Partial<ServiceRoute>;

/** The requests that a drill sends, and how they went in each of its phases. */
export class DrillLoad {
  #route: Route | undefined;
  #url = "";
  #running: { readonly load: RunningLoad; readonly pace: Pace } | undefined;
  readonly #ended: { readonly samples: readonly TimedSample[]; readonly pace: Pace }[] = [];
  readonly #phases: { readonly name: string; readonly fromMs: number; toMs?: number }[] = [];

  constructor(
    private readonly api: ClusterApi,
    private readonly target: DrillTarget,
    private readonly before: Snapshot,
    private readonly images: readonly EncodedImage[],
    private readonly apiKey: string | undefined,
  ) {}

  /**
   * Begins to send requests, or sends them at another pace.
   *
   * @throws {UserError} if the Service does not answer the first one.
   */
  async start(pace: Pace, signal: AbortSignal): Promise<void> {
    await this.#stop(signal);
    if (this.#route === undefined) {
      this.#route = await this.#open();
      await requireAnswer(this.#route, this.images, signal);
    }
    const { url, headers, connect } = this.#route;
    const requests = await prepareEmbedRequests({ url, apiKey: this.apiKey }, this.images);
    const load = startLoad(
      {
        ...requests,
        // a new connection for each request, so that the Service chooses a pod for each
        headers: { ...requests.headers, ...headers, connection: "close" },
        connect,
      },
      pace.kind === "closed loop"
        ? pace
        : { kind: "open loop", arrivals: "constant", ratePerSecond: pace.ratePerSecond, seed: 0 },
      { openLimit },
    );
    this.#running = { load, pace };
  }

  /** Whether no load has been started. */
  get idle(): boolean {
    return this.#running === undefined && this.#ended.length === 0;
  }

  get pace(): Pace | undefined {
    return this.#running?.pace;
  }

  /** Assigns the requests due from now on to this phase of the drill. */
  phase(name: string): void {
    this.#endPhase();
    this.#phases.push({ name, fromMs: clockMs() });
  }

  /** @param cut - Ends the wait for answers. */
  async end(cut: AbortSignal): Promise<void> {
    this.#endPhase();
    await this.#stop(cut);
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
      connections: "one for each request",
      url: this.#url,
      phases: this.#phases.map(({ name }) => this.of(name)),
    };
  }

  /** How the requests of a phase went so far. */
  of(phase: string): PhaseLoad {
    const now = clockMs();
    const spans = this.#phases.filter(({ name }) => name === phase);
    const samples = [
      ...this.#ended.flatMap((it) => it.samples),
      ...(this.#running?.load.samples ?? []),
    ].filter(({ dueMs }) =>
      spans.some(({ fromMs, toMs = now }) => dueMs >= fromMs && dueMs < toMs),
    );
    const seconds = spans.reduce((sum, { fromMs, toMs = now }) => sum + toMs - fromMs, 0) / 1_000;
    const good = samples.filter(isGood);
    const { latencyMs } = describeLatency(sortedLatencies(good));
    return {
      phase,
      seconds: Math.round(seconds * 10) / 10,
      requests: samples.length,
      failed: samples.length - good.length,
      errors: countCodes(samples),
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

  #endPhase(): void {
    const last = this.#phases.at(-1);
    if (last !== undefined) last.toMs ??= clockMs();
  }

  async #stop(cut: AbortSignal): Promise<void> {
    const running = this.#running;
    if (running === undefined) return;
    this.#running = undefined;
    await running.load.stop(cut);
    this.#ended.push({ samples: running.load.samples, pace: running.pace });
  }

  async #open(): Promise<Route> {
    const { url, namespace, deployment, service } = this.target;
    const { apiKey } = this;
    if (url !== undefined) {
      this.#url = url;
      const bearer = apiKey === undefined ? undefined : { origin: url, key: apiKey };
      return { url, http: openHttpClient(512, bearer, { oneRequestEach: true }) };
    }
    const named = service ?? (await this.#service());
    if (named === undefined) {
      throw new UserError(
        `no Service of namespace '${namespace}' leads to Deployment '${deployment}'`,
      );
    }
    const route = await this.api.openService(namespace, named.name, named.port);
    this.#url = route.url;
    return route;
  }

  /** The first Service that selects the pods. */
  async #service(): Promise<DrillTarget["service"]> {
    const path = namespacedPath(this.target.namespace, "v1", "services");
    const labels = this.before.pods[0]?.metadata.labels;
    const own = (await this.api.list<ClusterService>(path)).find(({ spec }) =>
      selects(spec.selector, labels),
    );
    const ports = own?.spec.ports ?? [];
    const port = ports.find(({ name }) => name === podPortNames.http) ?? ports[0];
    return own && port && { name: own.metadata.name, port: port.port };
  }
}

/** Before anything is changed: a service that does not answer at rest tells nothing about a drill. */
async function requireAnswer(
  { http, url }: { readonly http: HttpClient; readonly url: string },
  images: readonly EncodedImage[],
  signal: AbortSignal,
): Promise<void> {
  const [address, request] = requestOf(url, "raw", images.slice(0, 1));
  const answer = await http
    .send(address, { ...request, timeoutMs: answerMs, signal })
    .catch((error: unknown) => {
      throw new UserError(`${url} does not answer: ${reason(error)}`);
    });
  if (answer.status === 200) return;
  const said = answer.body.toString("utf8").slice(0, 200);
  throw new UserError(`${address} must answer with status 200, got ${answer.status}: ${said}`);
}

/** Failed requests in a few words; empty if none failed. */
export function failureText({ requests, failed, errors }: PhaseLoad): string {
  if (requests === 0) return "no request was sent";
  if (failed === 0) return "";
  const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  return `${failed} of ${requests} requests failed: ${codes.join(", ")}`;
}
