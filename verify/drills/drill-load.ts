import { type ClusterService, selects } from "../../artefact/cluster-objects.ts";
import { podPortNames } from "../../contract/pods.ts";
import { UserError } from "../../contract/user-error.ts";
import { describeLatency, sortedLatencies } from "../../target/load/latency.ts";
import { countCodes, isGood, type TimedSample } from "../../target/load/samples.ts";
import { type RunningLoad, startLoad } from "../../target/load/start-load.ts";
import { clockMs } from "../../target/load/worker-messages.ts";
import { type EncodedImage, requestOf } from "../../target/requests/embed-requests.ts";
import { type HttpClient, openHttpClient, reason } from "../../target/requests/http-client.ts";
import { prepareEmbedRequests } from "../../target/requests/prepare.ts";
import { type ClusterApi, namespacedPath, type ServiceRoute } from "../cluster/cluster-api.ts";
import type { DrillRecord, PhaseLoad } from "./drill-record.ts";
import type { DrillTarget, Snapshot } from "./snapshot.ts";

/** Rate or number of clients of a load. Each client sends its next request after the previous response. */
export type Pace =
  | { readonly kind: "fixed rate"; readonly ratePerSecond: number }
  | { readonly kind: "closed loop"; readonly concurrency: number };

/** Maximum number of open requests at a fixed rate. More requests would only lengthen the queue. */
const openLimit = 500;
const responseMs = 30_000;

type Route = Pick<ServiceRoute, "url" | "http"> & Partial<ServiceRoute>;

/** Requests of a drill, and their results in each phase. */
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
   * Starts sending requests, or changes the pace.
   *
   * @throws {UserError} if the first request fails.
   */
  async start(pace: Pace, signal: AbortSignal): Promise<void> {
    await this.#stop(signal);
    if (this.#route === undefined) {
      this.#route = await this.#open();
      await requireResponse(this.#route, this.images, signal);
    }
    const { url, headers, connect } = this.#route;
    const requests = await prepareEmbedRequests({ url, apiKey: this.apiKey }, this.images);
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
      { openLimit },
    );
    this.#running = { load, pace };
  }

  get idle(): boolean {
    return this.#running === undefined && this.#ended.length === 0;
  }

  get pace(): Pace | undefined {
    return this.#running?.pace;
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

  /** Results of the requests of a phase so far. */
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

  async #stop(signal: AbortSignal): Promise<void> {
    const running = this.#running;
    if (running === undefined) return;
    this.#running = undefined;
    await running.load.stop(signal);
    this.#ended.push({ samples: running.load.samples, pace: running.pace });
  }

  async #open(): Promise<Route> {
    const { url, namespace, deployment, service } = this.target;
    const { apiKey } = this;
    if (url !== undefined) {
      this.#url = url;
      const bearer = apiKey === undefined ? undefined : { origin: url, key: apiKey };
      return { url, http: openHttpClient(512, bearer, { closeAfterResponse: true }) };
    }
    const named = service ?? (await this.#service());
    if (named === undefined) {
      throw new UserError(
        `namespace '${namespace}' has no Service that selects the pods of Deployment '${deployment}'`,
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

/** Sends one request before any change, because a service that fails when idle cannot be drilled. */
async function requireResponse(
  { http, url }: { readonly http: HttpClient; readonly url: string },
  images: readonly EncodedImage[],
  signal: AbortSignal,
): Promise<void> {
  const [address, request] = requestOf(url, "raw", images.slice(0, 1));
  const response = await http
    .send(address, { ...request, timeoutMs: responseMs, signal })
    .catch((error: unknown) => {
      throw new UserError(`${url} does not respond: ${reason(error)}`);
    });
  if (response.status === 200) return;
  const body = response.body.toString("utf8").slice(0, 200);
  throw new UserError(`${address} must respond with status 200, got ${response.status}: ${body}`);
}

/** Number of failed requests by code; empty if none failed. */
export function failureText({ requests, failed, errors }: PhaseLoad): string {
  if (requests === 0) return "no request was sent";
  if (failed === 0) return "";
  const codes = Object.entries(errors).map(([code, count]) => `${count} × ${code}`);
  return `${failed} of ${requests} requests failed: ${codes.join(", ")}`;
}
