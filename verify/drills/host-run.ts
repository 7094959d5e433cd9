import { isDeepStrictEqual } from "node:util";
import type { InspectedContainer, Inspection } from "../../artefact/docker-inspect.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { UserError } from "../../contract/user-error.ts";
import { counted } from "../../report/document/number-format.ts";
import { type Metrics, parseMetrics } from "../../target/readings/prometheus.ts";
import { type HttpClient, openHttpClient } from "../../target/requests/http-client.ts";
import { type Drill, type DrillOptions, type DrillPhase, DrillRun } from "./drill.ts";
import { DrillLoad, failureText, type Route } from "./drill-load.ts";
import type { PhaseLoad } from "./drill-record.ts";

/** Service of an environment and its container. */
export interface HostService {
  readonly name: string;
  readonly container: string;
}

/** Environment on a Docker host. */
export interface HostTarget {
  readonly environment: string;
  /** Docker endpoint of the host. */
  readonly endpoint: string;
  readonly services: readonly HostService[];
  /** Service that receives the load, at `url`. */
  readonly entry: HostService;
  /** Service that the drill disturbs. */
  readonly disturbed: HostService;
  readonly url: string;
  /** Maximum number of images that {@link entry} queues. */
  readonly queueSize: number;
  /** Runs a command of the engine; it is not interrupted. */
  docker(
    ...args: readonly string[]
  ): Promise<{ readonly exitCode: number; readonly stdout: string; readonly stderr: string }>;
  inspect(containers: readonly string[]): Promise<Inspection>;
}

export interface HostDrillOptions extends DrillOptions {
  readonly target: HostTarget;
  /** Duration in seconds of a disturbance that the drill ends itself. */
  readonly seconds: number;
}

export type HostDrill = Drill<HostRun>;

type Containers = ReadonlyMap<string, InspectedContainer>;

const beforePhase = "before";
/** Load before the change and after the recovery, in seconds. */
const leadSeconds = 3;
/** Time for a container to become healthy in addition to the start period of its health check: its probes and the engine's restart delay. */
const probeSeconds = 60;
/** Time in which a healthy container receives and answers requests again: probes and connections of the gateway. */
const answerSeconds = 30;

/** Failures while the server that receives the load does not run, because nothing is in front of it. */
const unreachable = [
  "connection refused",
  "connection reset",
  "connection closed before the response",
];

/** Phases of a drill under a fixed rate: before the change, during the disturbance, and after the recovery. */
export function hostPhases(
  name: string,
  act: (run: HostRun) => Promise<void>,
  load?: DrillPhase<HostRun>["load"],
): readonly DrillPhase<HostRun>[] {
  const fixedRate: DrillPhase<HostRun>["load"] = ({ ratePerSecond }) => ({
    kind: "fixed rate",
    ratePerSecond,
  });
  return [
    {
      name: beforePhase,
      load: fixedRate,
      leadSeconds,
      act: async (run) => run.requireAnswered(),
    },
    { name, ...(load && { load }), act },
    { name: "after", load: fixedRate, leadSeconds, act: async () => {} },
  ];
}

/** State of a drill in progress on the containers of an environment. */
export class HostRun extends DrillRun<Containers> {
  protected readonly loadChanges = false;
  verifiesCertificate = true;
  #lastText = "";
  #version = "";

  private constructor(
    override readonly options: HostDrillOptions,
    /** Containers before the drill. */
    readonly before: Containers,
  ) {
    const { images, apiKey } = options;
    super(
      options,
      "environment",
      new DrillLoad(async () => this.openRoute(), images, apiKey, true),
    );
  }

  /** Opens connections to the service that receives the load. */
  openRoute(): Route & { readonly http: HttpClient } {
    const {
      apiKey,
      target: { url },
    } = this.options;
    const bearer = apiKey === undefined ? undefined : { origin: url, key: apiKey };
    const connect = this.verifiesCertificate ? undefined : { rejectUnauthorized: false };
    const options = { closeAfterResponse: true, ...(connect && { tls: connect }) };
    return { url, http: openHttpClient(1, bearer, options), ...(connect && { connect }) };
  }

  static async open(options: HostDrillOptions): Promise<HostRun> {
    const before = await inspect(options.target);
    const unready = [...before.values()].find((container) => !isReady(container));
    if (unready !== undefined) {
      throw new UserError(
        `${unready.Name} must be running and healthy before the drill, got ${containerText(unready)}`,
      );
    }
    const run = new HostRun(options, before);
    run.#version = await run.docker("version", "--format", "{{.Server.Version}}");
    return run;
  }

  get target(): HostTarget {
    return this.options.target;
  }

  get disturbed(): HostService {
    return this.target.disturbed;
  }

  /** Container of a service before the drill. */
  containerOf({ container }: HostService): InspectedContainer {
    return this.before.get(container)!;
  }

  /** Runs a command of the engine, and returns its output. */
  async docker(...args: readonly string[]): Promise<string> {
    const { exitCode, stdout, stderr } = await this.target.docker(...args);
    if (exitCode === 0) return stdout.trim();
    throw new Error(`docker ${args[0]}: ${stderr.trim().split("\n").at(-1)}`);
  }

  /** Runs a command of the engine that changes the environment. */
  async change(...args: readonly string[]): Promise<string> {
    this.signal.throwIfAborted();
    this.changed = true;
    return this.docker(...args);
  }

  /** Runs a shell script as root in a temporary container of the image of the service that receives the load. */
  async helper(
    args: readonly string[],
    script: string,
    positional: readonly string[] = [],
  ): Promise<string> {
    const image = this.containerOf(this.target.entry).Image;
    const options = ["--rm", "--network", "none", "--user", "0:0", "--entrypoint", "sh"];
    return this.change("run", ...options, ...args, image, "-c", script, "sh", ...positional);
  }

  /** Samples of a metric of the service that receives the load. */
  metric(name: string): Promise<Metrics> {
    return this.withRetries(async () => {
      const { http, url } = this.openRoute();
      try {
        const { body } = await http.send(`${url}${embedPaths.metrics}`);
        return parseMetrics(body.toString("utf8")).filter((line) => line.name === name);
      } finally {
        await http.close();
      }
    });
  }

  /** Fails before any change unless every request of the first phase succeeded. */
  requireAnswered(): void {
    const load = this.load.of(beforePhase);
    const problem = failureText(load) || rejectionText(load);
    if (problem === "") return;
    throw new UserError(`every request must be answered before the drill, got: ${problem}`);
  }

  /** Inspects the containers, and records changed states. */
  async observe(): Promise<Containers> {
    const containers = await this.withRetries(() => inspect(this.target));
    const text = this.stateText(containers);
    if (text !== this.#lastText) this.step(`  ${text}`);
    this.#lastText = text;
    return containers;
  }

  /** Seconds in which a container must be healthy after its start. */
  startSeconds(service: HostService): number {
    return (this.containerOf(service).Config.Healthcheck?.StartPeriod ?? 0) / 1e9 + probeSeconds;
  }

  /** Checks that the engine restarts a container by itself, which becomes healthy. */
  async untilRestarted(service: HostService): Promise<void> {
    const seconds = this.startSeconds(service);
    const { StartedAt } = this.containerOf(service).State;
    const began = performance.now();
    await this.until(`${service.container} is restarted and healthy`, seconds, (now) => {
      const container = now.get(service.container);
      return isReady(container) && container?.State.StartedAt !== StartedAt;
    });
    await this.#checkRecovery(service, seconds, began);
  }

  /** Checks that requests succeed again after a disturbance during which the container did not stop. */
  async untilServing(service: HostService): Promise<void> {
    const began = performance.now();
    const seconds = this.startSeconds(service);
    await this.until(`${service.container} is healthy`, seconds, (now) =>
      isReady(now.get(service.container)),
    );
    await this.#checkRecovery(service, seconds, began);
  }

  /** Checks that a healthy service answers requests again, without a restart of the service that receives them. */
  async #checkRecovery(service: HostService, seconds: number, began: number): Promise<void> {
    const { entry } = this.target;
    const took = () => `${((performance.now() - began) / 1_000).toFixed(1)} s`;
    const healthy = `${service.container} is healthy after ${took()}`;
    const before = await this.#answersOf(service);
    if (before === undefined) return this.check(`recovers within ${seconds} s`, true, healthy);
    const { State } = (
      await this.until(
        `${service.container} answers requests`,
        answerSeconds,
        async () => ((await this.#answersOf(service)) ?? 0) > before,
      )
    ).get(entry.container)!;
    const isSame = State.StartedAt === this.containerOf(entry).State.StartedAt;
    const isOwn = service.container === entry.container;
    this.check(
      `recovers within ${seconds} s, and answers requests ${answerSeconds} s later`,
      isOwn || isSame,
      `${healthy} and answers requests after ${took()}${isOwn ? "" : `, ${isSame ? "without" : "with"} a restart of ${entry.container}`}`,
    );
  }

  /** Number of requests that a service has answered with success; undefined if it receives none of the load. */
  async #answersOf({ container }: HostService): Promise<number | undefined> {
    if (container === this.target.entry.container) return this.load.successes;
    const [calls, failures] = await Promise.all(
      [embedMetrics.tritonRequests, embedMetrics.tritonFailures].map(async (name) => {
        const lines = await this.metric(name);
        return lines
          .filter(({ labels: { target } }) => target?.startsWith(`${container}:`))
          .map(({ value }) => value);
      }),
    );
    return calls!.length === 0 ? undefined : sum(calls!) - sum(failures!);
  }

  async settle(): Promise<void> {
    const seconds = Math.max(...this.target.services.map((service) => this.startSeconds(service)));
    await this.until("every container is healthy again", seconds, (now) =>
      [...this.before.keys()].every((name) => isReady(now.get(name))),
    );
  }

  async differences() {
    const now = await this.observe();
    const wrong = [...this.before].flatMap(([name, before]) =>
      differencesOf(before, now.get(name)),
    );
    return {
      wrong,
      text: `${counted(this.before.size, "container")}, healthy and configured as before`,
    };
  }

  async record() {
    const { environment, endpoint, disturbed } = this.target;
    const containers = [...this.before].map(([name, { Image }]) => ({ name, imageId: Image }));
    const subject = {
      environment,
      host: endpoint,
      engine: this.#version,
      service: disturbed.name,
      containers,
    };
    return { subject, replicas: [], rejections: [] };
  }

  async close(): Promise<void> {}

  protected stateText(containers: Containers): string {
    const texts = [...this.before.keys()].map((name) => {
      const container = containers.get(name);
      return `${name} ${container === undefined ? "is missing" : containerText(container)}`;
    });
    return texts.join("; ");
  }

  protected isFinal(): boolean {
    return false;
  }

  protected checkPhase(load: PhaseLoad): void {
    if (load.phase === beforePhase) return;
    const isDuring = load.phase !== "after";
    const isOutage = isDuring && this.disturbed.container === this.target.entry.container;
    const { passed, message } = judgePhase(load, { isDuring, isOutage });
    const lost = isOutage
      ? "only connections to the disturbed server fail"
      : "nothing accepted is lost";
    const claim = isDuring ? lost : "every request is answered";
    this.check(`${claim}: ${load.phase}`, passed, message);
  }
}

/**
 * Judges the requests of a phase. During a disturbance, a request must succeed or be rejected with `Retry-After`; afterwards, it must
 * succeed.
 *
 * @param isOutage - Whether the server that receives the load is disturbed itself, so that its connections may be refused or cut.
 */
export function judgePhase(
  load: PhaseLoad,
  { isDuring, isOutage }: { readonly isDuring: boolean; readonly isOutage: boolean },
): { readonly passed: boolean; readonly message: string } {
  const { requests, failed, errors, rejected = {}, longestGapMs = 0, disturbedSeconds = 0 } = load;
  const cut = isOutage ? sum(unreachable.map((code) => errors[code] ?? 0)) : 0;
  const succeeded = requests - failed - sum(Object.values(rejected));
  const passed = requests > 0 && failed === cut && (isDuring || rejectionText(load) === "");
  const details = [
    `${requests} requests, ${succeeded} succeeded`,
    rejectionText(load),
    failureText(load),
    `longest time without a success ${(longestGapMs / 1_000).toFixed(1)} s`,
    ...(disturbedSeconds > 0
      ? [`the last unsuccessful request ended after ${disturbedSeconds} s`]
      : []),
  ];
  return { passed, message: details.filter(Boolean).join("; ") };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Number of clean rejections by status; empty without any. */
function rejectionText({ rejected = {} }: PhaseLoad): string {
  const codes = Object.entries(rejected).map(([code, count]) => `${count} × ${code}`);
  return codes.length === 0 ? "" : `rejected: ${codes.join(", ")}`;
}

async function inspect({ services, inspect }: HostTarget): Promise<Containers> {
  const names = services.map(({ container }) => container);
  const inspection = await inspect(names);
  if (!inspection.ok) throw new UserError(inspection.message);
  const missing = names.find((name) => !inspection.containers.has(name));
  if (missing !== undefined) throw new UserError(`container ${missing} does not exist`);
  return inspection.containers;
}

/** Returns whether a container exists, runs and is healthy. */
export function isReady(container: InspectedContainer | undefined): boolean {
  const { Status, Health } = container?.State ?? {};
  return Status === "running" && (Health?.Status ?? "healthy") === "healthy";
}

function containerText({ State: { Status, Health, ExitCode } }: InspectedContainer): string {
  if (Status === "running") return Health?.Status ?? Status;
  return Status === "paused" ? Status : `${Status} with exit code ${ExitCode}`;
}

/** Changes of a container that the drill has not reverted, one line each; its state is not compared. */
function differencesOf(
  before: InspectedContainer,
  now: InspectedContainer | undefined,
): readonly string[] {
  if (now === undefined) return [`${before.Name} does not exist`];
  const compared = ["Id", "Image", "Config", "HostConfig", "Mounts", "NetworkSettings"] as const;
  // the engine lists mounts in any order
  const sorted = ({ Mounts, ...container }: InspectedContainer) => ({
    ...container,
    Mounts: [...Mounts].sort((a, b) => (a.Destination < b.Destination ? -1 : 1)),
  });
  const [was, is] = [sorted(before), sorted(now)];
  return compared
    .filter((field) => !isDeepStrictEqual(was[field], is[field]))
    .map((field) => `${before.Name}: ${field} differs`);
}
